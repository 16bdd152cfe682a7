"""List operations after the waiting-line tasks of ParallelBench (arXiv 2510.04767).

In the tasks with a free choice (shuffle, replace, insert or remove anywhere) every place of the answer is uncertain and
they depend on each other: tokens chosen at the same time contradict each other. The other tasks have one answer.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import Instance
from evals.builtin.vocab import NAMES
from evals.task import Answer, Sample, Score

KINDS = (
    "copy",
    "reverse",
    "sort",
    "shuffle",
    "replace_index",
    "replace_random",
    "insert_index",
    "insert_random",
    "remove_index",
    "remove_random",
)
SHORTEST, LONGEST = 3, 6
ASKS = {
    "copy": "Copy the list.",
    "reverse": "Reverse the list.",
    "sort": "Sort the list by name.",
    "shuffle": "Shuffle the list.",
    "replace_index": "Replace index {index} by {word}.",
    "replace_random": "Replace any one by {word}.",
    "insert_index": "Insert {word} at index {index}.",
    "insert_random": "Insert {word} anywhere.",
    "remove_index": "Remove index {index}.",
    "remove_random": "Remove any one.",
}


def draw(rng: random.Random, kind: str) -> Instance:
    """A list of three to six different names and one thing to do with it."""
    *items, word = rng.sample(NAMES, rng.randint(SHORTEST, LONGEST) + 1)
    index = rng.randrange(len(items) + (1 if kind == "insert_index" else 0))
    where = rng.randrange(len(items) + (1 if kind == "insert_random" else 0)) if kind.endswith("random") else index
    ask = ASKS[kind].format(index=index, word=word)
    answer = list(items)
    if kind == "reverse":
        answer.reverse()
    elif kind == "sort":
        answer.sort()
    elif kind == "shuffle":
        while answer == items:
            rng.shuffle(answer)
    elif kind.startswith("replace"):
        answer[where] = word
    elif kind.startswith("insert"):
        answer.insert(where, word)
    elif kind.startswith("remove"):
        del answer[where]
    reference = {"items": items, "word": word, "index": index, "answer": answer}
    prompt = f"{ask}\n{json.dumps(items)}"
    return Instance(kind, f"lists|{prompt}", prompt, json.dumps(answer), reference)


def parse(text: str) -> tuple[list[str] | None, bool]:
    """The list in the last `[...]` of the answer, quotes optional, and whether the answer is exactly a JSON list."""
    strict = False
    try:
        value = json.loads(text.strip())
        strict = isinstance(value, list) and all(isinstance(item, str) for item in value)
    except ValueError:
        pass
    start, stop = text.rfind("["), text.rfind("]")
    if start < 0 or stop < start:
        return None, False
    return [item.strip().strip("\"'") for item in text[start + 1 : stop].split(",")], strict


def holds(kind: str, found: list[str], reference: dict[str, Any]) -> bool:
    """Whether `found` is a right answer: any right one where the choice is free, the one right answer elsewhere."""
    items, word = list(reference["items"]), reference["word"]
    if kind == "shuffle":
        return sorted(found) == sorted(items) and found != items
    if kind == "replace_random":
        return any(found == [*items[:i], word, *items[i + 1 :]] for i in range(len(items)))
    if kind == "insert_random":
        return any(found == [*items[:i], word, *items[i:]] for i in range(len(items) + 1))
    if kind == "remove_random":
        return any(found == [*items[:i], *items[i + 1 :]] for i in range(len(items)))
    return found == list(reference["answer"])


@dataclass(frozen=True)
class BuiltinLists(BuiltinTask):
    """Right when the last list in the answer is right; `strict` also wants the answer to be that list alone."""

    @property
    def name(self) -> str:
        return "builtin_lists"

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def draw(self, rng: random.Random, kind: str) -> Instance:
        return draw(rng, kind)

    def judge(self, sample: Sample, answer: Answer) -> Score:
        found, strict = parse(answer.text)
        if found is None:
            return Score(0.0, "no_answer", explanation="no list in brackets", metrics={"strict": 0.0})
        right = holds(sample.reference["kind"], found, dict(sample.reference))
        expected = f"for example {sample.reference['answer']}"
        metrics = {"strict": float(right and strict)}
        return Score(float(right), "right" if right else "wrong", json.dumps(found), expected, metrics)
