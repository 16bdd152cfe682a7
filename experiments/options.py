"""The option files of every group, read as text: their keys, defaults and the comments that explain them."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

KEY = re.compile(r"^([A-Za-z]\w*):\s*(.*?)\s*(?:\s#\s*(.*))?$")
#: Groups whose files set keys of other groups.
KEYLESS = ("experiment",)
GROUPS = ("model", "decoding", "iteration", "cache", "task", "engine", "logger", "experiment")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an option: its default as written and its meaning."""

    name: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Option:
    """One file of a group."""

    group: str
    name: str
    meaning: str
    keys: tuple[Key, ...]


def read_option(group: str, file: Traversable | Path) -> Option:
    """Header comment and top-level keys with their comments."""
    lines = file.read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        if not line.startswith("#"):
            break
        if "@package" not in line:
            head.append(line.lstrip("# ").rstrip())
    keys = [Key(m[1], m[2], m[3] or "") for line in lines if (m := KEY.match(line)) and m[1] not in ("defaults", "hydra")]
    if group in KEYLESS:
        keys = []
    return Option(group, file.name.removesuffix(".yaml"), " ".join(head), tuple(keys))


@lru_cache(maxsize=4)
def options(more: tuple[str, ...] = ()) -> tuple[Option, ...]:
    """Every option of the package and of the folders in `more`, by group and name."""
    roots: list[Traversable | Path] = [importlib.resources.files("conf"), *(Path(folder) for folder in more)]
    found: dict[tuple[str, str], Option] = {}
    for root in roots:
        for group in GROUPS:
            folder = root.joinpath(*group.split("/"))
            files = [f for f in folder.iterdir() if f.name.endswith(".yaml")] if folder.is_dir() else []
            for file in files:
                option = read_option(group, file)
                found[group, option.name] = option
    return tuple(sorted(found.values(), key=lambda o: (GROUPS.index(o.group), o.name)))


def root_keys() -> Sequence[Key]:
    """The keys of `conf/run.yaml` that are no groups."""
    return read_option("", importlib.resources.files("conf") / "run.yaml").keys


@lru_cache(maxsize=1)
def defaults() -> dict[str, str]:
    """The option chosen in each group when the command names none."""
    text = (importlib.resources.files("conf") / "run.yaml").read_text(encoding="utf-8")
    pairs = re.findall(r"^  - ([\w/]+): (\w+)$", text, flags=re.MULTILINE)
    return {group: option for group, option in pairs if option != "null"}


def owners() -> dict[str, list[str]]:
    """For each key the options that have it, as group=option."""
    found: dict[str, list[str]] = {}
    for option in options():
        for key in option.keys:
            found.setdefault(key.name, []).append(f"{option.group}={option.name}")
    return found
