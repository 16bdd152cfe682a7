"""What the lines of a record add up to: the numbers of metrics.json and the notes a reader needs. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evals.task import Score, Task
from experiments.metrics import metrics, warnings

#: Fields of a score's line that make the verdict.
VERDICT = ("value", "outcome", "answer", "explanation", "metrics")


def totals(
    task: Task, generations: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """All numbers of a run and what must be said with them.

    Besides `metrics`: `summary`, what the task itself computes over all verdicts (IFEval's instruction-level accuracies),
    `label`, what the result must be called by (LiveCodeBench's public-only) or None, and `scorer_version`.
    """
    lines = list(scores)
    verdicts = [Score(**{name: line[name] for name in VERDICT}) for line in lines]
    numbers = metrics(list(generations), lines)
    numbers["summary"] = _ask(task, "summarise", verdicts) or {}
    numbers["label"] = task.provenance().get("label")
    numbers["scorer_version"] = task.version
    return numbers, [*warnings(numbers), *(_ask(task, "run_notes", verdicts) or [])]


def _ask(task: Task, method: str, verdicts: list[Score]) -> Any:
    say = getattr(task, method, None)
    return None if say is None else say(verdicts)
