"""pass@k against counting all draws, and standard errors."""

from __future__ import annotations

import itertools
import math

import pytest

from evals.passk import estimate, mean_pass_at_k, pass_at_k


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(n: int) -> None:
    for c in range(n + 1):
        for k in range(1, n + 1):
            draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_of_many_answers() -> None:
    assert pass_at_k(1000, 1, 100) == pytest.approx(0.1)
    assert pass_at_k(200, 200, 1) == 1.0
    assert pass_at_k(200, 0, 200) == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must lie in"):
        pass_at_k(n, c, k)


def test_estimate() -> None:
    found = estimate([1.0] * 82 + [0.0] * 82)
    assert (found.mean, found.n) == (0.5, 164)
    assert found.stderr == pytest.approx(math.sqrt(0.25 / 163))
    assert estimate([0.3]).stderr == 0.0
    with pytest.raises(ValueError, match="at least one"):
        estimate([])


def test_mean_over_problems() -> None:
    outcomes = {"a": [True, False], "b": [False, False], "c": [True, True]}
    found = mean_pass_at_k(outcomes, [1, 2])
    assert found[1].mean == pytest.approx(0.5)
    assert found[2].mean == pytest.approx(2 / 3)
    assert found[1].n == 3
    with pytest.raises(ValueError, match="pass@3 needs 3 answers a problem, got 2 for a"):
        mean_pass_at_k(outcomes, [3])
