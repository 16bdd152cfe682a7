"""Output prediction in the format of CRUXEval: a small function and a call; the answer is the value as a literal."""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import Instance
from evals.task import Answer, Sample, Score

KINDS = ("string_one", "string_two", "list_one", "list_two")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NAMES = ("f", "g", "run", "calc")


def _string_step(rng: random.Random, value: str) -> str:
    a, b = rng.choice(value), rng.choice(LETTERS)
    k = rng.randint(1, 3)
    return rng.choice(
        (
            "s[::-1]",
            f"s[{k}:]",
            f"s[:{k}]",
            "s[:-1]",
            f"s + '{b}'",
            f"'{b}' + s",
            f"s.replace('{a}', '{b}')",
            f"s.replace('{a}', '')",
            "s.upper()",
            "s * 2",
            "s[0]",
            "s[-1]",
        )
    )


def _list_step(rng: random.Random, value: list[int]) -> str:
    a, b, k = rng.choice(value), rng.randint(0, 9), rng.randint(1, 3)
    return rng.choice(
        (
            "xs[::-1]",
            f"xs[{k}:]",
            f"xs[:{k}]",
            "xs[:-1]",
            f"xs + [{b}]",
            f"[{b}] + xs",
            "[x + 1 for x in xs]",
            f"[x for x in xs if x != {a}]",
            f"[x for x in xs if x > {b}]",
            "xs * 2",
            "len(xs)",
            "max(xs)",
            "xs[0]",
            "xs[-1]",
        )
    )


def draw(rng: random.Random, kind: str) -> Instance:
    """A function of one or two steps, applied to a short string or a list of digits."""
    while True:
        is_string, steps = kind.startswith("string"), 2 if kind.endswith("two") else 1
        value: object = (
            "".join(rng.choice(LETTERS) for _ in range(rng.randint(3, 6)))
            if is_string
            else [rng.randint(0, 9) for _ in range(rng.randint(3, 6))]
        )
        given, sources = value, []
        for _ in range(steps):
            source = _string_step(rng, value) if isinstance(value, str) else _list_step(rng, value)  # type: ignore[arg-type]
            value = eval(source, {"s": value, "xs": value, "max": max, "len": len})
            sources.append(source)
            if not isinstance(value, str | list) or len(value) < 2:
                break
        if len(sources) == steps and len(repr(value)) <= 42:
            break
    argument = "s" if is_string else "xs"
    name = rng.choice(NAMES)
    body = [f"    {argument} = {source}" for source in sources[:-1]] + [f"    return {sources[-1]}"]
    call = f"{name}({given!r})"
    prompt = "\n".join([f"def {name}({argument}):", *body, f"assert {call} == ?"])
    return Instance(kind, f"output|{sources}|{given!r}", prompt, repr(value), {"value": repr(value), "call": call})


@dataclass(frozen=True)
class BuiltinOutput(BuiltinTask):
    """Right when the answer, or what follows `==` in its last line, is a literal equal to the value."""

    @property
    def name(self) -> str:
        return "builtin_output"

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def draw(self, rng: random.Random, kind: str) -> Instance:
        return draw(rng, kind)

    def judge(self, sample: Sample, answer: Answer) -> Score:
        literal = answer.text.strip().splitlines()[-1].rsplit("==", 1)[-1].strip()
        expected = sample.reference["value"]
        try:
            value = ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return Score(0.0, "no_answer", literal, "not a Python literal")
        right = repr(value) == expected
        return Score(float(right), "right" if right else "wrong", literal, f"expected {expected}")
