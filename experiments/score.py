"""Judge kept answers in a pool of processes. Runs no model; what was judged before stays."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol

from evals.task import OUTCOMES, Sample, Score, Task
from experiments.answers import answer
from experiments.errors import one_line
from experiments.progress import tracked
from experiments.workers import WorkerLost, Workers

#: A verdict that takes more seconds than this is given up.
PATIENCE = 900.0
_POOLS: dict[int, Workers] = {}


class ScoringFailed(RuntimeError):
    """A scorer broke; that is no verdict on the answer."""


class Verdicts(Protocol):
    """Where verdicts are kept: by sample id, each in place when `add` returns."""

    by_id: dict[str, dict[str, Any]]

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None: ...


def judge(task: Task, sample: Sample, kept: dict[str, Any]) -> dict[str, Any]:
    """The line of one verdict. Runs in a worker process."""
    try:
        score = task.score(sample, answer(kept))
    except Exception as error:
        raise ScoringFailed(f"scoring {sample.id!r} failed: {type(error).__name__}: {one_line(error)}") from error
    return score_line(sample.id, score, task.version)


def score_line(sample: str, score: Score, version: str) -> dict[str, Any]:
    if score.outcome not in OUTCOMES:
        raise ScoringFailed(f"scoring {sample!r} gave the outcome {score.outcome!r}, expected one of {', '.join(OUTCOMES)}")
    return {
        "id": sample,
        "value": score.value,
        "outcome": score.outcome,
        "answer": score.answer,
        "explanation": score.explanation,
        "metrics": dict(score.metrics),
        "version": version,
    }


class Scorer:
    """Scores one run. `submit` hands over answers and returns at once; `finish` waits for all verdicts."""

    def __init__(self, task: Task, samples: Iterable[Sample], lines: Verdicts, workers: int) -> None:
        self.task = task
        self.samples = {sample.id: sample for sample in samples}
        self.lines = lines
        self.workers = workers
        self.pending: dict[Future[dict[str, Any]], str] = {}

    def submit(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Queue answers that have no verdict yet, and write down the verdicts that arrived meanwhile."""
        self._collect([future for future in self.pending if future.done()])
        waiting = {*self.pending.values(), *self.lines.by_id}
        for line in kept:
            if line["id"] not in waiting:
                sample = self.samples[line["id"]]
                future = _pool(self.workers).submit(judge, self.task, sample, dict(line), seconds=PATIENCE)
                self.pending[future] = sample.id

    def finish(self) -> None:
        """Wait for every verdict. ScoringFailed when the scorer breaks on one or takes more than `PATIENCE` seconds."""
        for _ in self.arriving():
            pass

    def arriving(self) -> Iterator[str]:
        """Wait for every verdict and yield the id of each that is in place. Raises as `finish` does."""
        while self.pending:
            done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
            ids = [self.pending[future] for future in done]
            self._collect(list(done))
            yield from ids

    def abandon(self) -> None:
        """Stop judging; verdicts that are written stay."""
        if self.pending:
            self.pending.clear()
            shutdown()

    def _collect(self, futures: Sequence[Future[dict[str, Any]]]) -> None:
        """Write verdicts down; a failure is raised once the others are on disk."""
        verdicts, failure = [], None
        for future in futures:
            sample = self.pending.pop(future)
            try:
                verdicts.append(future.result())
            except WorkerLost as error:
                failure = ScoringFailed(f"scoring {sample!r} was given up: {error}")
            except ScoringFailed as error:
                failure = error
        if verdicts:
            self.lines.add(verdicts)
        if failure is not None:
            raise failure


def judge_all(
    task: Task, samples: Iterable[Sample], lines: Verdicts, kept: Sequence[Mapping[str, Any]], workers: int, *, total: int
) -> None:
    """Judge `kept` answers, showing progress towards `total`. ScoringFailed once all that can be judged is in place."""
    scorer = Scorer(task, samples, lines, workers)
    failures: list[ScoringFailed] = []
    try:
        scorer.submit(kept)
        while scorer.pending:
            try:
                done = total - len(scorer.pending)
                for _ in tracked(scorer.arriving(), total=total, done=done, what=f"scoring {task.name}"):
                    pass
            except ScoringFailed as failure:
                failures.append(failure)
    except BaseException:
        scorer.abandon()
        raise
    if failures:
        raise ScoringFailed(f"{len(failures)} answers could not be judged; the first: {failures[0]}")


def _pool(workers: int) -> Workers:
    """One pool for all runs of this process."""
    if workers not in _POOLS:
        shutdown()
        _POOLS[workers] = Workers(workers)
    return _POOLS[workers]


def shutdown() -> None:
    """End the scoring processes of this process."""
    while _POOLS:
        _POOLS.popitem()[1].close()


atexit.register(shutdown)
