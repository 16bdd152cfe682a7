"""Word problems of one to three equations that end in `#### N`, in the format of GSM8K."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import Instance
from evals.builtin.vocab import HE, PLACES, SHE, THINGS
from evals.task import Answer, Sample, Score

KINDS = ("one", "two", "three")
STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)
GAIN = ("buys {b} more", "finds {b} more", "gets {b} more")
LOSS = ("gives away {b}", "loses {b}", "sells {b}")
LARGEST = 99


def draw(rng: random.Random, kind: str) -> Instance:
    """A story with `kind` equations. Subtractions and divisions, the harder ones, come up more often."""
    while True:
        story = _story(rng, KINDS.index(kind) + 1)
        if story is not None:
            return _tell(rng, kind, *story)


def _story(rng: random.Random, equations: int) -> tuple[list[tuple[str, int, int]], int] | None:
    """Moves (name, a, b) and the result, or None where the numbers did not work out."""
    moves: list[tuple[str, int, int]] = []
    left, total = equations, rng.randint(3, 69)
    if rng.random() < (0.2 if equations == 1 else 0.35):
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        moves, total, left = [("boxes", a, b)], a * b, equations - 1
    else:
        moves = [("has", total, 0)]
    while left:
        kind = rng.choices(("gain", "loss", "group", "share"), (3, 4, 2 if left > 1 else 0, 3 if left == 1 else 0))[0]
        a, b = rng.choice(STEPS), 0
        if kind == "gain":
            total += a
        elif kind == "loss":
            total -= a
        elif kind == "group":
            a, b = rng.randint(2, 9), rng.randint(2, 9)
            total += a * b
            left -= 1
        else:
            a = rng.randint(2, 9)
            if len(moves) == 1 and moves[0][0] == "has":  # nothing computed yet: choose what can be shared
                total = a * rng.randint(2, 9)
                moves = [("has", total, 0)]
            if total % a or not 2 <= total // a <= 9:
                return None
            total //= a
        moves.append((kind, a, b))
        left -= 1
        if not 1 <= total <= LARGEST:
            return None
    return moves, total


def _tell(rng: random.Random, kind: str, moves: list[tuple[str, int, int]], result: int) -> Instance:
    female = rng.random() < 0.5
    name, pronoun = rng.choice(SHE if female else HE), "She" if female else "He"
    things, place = rng.choice(THINGS), rng.choice(PLACES)
    story, lines, total = [], [], 0
    for move, a, b in moves:
        before = total
        if move == "has":
            story.append(f"{name} has {a} {things}.")
            total = a
        elif move == "boxes":
            story.append(f"{name} has {a} {place} with {b} {things} each.")
            total = a * b
            lines.append(f"{a}*{b}={total}")
        elif move == "gain":
            story.append(f"{pronoun} {rng.choice(GAIN).format(b=a)}.")
            total += a
            lines.append(f"{before}+{a}={total}")
        elif move == "loss":
            story.append(f"{pronoun} {rng.choice(LOSS).format(b=a)}.")
            total -= a
            lines.append(f"{before}-{a}={total}")
        elif move == "group":
            story.append(f"{pronoun} buys {a} {place} with {b} {things} each.")
            total += a * b
            lines += [f"{a}*{b}={a * b}", f"{before}+{a * b}={total}"]
        else:
            story.append(f"{pronoun} shares them among {a} friends.")
            total //= a
            lines.append(f"{before}/{a}={total}")
    ask = "does each friend get" if moves[-1][0] == "share" else f"does {name} have now"
    prompt = f"{' '.join(story)} How many {things} {ask}?"
    target = "\n".join([*(f"{rng.choice(('So', 'Then', 'Now'))} {line}." for line in lines), f"#### {result}"])
    return Instance(kind, f"math|{moves}", prompt, target, {"answer": result})


@dataclass(frozen=True)
class BuiltinMath(BuiltinTask):
    """Word problems; right when the number after the last `####` is right."""

    @property
    def name(self) -> str:
        return "builtin_math"

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def draw(self, rng: random.Random, kind: str) -> Instance:
        return draw(rng, kind)

    def judge(self, sample: Sample, answer: Answer) -> Score:
        found = re.findall(r"####\s*(-?\d+)", answer.text)
        if not found:
            return Score(0.0, "no_answer", explanation="no number after ####")
        right = int(found[-1]) == sample.reference["answer"]
        return Score(float(right), "right" if right else "wrong", found[-1], f"expected {sample.reference['answer']}")
