"""Turns the end of a program into a verdict: the outcomes that all code-executing benchmarks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evals.code import clean, parsed
from evals.sandbox import Limits, RunResult
from evals.task import Answer, Score

#: Raised by a test that compared and found a difference: the program answered, wrongly.
_COMPARED = ("AssertionError",)


def limits(timeout_s: float, memory_mb: int, output_mb: int = 1) -> Limits:
    """Sandbox limits for one program of a benchmark.

    `timeout_s` is processor time, so that a verdict does not depend on how busy the machine is; three times that, and
    a little, is granted as wall time.
    """
    return Limits(wall_s=3 * timeout_s + 5, cpu_s=timeout_s, memory_mb=memory_mb, output_bytes=output_mb << 20)


def check_fields(timeout_s: float, memory_mb: int, max_tokens: int) -> None:
    """ValueError for limits no program can run under."""
    for name, value in (("timeout_s", timeout_s), ("memory_mb", memory_mb), ("max_tokens", max_tokens)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: str, allowed: Mapping[str, object] | tuple[str, ...]) -> None:
    """ValueError naming the field and what it may be."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def unusable(answer: Answer) -> Score | None:
    """The verdict on an answer that need not be looked into: mask tokens left in it, or nothing in it."""
    if answer.has_mask:
        return Score(0.0, "mask", explanation="the answer still holds mask tokens")
    if not clean(answer.text).strip():
        return Score(0.0, "empty", explanation="the answer is empty")
    return None


def without_program(answer: Answer, wanted: str) -> Score:
    """The verdict on an answer in which no program was found."""
    if answer.finish == "length":
        return Score(0.0, "truncated", explanation=f"cut at the token budget before there was {wanted}")
    return Score(0.0, "no_answer", explanation=f"no {wanted} found in the answer")


def judge(result: RunResult, answer: Answer, program: str) -> Score:
    """The verdict on a program that was run together with its tests."""
    if result.passed:
        return Score(1.0, "right", program, "all tests passed")
    outcome, why = outcome_of(result), result.explanation
    if answer.finish == "length" and not parsed(program):
        outcome, why = "truncated", f"cut at the token budget: {why}"
    return Score(0.0, outcome, program, why)


def outcome_of(result: RunResult) -> str:
    """`timeout`, `crashed`, or `wrong` for a program that ran but failed a test."""
    if result.reason == "timeout":
        return "timeout"
    if result.reason == "error" and result.exception in _COMPARED:
        return "wrong"
    return "crashed"


def stop_strings(given: Sequence[str]) -> tuple[str, ...]:
    """`given` as a tuple. ValueError when it is one string, or holds an empty one."""
    if isinstance(given, str) or not all(isinstance(item, str) and item for item in given):
        raise ValueError(f"extra_stop must be a list of non-empty strings, got {given!r}")
    return tuple(given)
