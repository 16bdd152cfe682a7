"""What the built-in tasks share: configuration, samples from instances, and the verdicts no scorer has to repeat."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evals.builtin.instance import SPLITS, Instance, instances
from evals.task import Answer, Message, Sample, Score


@dataclass(frozen=True)
class BuiltinTask:
    """A procedural benchmark of `size` instances of one split; `seed` selects which ones.

    A subclass names itself and its kinds, draws an instance and judges an answer.
    """

    split: str = "test"
    size: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {SPLITS}, got {self.split!r}")
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def kinds(self) -> tuple[str, ...]:
        """Sub-kinds, each an equal share of the samples."""
        raise NotImplementedError

    @property
    def version(self) -> str:
        return "1"

    @property
    def max_tokens(self) -> int:
        return 64

    @property
    def stop(self) -> Sequence[str]:
        return ()

    def draw(self, rng: random.Random, kind: str) -> Instance:
        """One instance of `kind`, of any split."""
        raise NotImplementedError

    def judge(self, sample: Sample, answer: Answer) -> Score:
        """The verdict on an answer that has text and no mask."""
        raise NotImplementedError

    def instances(self, limit: int | None = None) -> Iterator[Instance]:
        """Instances of this split and seed in a fixed order, without end unless `limit` is given."""
        return instances(self.draw, self.kinds, self.split, self.seed, self.name, limit)

    def samples(self) -> list[Sample]:
        return [
            Sample(
                id=f"{self.name}-{self.split}-{self.seed}-{index:05d}",
                messages=(Message("user", instance.prompt),),
                reference={"task": self.name, "kind": instance.kind, **instance.reference},
            )
            for index, instance in enumerate(self.instances(self.size))
        ]

    def provenance(self) -> dict[str, Any]:
        samples = self.samples()
        digest = hashlib.sha256()
        for sample in samples:
            digest.update(json.dumps([sample.messages[0].content, dict(sample.reference)], sort_keys=True).encode())
        return {
            "source": "generated",
            "revision": f"{self.name} version {self.version}, seed {self.seed}",
            "rows": len(samples),
            "sha256": digest.hexdigest(),
            "notes": "procedural; split decided by a hash of each instance's content",
        }

    def score(self, sample: Sample, answer: Answer) -> Score:
        """Masks and empty answers are their own outcomes; a wrong answer that ran out of budget was truncated."""
        if answer.has_mask:
            return Score(0.0, "mask", explanation="the answer still holds mask tokens")
        if not answer.text.strip():
            return Score(0.0, "empty", explanation="the answer is empty")
        verdict = self.judge(sample, answer)
        if answer.finish == "length" and verdict.outcome in ("wrong", "no_answer"):
            return Score(verdict.value, "truncated", verdict.answer, verdict.explanation, verdict.metrics)
        return verdict
