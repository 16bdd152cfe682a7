"""Scoring happens in processes that may die, hang or print without harm, and keeps what it has."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evals.task import Answer, Sample, Score
from experiments import score as scoring
from experiments.record import Lines
from experiments.score import Scorer, ScoringFailed
from experiments.workers import WorkerLost, Workers


@dataclass(frozen=True)
class Toy:
    """Judges by the answer's word."""

    name: str = "toy"
    version: str = "1"

    def score(self, sample: Sample, answer: Answer) -> Score:
        if answer.text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer.text == "hang":
            time.sleep(60)
        if answer.text == "raise":
            raise KeyError("no such thing")
        if answer.text == "odd":
            return Score(0.0, "odd")
        sys.stdout.write("noise\n")
        return Score(float(answer.text == "yes"), "right" if answer.text == "yes" else "wrong", answer.text)


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    yield
    scoring.shutdown()


def kept(words: Sequence[str]) -> list[dict[str, Any]]:
    return [{"id": str(i), "text": word, "finish": "eos", "mask": False} for i, word in enumerate(words)]


def scorer(file: Path, words: Sequence[str]) -> Scorer:
    return Scorer(Toy(), [Sample(str(i)) for i in range(len(words))], Lines(file), workers=2)  # type: ignore[arg-type]


def test_verdicts_are_written_once(tmp_path: Path) -> None:
    words = ["yes", "no", "yes"]
    one = scorer(tmp_path / "s.jsonl", words)
    one.submit(kept(words)[:2])
    one.submit(kept(words))
    one.finish()
    assert {k: v["value"] for k, v in one.lines.by_id.items()} == {"0": 1.0, "1": 0.0, "2": 1.0}
    assert scoring._POOLS.keys() == {2}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("die", "scoring '1' was given up: its process ended with code -9"),
        ("raise", "scoring '1' failed: KeyError: 'no such thing'"),
        ("odd", "scoring '1' gave the outcome 'odd'"),
    ],
)
def test_a_broken_scorer_fails_the_run_and_leaves_the_other_verdicts(tmp_path: Path, word: str, message: str) -> None:
    words = ["yes", word, "no", "yes"]
    one = scorer(tmp_path / "s.jsonl", words)
    one.submit(kept(words))
    with pytest.raises(ScoringFailed, match=message):
        one.finish()
    while one.pending:
        one.finish()
    one.lines.close()
    again = scorer(tmp_path / "s.jsonl", words)
    assert set(again.lines.by_id) == {"0", "2", "3"}
    again.submit(kept(["yes", "yes", "no", "yes"]))
    again.finish()
    assert len(again.lines.by_id) == 4


def test_a_scorer_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "PATIENCE", 2.0)
    one = scorer(tmp_path / "s.jsonl", ["hang"])
    one.submit(kept(["hang"]))
    with pytest.raises(ScoringFailed, match="no answer within 2 s"):
        one.finish()


def test_abandoning_ends_the_processes(tmp_path: Path) -> None:
    one = scorer(tmp_path / "s.jsonl", ["hang", "hang", "hang"])
    one.submit(kept(["hang", "hang", "hang"]))
    time.sleep(0.2)
    started = time.monotonic()
    one.abandon()
    assert time.monotonic() - started < 5
    assert not scoring._POOLS


def test_workers_are_kept_and_replaced_when_lost() -> None:
    pool = Workers(1)
    first = pool.submit(os.getpid, seconds=30).result()
    assert pool.submit(os.getpid, seconds=30).result() == first != os.getpid()
    with pytest.raises(WorkerLost):
        pool.submit(os._exit, 3, seconds=30).result()
    assert pool.submit(os.getpid, seconds=30).result() != first
    assert len(pool.submit(bytes, 3_000_000, seconds=30).result()) == 3_000_000
    pool.close()
