"""Judge kept answers in a pool of processes. Runs no model; what was judged before stays."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from evals.task import OUTCOMES, Sample, Score, Task
from experiments.answers import answer
from experiments.errors import one_line
from experiments.record import Lines

log = logging.getLogger(__name__)

#: Without a single verdict for so many seconds, scoring is given up as stuck.
PATIENCE = 900.0
_POOLS: dict[int, ProcessPoolExecutor] = {}


class ScoringFailed(RuntimeError):
    """A scorer broke; that is no verdict on the answer."""


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

    def __init__(self, task: Task, samples: Iterable[Sample], lines: Lines, workers: int) -> None:
        self.task = task
        self.samples = {sample.id: sample for sample in samples}
        self.lines = lines
        self.workers = workers
        self.pending: dict[Future[dict[str, Any]], str] = {}
        self.kept: dict[str, dict[str, Any]] = {}

    def submit(self, kept: Sequence[Mapping[str, Any]]) -> None:
        """Queue answers that have no verdict yet, and write down the verdicts that arrived meanwhile."""
        self._collect([future for future in self.pending if future.done()])
        for line in kept:
            if line["id"] not in self.lines.by_id and line["id"] not in self.pending.values():
                self.kept[line["id"]] = dict(line)
                self._queue(line["id"])

    def finish(self) -> None:
        """Wait for every verdict. ScoringFailed when the scorer breaks or nothing moves for `PATIENCE` seconds."""
        while self.pending:
            try:
                for future in as_completed(list(self.pending), timeout=PATIENCE):
                    self._collect([future])
                    break
            except TimeoutError as error:
                stuck = ", ".join(sorted(self.pending.values())[:5])
                shutdown()
                raise ScoringFailed(f"no verdict for {PATIENCE:.0f} s; waiting for {stuck}") from error

    def _queue(self, sample: str) -> None:
        with importable_main():
            future = _pool(self.workers).submit(judge, self.task, self.samples[sample], self.kept[sample])
        self.pending[future] = sample

    def _collect(self, futures: Sequence[Future[dict[str, Any]]]) -> None:
        verdicts = []
        for future in futures:
            sample = self.pending.pop(future, None)
            if sample is None:
                continue
            try:
                verdicts.append(future.result())
            except BrokenProcessPool:
                self._restart(sample)
                break
        if verdicts:
            self.lines.add(verdicts)

    def _restart(self, sample: str) -> None:
        """A worker died. Judge what it had one by one: whoever kills a worker again is to blame."""
        waiting = [sample, *self.pending.values()]
        self.pending.clear()
        shutdown()
        log.warning("a scoring process died; judging its %d answers one by one", len(waiting))
        for one in waiting:
            try:
                with importable_main():
                    future = _pool(1).submit(judge, self.task, self.samples[one], self.kept[one])
                verdict = future.result(PATIENCE)
            except (BrokenProcessPool, TimeoutError) as error:
                shutdown()
                raise ScoringFailed(f"scoring {one!r} kills or blocks its process") from error
            self.lines.add([verdict])


@contextmanager
def importable_main() -> Iterator[None]:
    """Start workers from this package alone: they would otherwise run the caller's script again up to its main guard."""
    genuine = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = genuine


def _pool(workers: int) -> ProcessPoolExecutor:
    """One pool for all runs of this process, started afresh so that no thread or device state is inherited."""
    if workers not in _POOLS:
        shutdown()
        _POOLS[workers] = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    return _POOLS[workers]


def shutdown() -> None:
    """End the scoring processes of this process."""
    while _POOLS:
        _, pool = _POOLS.popitem()
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


atexit.register(shutdown)
