"""Verifiable instructions in the manner of IFEval: what is asked can be checked by a rule, and many answers are right."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import Instance
from evals.builtin.vocab import ADJECTIVES, ANIMALS, CATEGORIES, NAMES, OBJECTS, VERBS
from evals.task import Answer, Sample, Score

KINDS = ("different", "alternate", "repeat", "words", "include", "ends", "quoted", "sentences")


WORDS = (*(word for words in CATEGORIES.values() for word in words), *OBJECTS, *ADJECTIVES, *NAMES)


def _sentence(rng: random.Random, subject: str | None = None, thing: str | None = None, adjective: bool = True) -> str:
    first = f"{rng.choice(ADJECTIVES)} " if adjective else ""
    return f"The {first}{subject or rng.choice(ANIMALS)} {rng.choice(VERBS)} the {thing or rng.choice(OBJECTS)}"


def draw(rng: random.Random, kind: str) -> Instance:
    prompt, target, rule = globals()[f"_{kind}"](rng)
    return Instance(kind, f"instruct|{prompt}", prompt, target, {"rule": rule})


Drawn = tuple[str, str, dict[str, Any]]


def _different(rng: random.Random) -> Drawn:
    category, count = rng.choice(tuple(CATEGORIES)), rng.randint(3, 6)
    banned = rng.sample(CATEGORIES[category], 2)
    chosen = rng.sample([word for word in CATEGORIES[category] if word not in banned], count)
    prompt = f"Name {count} different {category}, separated by commas. Do not say {banned[0]} or {banned[1]}."
    return prompt, ", ".join(chosen), {"category": category, "count": count, "banned": banned}


def _alternate(rng: random.Random) -> Drawn:
    a, b = rng.sample([word for words in CATEGORIES.values() for word in words], 2)
    count = rng.randint(3, 6)
    first, second = (a, b) if rng.random() < 0.5 else (b, a)
    text = " ".join(first if i % 2 == 0 else second for i in range(count))
    return f"Write {count} words, only {a} and {b} in turn.", text, {"pair": [a, b], "count": count}


def _repeat(rng: random.Random) -> Drawn:
    word, count = rng.choice(WORDS), rng.randint(2, 9)
    return f"Write the word {word} {count} times.", " ".join([word] * count), {"repeat": word, "count": count}


def _words(rng: random.Random) -> Drawn:
    subject, thing, count = rng.choice(ANIMALS), rng.choice(OBJECTS), rng.randint(5, 9)
    text = _sentence(rng, subject, thing, adjective=count in (6, 9))
    text += {5: "", 6: "", 7: " every day", 8: f" and {rng.choice(VERBS)} it", 9: f" and {rng.choice(VERBS)} it"}[count]
    prompt = f"Write a sentence of exactly {count} words about a {subject} and a {thing}."
    return prompt, f"{text}.", {"words": count, "include": [subject, thing]}


def _include(rng: random.Random) -> Drawn:
    subject, thing, adjective = rng.choice(ANIMALS), rng.choice(OBJECTS), rng.choice(ADJECTIVES)
    words = [subject, thing, adjective]
    rng.shuffle(words)
    text = f"The {adjective} {subject} {rng.choice(VERBS)} the {thing}."
    return f"Write a sentence with the words {', '.join(words)}.", text, {"include": words, "sentences": 1}


def _ends(rng: random.Random) -> Drawn:
    thing, subject, adjective = rng.choice(OBJECTS), rng.choice(ANIMALS), rng.choice(ADJECTIVES)
    text = f"The {adjective} {subject} {rng.choice(VERBS)} the {thing}."
    prompt = f"Write a sentence about a {adjective} {subject} that ends with the word {thing}."
    return prompt, text, {"include": [adjective, subject], "ends": thing, "sentences": 1}


def _quoted(rng: random.Random) -> Drawn:
    thing, subject, adjective = rng.choice(OBJECTS), rng.choice(ANIMALS), rng.choice(ADJECTIVES)
    text = f'"The {subject} {rng.choice(VERBS)} the {adjective} {thing}."'
    prompt = f"Write a sentence about a {subject} and a {adjective} {thing}, wrapped in double quotes."
    return prompt, text, {"include": [adjective, subject, thing], "quoted": True}


def _sentences(rng: random.Random) -> Drawn:
    count, subject, thing = rng.randint(2, 4), rng.choice(ANIMALS), rng.choice(OBJECTS)
    parts = [f"{_sentence(rng, subject, thing, adjective=False)}." for _ in range(count)]
    prompt = f"Write exactly {count} sentences about a {subject} and a {thing}."
    return prompt, " ".join(parts), {"sentences": count, "each": [subject, thing]}


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"[.!?]", text) if part.strip()]


def _tokens(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+", text)


def _is_different(text: str, rule: dict[str, Any]) -> bool:
    items = [item.strip().rstrip(".") for item in text.split(",")]
    allowed = set(CATEGORIES[rule["category"]]) - set(rule["banned"])
    return len(items) == rule["count"] == len(set(items)) and set(items) <= allowed


def _is_alternate(text: str, rule: dict[str, Any]) -> bool:
    items, pair = text.split(), rule["pair"]
    turns = [[pair[(i + start) % 2] for i in range(rule["count"])] for start in (0, 1)]
    return items in turns


#: One check for each field of a rule: the text and the whole rule to a verdict.
CHECKS: dict[str, Callable[[str, dict[str, Any]], bool]] = {
    "category": _is_different,
    "pair": _is_alternate,
    "repeat": lambda text, rule: text.split() == [rule["repeat"]] * rule["count"],
    "words": lambda text, rule: len(text.split()) == rule["words"],
    "include": lambda text, rule: set(rule["include"]) <= set(_tokens(text)),
    "ends": lambda text, rule: _tokens(text)[-1:] == [rule["ends"]],
    "quoted": lambda text, rule: len(text) > 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1],
    "sentences": lambda text, rule: len(_parts(text)) == rule["sentences"] and text[-1] in '.!?"',
    "each": lambda text, rule: all(set(rule["each"]) <= set(_tokens(part)) for part in _parts(text)),
}


def _grammatical(text: str) -> bool:
    """No word follows itself: stuttering is what careless decoding produces."""
    words = [word.lower() for word in _tokens(text)]
    return all(a != b for a, b in pairwise(words))


@dataclass(frozen=True)
class BuiltinInstruct(BuiltinTask):
    """Right when the answer keeps every rule of its instruction and, where it is a sentence, repeats no word at once."""

    @property
    def name(self) -> str:
        return "builtin_instruct"

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def draw(self, rng: random.Random, kind: str) -> Instance:
        return draw(rng, kind)

    def judge(self, sample: Sample, answer: Answer) -> Score:
        text, rule = answer.text.strip(), dict(sample.reference["rule"])
        broken = [name for name, check in CHECKS.items() if name in rule and not check(text, rule)]
        if "repeat" not in rule and not _grammatical(text):
            broken.append("stutter")
        right = not broken
        return Score(float(right), "right" if right else "wrong", text, ", ".join(f"breaks {name}" for name in broken))
