"""The numbers of a run, from its lines alone. Pure functions: what cannot be computed is None, never 0.

Definitions. Visible tokens: from the prompt's end to the first end-of-sequence token or stop string, exclusive. Forwards:
those one sequence took part in. Batch time: from a batch's start to the end of its last row; only batches of which every
row was kept are timed, so a run that was killed is not flattered. Rates over all rows are a sum divided by a sum.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evals.task import OUTCOMES

Line = Mapping[str, Any]
KINDS = ("full", "refresh", "window")


def ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean, from the sample's own spread; None below two values."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) / math.sqrt(len(values))


def forwards(line: Line) -> int:
    return sum(line["forwards"][kind] for kind in KINDS)


def batches(lines: Sequence[Line]) -> list[list[Line]]:
    """The batches of which every row was kept."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line["batch"]].append(line)
    return [rows for rows in found.values() if len(rows) == rows[0]["rows"]]


def speed(lines: Sequence[Line]) -> dict[str, Any]:
    """Tokens, forwards and seconds of a run."""
    tokens = [line["n_tokens"] for line in lines]
    calls = [forwards(line) for line in lines]
    whole = batches(lines)
    timed = [line for rows in whole for line in rows]
    seconds = sum(max(line["seconds"] for line in rows) for rows in whole)
    batch_calls = sum(max(line["batch_forwards"] for line in rows) for rows in whole)
    rates = [line["n_tokens"] / line["seconds"] for line in timed if line["seconds"] > 0]
    per_call = [n / c for n, c in zip(tokens, calls, strict=True) if c]
    visible = sum(line["n_tokens"] for line in timed)
    return {
        "tokens": sum(tokens),
        "tokens_mean": mean(tokens),
        "tokens_per_forward": ratio(sum(tokens), sum(calls)),
        "tokens_per_forward_mean": mean(per_call),
        "tokens_per_second": ratio(visible, seconds),
        "tokens_per_second_sample_mean": mean(rates),
        "tokens_per_second_sample_median": median(rates),
        "forwards": sum(calls),
        "forwards_mean": mean(calls),
        **{f"forwards_{kind}": sum(line["forwards"][kind] for line in lines) for kind in KINDS},
        "steps": sum(line["steps"] for line in lines),
        "columns_queried": sum(line["queried"] for line in lines),
        "batches": len({line["batch"] for line in lines}),
        "timed_batches": len(whole),
        "timed_samples": len(timed),
        "batch_forwards": batch_calls if whole else None,
        "tokens_per_batch_forward": ratio(visible, batch_calls),
        "seconds": seconds if whole else None,
        "seconds_per_sample_mean": mean([line["seconds"] for line in timed]),
        "seconds_per_sample_median": median([line["seconds"] for line in timed]),
    }


def answers(lines: Sequence[Line]) -> dict[str, Any]:
    """How the answers ended and what filled the canvas."""
    ends = Counter(line["finish"] for line in lines)
    filled = sum(line["filled"] for line in lines)
    return {
        "finish_eos": ends["eos"],
        "finish_length": ends["length"],
        "finish_stop": ends["stop"],
        "empty_texts": sum(not line["text"].strip() for line in lines),
        "mask_texts": sum(bool(line["mask"]) for line in lines),
        "canvas_tokens": sum(line["canvas"] for line in lines),
        "filled_tokens": filled,
        "eos_share": ratio(sum(line["eos"] for line in lines), filled),
    }


def quality(scores: Sequence[Line]) -> dict[str, Any]:
    """Accuracy with its standard error, verdicts by kind, and every further number the scorer gives."""
    values = [float(line["value"]) for line in scores]
    kinds = Counter(line["outcome"] for line in scores)
    named: dict[str, list[float]] = defaultdict(list)
    for line in scores:
        for key, value in line["metrics"].items():
            named[key].append(float(value))
    return {
        "accuracy": mean(values),
        "accuracy_se": standard_error(values),
        "outcomes": {kind: kinds[kind] for kind in OUTCOMES},
        "scores": {
            key: {"mean": mean(found), "se": standard_error(found), "n": len(found)} for key, found in sorted(named.items())
        },
    }


def metrics(generations: Sequence[Line], scores: Sequence[Line]) -> dict[str, Any]:
    """All numbers of a run; `n` answers, `scored` of them judged."""
    return {
        "n": len(generations),
        "scored": len(scores),
        **quality(scores),
        **speed(generations),
        **answers(generations),
    }


def warnings(numbers: Mapping[str, Any]) -> list[str]:
    """What a person should know before believing `numbers`."""
    found = []
    if numbers["mask_texts"]:
        found.append(f"{numbers['mask_texts']} of {numbers['n']} answers contain a mask token")
    if numbers["n"] and numbers["empty_texts"] > numbers["n"] / 4:
        found.append(f"{numbers['empty_texts']} of {numbers['n']} answers are empty")
    return found
