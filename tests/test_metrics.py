"""The audited numbers: what is counted, over which rows, and what is left unknown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dinfer.types import GenerationResult, Trace
from experiments import answers
from experiments.metrics import metrics, standard_error, warnings
from experiments.prompts import Prompt


def line(
    name: str, n: int, *, batch: str = "a-0", rows: int = 1, seconds: float = 1.0, forwards: int = 10, **more: Any
) -> dict[str, Any]:
    usual = {
        "id": name,
        "text": "x" * n,
        "n_tokens": n,
        "finish": "eos",
        "steps": forwards,
        "committed": [],
        "forwards": {"full": forwards, "refresh": 0, "window": 0},
        "queried": 0,
        "canvas": 64,
        "filled": 64,
        "eos": 64 - n,
        "mask": False,
        "batch": batch,
        "rows": rows,
        "seconds": seconds,
        "batch_forwards": forwards,
        "prompt_tokens": 3,
        "prompt_sha256": "",
    }
    return {**usual, **more}


def verdict(name: str, value: float, outcome: str = "right", **more: float) -> dict[str, Any]:
    return {"id": name, "value": value, "outcome": outcome, "metrics": more}


def test_tokens_are_summed_over_all_rows_of_a_batch() -> None:
    lines = [line(str(i), 10 * (i + 1), rows=4, seconds=0.5 * (i + 1)) for i in range(4)]
    found = metrics(lines, [])
    assert found["tokens"] == 100
    assert found["tokens_per_second"] == pytest.approx(100 / 2.0)
    assert found["seconds"] == 2.0


def test_filler_after_the_end_is_not_counted() -> None:
    tail = GenerationResult("q", (5, 6, 7), "eos", 64, 32, 29, Trace((3,), 64, full=1), 0, 1, 0.1, 1)
    kept = answers.line(tail, Prompt("q", "p", (1,)), lambda ids: "abc"[: len(ids)], stops=(), mask_id=9, start="s")
    found = metrics([kept], [])
    assert found["tokens"] == 3
    assert found["canvas_tokens"] == 64
    assert found["eos_share"] == pytest.approx(29 / 32)


def test_totals_merge_over_batches_of_several_processes() -> None:
    lines = [line("a", 10, batch="x-0", seconds=2.0), line("b", 30, batch="y-0", seconds=3.0)]
    found = metrics(lines, [])
    assert found["n"] == 2
    assert found["tokens_per_second"] == pytest.approx(40 / 5)
    assert found["tokens_per_second_sample_mean"] == pytest.approx((5 + 10) / 2)


def test_a_torn_batch_is_counted_but_not_timed() -> None:
    lines = [line("a", 10, batch="x-0", rows=2, seconds=0.001), line("b", 20, batch="y-0", seconds=2.0)]
    found = metrics(lines, [])
    assert found["tokens"] == 30
    assert found["tokens_per_second"] == pytest.approx(10.0)
    assert found["timed_samples"] == 1


def test_tokens_per_forward_is_a_sum_over_a_sum_and_a_mean() -> None:
    found = metrics([line("a", 10, forwards=10), line("b", 40, forwards=10, batch="a-1")], [])
    assert found["tokens_per_forward"] == pytest.approx(2.5)
    assert found["tokens_per_forward_mean"] == pytest.approx((1 + 4) / 2)
    different = metrics([line("a", 10, forwards=5), line("b", 10, forwards=20, batch="a-1")], [])
    assert different["tokens_per_forward"] == pytest.approx(20 / 25)
    assert different["tokens_per_forward_mean"] == pytest.approx((2 + 0.5) / 2)


def test_unknown_is_none_and_never_zero() -> None:
    found = metrics([], [])
    for key in ("accuracy", "accuracy_se", "tokens_per_second", "tokens_per_forward", "eos_share", "seconds"):
        assert found[key] is None, key
    assert metrics([line("a", 1)], [verdict("a", 1.0)])["accuracy_se"] is None


def test_standard_error_of_a_share() -> None:
    values = [1.0] * 30 + [0.0] * 70
    assert standard_error(values) == pytest.approx(math.sqrt(0.3 * 0.7 / 99))


def test_every_outcome_is_counted_apart() -> None:
    scores = [verdict("a", 1.0), verdict("b", 0.0, "wrong"), verdict("c", 0.0, "empty"), verdict("d", 0.0, "timeout")]
    found = metrics([line(s["id"], 1, batch=s["id"]) for s in scores], scores)
    assert found["accuracy"] == 0.25
    assert {k: v for k, v in found["outcomes"].items() if v} == {"right": 1, "wrong": 1, "empty": 1, "timeout": 1}


def test_further_numbers_of_the_scorer_are_averaged_over_those_that_have_them() -> None:
    scores = [verdict("a", 1.0, strict=0.0, flexible=1.0), verdict("b", 0.0, flexible=0.0), verdict("c", 0.0, strict=1.0)]
    found = metrics([line(s["id"], 1, batch=s["id"]) for s in scores], scores)["scores"]
    assert found["strict"] == {"mean": 0.5, "se": 0.5, "n": 2}
    assert found["flexible"]["n"] == 2


def test_masks_and_empty_answers_are_said() -> None:
    found = metrics([line("a", 0), line("b", 3, batch="a-1", mask=True)], [])
    assert (found["empty_texts"], found["mask_texts"]) == (1, 1)
    assert warnings(found) == ["1 of 2 answers contain a mask token", "1 of 2 answers are empty"]


def test_a_stop_string_cuts_text_and_count() -> None:
    words = {1: "ab", 2: "cd", 3: "\n\n", 4: "ef"}

    def decode(ids: Any) -> str:
        return "".join(words[i] for i in ids)

    result = GenerationResult("q", (1, 2, 3, 4), "length", 8, 8, 0, Trace((8,), 8, full=1), 0, 1, 0.1, 1)
    kept = answers.line(result, Prompt("q", "p", (1,)), decode, stops=("\n\n", "d\n"), mask_id=9, start="s")
    assert (kept["text"], kept["n_tokens"], kept["finish"], kept["tokens"]) == ("abc", 2, "stop", [1, 2])
    whole = answers.line(result, Prompt("q", "p", (1,)), decode, stops=("zz",), mask_id=9, start="s")
    assert (whole["text"], whole["n_tokens"], whole["finish"]) == ("abcd\n\nef", 4, "length")
