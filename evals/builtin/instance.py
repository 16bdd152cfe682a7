"""Procedural instances: drawn from a seed, kept apart by content.

The split of an instance is a hash of what it asks (`key`), not of where it was drawn. Training, validation and test can
therefore never share one, whatever seeds, sizes or numbers of draws are used.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SPLITS = ("train", "validation", "test")
TEST_PERCENT = 8
VALIDATION_PERCENT = 4
#: So many draws in a row that bring nothing new mean that there is nothing new.
PATIENCE = 1000


@dataclass(frozen=True, slots=True)
class Instance:
    """One question with one good answer.

    `key` is what is asked with everything cosmetic left out (names of people, of functions, of variables): two
    instances with the same key are the same question. `target` is one right answer, often not the only one;
    `reference` is what the scorer needs.
    """

    kind: str
    key: str
    prompt: str
    target: str
    reference: Mapping[str, Any] = field(default_factory=dict)


#: Draws an instance of the given kind.
Draw = Callable[[random.Random, str], Instance]


def split_of(key: str) -> str:
    """The only split in which this question may occur."""
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100
    if share < TEST_PERCENT:
        return "test"
    return "validation" if share < TEST_PERCENT + VALIDATION_PERCENT else "train"


def generator(*parts: object) -> random.Random:
    """A random generator that depends on `parts` alone, the same on every platform."""
    text = ":".join(str(part) for part in parts)
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def draw_from(draw: Draw, kind: str, split: str, rng: random.Random) -> Instance:
    """The first draw of `kind` whose content belongs to `split`."""
    while True:
        instance = draw(rng, kind)
        if split_of(instance.key) == split:
            return instance


def instances(
    draw: Draw, kinds: tuple[str, ...], split: str, seed: int, name: str, limit: int | None = None
) -> Iterator[Instance]:
    """Instance after instance, kinds in turn. With `limit`, that many with distinct prompts.

    ValueError when a kind has too few distinct questions in this split.
    """
    seen: set[str] = set()
    given = index = repeats = 0
    while limit is None or given < limit:
        kind = kinds[given % len(kinds)]
        instance = draw_from(draw, kind, split, generator(name, split, seed, index))
        index += 1
        if limit is None or instance.prompt not in seen:
            if limit is not None:
                seen.add(instance.prompt)
            given, repeats = given + 1, 0
            yield instance
        elif (repeats := repeats + 1) > PATIENCE:
            raise ValueError(f"size asks for more {name}/{kind} instances than the {split} split holds, got {limit}")
