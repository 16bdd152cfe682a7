"""`task=builtin`: the five built-in tasks in equal shares."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from evals.builtin.base import BuiltinTask
from evals.builtin.code import BuiltinCode
from evals.builtin.instance import Instance
from evals.builtin.instruct import BuiltinInstruct
from evals.builtin.lists import BuiltinLists
from evals.builtin.math import BuiltinMath
from evals.builtin.output import BuiltinOutput
from evals.task import Answer, Sample, Score

PARTS: tuple[type[BuiltinTask], ...] = (BuiltinMath, BuiltinCode, BuiltinOutput, BuiltinInstruct, BuiltinLists)


@dataclass(frozen=True)
class Builtin(BuiltinTask):
    """The mix: the tasks in turn. `metrics` names the task of each sample, so a run also averages every part."""

    @property
    def name(self) -> str:
        return "builtin"

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(part(self.split, self.size, self.seed).name for part in PARTS)

    def draw(self, rng: random.Random, kind: str) -> Instance:
        part = next(part() for part in PARTS if part().name == kind)
        return part.draw(rng, rng.choice(part.kinds))

    def instances(self, limit: int | None = None) -> Iterator[Instance]:
        def turns() -> Iterator[Instance]:
            share = None if limit is None else -(-limit // len(PARTS))
            for row in zip(*(part(self.split, self.size, self.seed).instances(share) for part in PARTS), strict=True):
                yield from row

        return islice(turns(), limit)

    def samples(self) -> list[Sample]:
        share = -(-self.size // len(PARTS))
        parts = [part(self.split, share, self.seed).samples() for part in PARTS]
        return [sample for row in zip(*parts, strict=True) for sample in row][: self.size]

    def judge(self, sample: Sample, answer: Answer) -> Score:
        part = next(part() for part in PARTS if part().name == sample.reference["task"])
        verdict = part.judge(sample, answer)
        metrics = {**verdict.metrics, part.name: verdict.value}
        return Score(verdict.value, verdict.outcome, verdict.answer, verdict.explanation, metrics)
