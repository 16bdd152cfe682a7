"""Averages over repeated answers: pass@k without bias, and standard errors.

Counts only; what counts as right is a task's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` problems and its standard error (0 when `n` is 1)."""

    mean: float
    stderr: float
    n: int


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of `k` answers drawn from `n`, of which `c` are right, is right.

    Unbiased estimate of pass@k (Chen et al. 2021, arXiv:2107.03374). ValueError unless 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must lie in [0, n = {n}], got {c}")
    if not 1 <= k <= n:
        raise ValueError(f"k must lie in [1, n = {n}], got {k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and standard error of the mean. ValueError without values."""
    listed = [float(value) for value in values]
    n = len(listed)
    if n == 0:
        raise ValueError("values must hold at least one number, got none")
    mean = math.fsum(listed) / n
    spread = math.fsum((value - mean) ** 2 for value in listed)
    return Estimate(mean, math.sqrt(spread / (n * (n - 1))) if n > 1 else 0.0, n)


def mean_pass_at_k(outcomes: Mapping[str, Sequence[bool]], ks: Iterable[int]) -> dict[int, Estimate]:
    """pass@k averaged over problems, for each k in `ks`; `outcomes` holds the verdicts of each problem's answers.

    Problems may have different numbers of answers. ValueError naming the problem that has fewer than k.
    """
    results: dict[int, Estimate] = {}
    for k in ks:
        for problem, verdicts in outcomes.items():
            if len(verdicts) < k:
                raise ValueError(f"pass@{k} needs {k} answers a problem, got {len(verdicts)} for {problem}")
        results[k] = estimate(pass_at_k(len(verdicts), sum(map(bool, verdicts)), k) for verdicts in outcomes.values())
    return results
