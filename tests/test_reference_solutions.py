"""The data's own solutions pass, spoilt ones fail: every row of the published sets, where they are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.cruxeval import CruxEval
from evals.humaneval import STYLES as HUMANEVAL_STYLES
from evals.humaneval import HumanEval
from evals.livecodebench import LiveCodeBench
from evals.mbpp import Mbpp
from tests.code_answers import failures, score_all, spoilt

#: Reference solutions of MBPP+ that take a gigabyte or half a minute.
HEAVY = ("mbpp_plus-255", "mbpp_plus-599")


def test_humaneval(shared: Path) -> None:
    task = HumanEval(path=str(shared / "data/humaneval/test.jsonl"))
    samples = task.samples()
    first = score_all(task, samples, task.reference_answer)
    assert (len(first), failures(first)) == (164, {})
    assert score_all(task, samples, task.reference_answer) == first


def test_humaneval_spoilt_solutions_fail(shared: Path) -> None:
    task = HumanEval(path=str(shared / "data/humaneval/test.jsonl"))

    def answer(sample) -> str:  # type: ignore[no-untyped-def]
        row = sample.reference
        return f"```python\n{spoilt(row['prompt'] + row['canonical_solution'], row['entry_point'])}```"

    scores = score_all(task, task.samples(), answer)
    passed = [name for name, score in scores.items() if score.value]
    assert len(passed) <= 1, passed
    assert {score.outcome for score in scores.values()} <= {"wrong", "crashed", "right"}
    assert sum(score.outcome == "wrong" for score in scores.values()) > 140
    assert all(score.explanation for score in scores.values())


@pytest.mark.parametrize("style", sorted(set(HUMANEVAL_STYLES) - {"opencompass"}))
def test_humaneval_solutions_written_as_each_style_has_them(shared: Path, style: str) -> None:
    task = HumanEval(path=str(shared / "data/humaneval/test.jsonl"), style=style)
    assert failures(score_all(task, task.samples()[::8], task.reference_answer)) == {}


@pytest.mark.slow
def test_humaneval_plus(shared: Path) -> None:
    task = HumanEval("plus", path=str(shared / "data/humanevalplus/test.jsonl.gz"))
    scores = score_all(task, task.samples(), task.reference_answer)
    assert len(scores) == 164
    assert list(failures(scores)) == ["HumanEval/32"]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "file", "rows"), [("full", "full", 974), ("sanitized", "sanitized", 427)])
def test_mbpp(shared: Path, variant: str, file: str, rows: int) -> None:
    task = Mbpp(variant, path=str(shared / f"data/mbpp/{file}.jsonl"))
    scores = score_all(task, task.samples(), task.reference_answer)
    assert (len(scores), failures(scores)) == (rows, {})


@pytest.mark.slow
def test_mbpp_plus(shared: Path) -> None:
    task = Mbpp("plus", path=str(shared / "data/mbppplus/test.jsonl.gz"))
    samples = task.samples()
    assert len(samples) == 378
    scores = score_all(task, [sample for sample in samples if sample.id not in HEAVY], task.reference_answer)
    assert (len(scores), failures(scores)) == (376, {})


@pytest.mark.slow
def test_mbpp_plus_heavy_solutions(shared: Path) -> None:
    task = Mbpp("plus", path=str(shared / "data/mbppplus/test.jsonl.gz"))
    scores = score_all(task, [s for s in task.samples() if s.id in HEAVY], task.reference_answer)
    assert (len(scores), failures(scores)) == (2, {})


def test_cruxeval_output(shared: Path) -> None:
    task = CruxEval("output", path=str(shared / "data/cruxeval/test.jsonl"))
    scores = score_all(task, task.samples(), task.reference_answer)
    assert (len(scores), failures(scores)) == (800, {})


@pytest.mark.slow
def test_cruxeval_input(shared: Path) -> None:
    task = CruxEval("input", path=str(shared / "data/cruxeval/test.jsonl"))
    scores = score_all(task, task.samples(), task.reference_answer)
    assert (len(scores), failures(scores)) == (800, {})


def test_cruxeval_answers_of_other_rows_fail(shared: Path) -> None:
    for predict in ("output", "input"):
        task = CruxEval(predict, path=str(shared / "data/cruxeval/test.jsonl"))
        samples = task.samples()[:60]
        shifted = {one.id: other for one, other in zip(samples, samples[1:] + samples[:1], strict=True)}
        scores = score_all(task, samples, lambda sample: task.reference_answer(shifted[sample.id]))  # noqa: B023
        assert sum(score.value for score in scores.values()) <= 6


@pytest.mark.slow
@pytest.mark.parametrize(("file", "rows"), [("v1", 400), ("v5", 167), ("v6", 175)])
def test_livecodebench_public_outputs(shared: Path, file: str, rows: int) -> None:
    task = LiveCodeBench(path=str(shared / f"data/livecodebench/{file}.public.jsonl"))
    scores = score_all(task, task.samples(), task.reference_answer)
    assert (len(scores), failures(scores)) == (rows, {})
    assert all(score.explanation.startswith("public-only: ") for score in scores.values())


def test_livecodebench_wrong_outputs_fail(shared: Path) -> None:
    task = LiveCodeBench(path=str(shared / "data/livecodebench/v6.public.jsonl"))

    def answer(sample) -> str:  # type: ignore[no-untyped-def]
        right = task.reference_answer(sample) or ""
        return right.replace("print(known[", "print('0', known[").replace("return self.known[", "return 0, self.known[")

    scores = score_all(task, task.samples()[::3], answer)
    assert {score.outcome for score in scores.values()} == {"wrong"}
