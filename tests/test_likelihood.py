"""The Monte-Carlo estimate of an answer's likelihood, against all masks of a short answer and against itself."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dinfer.guidance import Guided
from dinfer.likelihood import Pair, log_likelihoods, masks
from dinfer.models import Backbone, load_model
from dinfer.models.random import write_checkpoint

PROMPT = (72, 105, 32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = write_checkpoint(tmp_path_factory.mktemp("model"), hidden=32, scale=4.0, gain=2.0, max_length=64)
    return load_model(folder, dtype="float64")


def exact(model: Backbone, prompt: tuple[int, ...], answer: tuple[int, ...], guidance: float = 0.0) -> float:
    """The expectation itself: the mean over k of the mean over all sets of k masked tokens."""

    def logits(shown: list[int], blank: bool) -> torch.Tensor:
        start = [model.spec.mask_id] * len(prompt) if blank else list(prompt)
        return model.logits(model.full(model.embed(torch.tensor([start + shown]))))[0, len(prompt) :]

    n, total = len(answer), 0.0
    for k in range(1, n + 1):
        sets = list(itertools.combinations(range(n), k))
        for chosen in sets:
            shown = [model.spec.mask_id if i in chosen else token for i, token in enumerate(answer)]
            found = logits(shown, False)
            if guidance:
                without = logits(shown, True)
                found = without + (guidance + 1) * (found - without)
            log_p = found.log_softmax(-1)
            total += sum(float(log_p[i, answer[i]]) for i in chosen) * n / k / len(sets) / n
    return total


@pytest.mark.parametrize("answer", [(120,), (120, 121), (65, 66, 67), (10, 200, 10, 30)])
def test_the_estimate_is_the_expectation_over_all_masks(model: Backbone, answer: tuple[int, ...]) -> None:
    (found,) = log_likelihoods(model, [Pair(PROMPT, answer, seed=3)], draws=2000, batch_size=250)
    expected = exact(model, PROMPT, answer)
    if len(answer) == 1:
        assert (found.draws, found.standard_error) == (1, 0.0)
        assert found.value == pytest.approx(expected, abs=1e-9)
    else:
        assert found.draws == 2000
        assert 0 < found.standard_error < 0.1 * abs(expected)
        assert abs(found.value - expected) < 3 * found.standard_error


def test_guidance_is_a_model_around_the_model(model: Backbone) -> None:
    (found,) = log_likelihoods(Guided(model, 0.5), [Pair(PROMPT, (65, 66, 67))], draws=1500, batch_size=250)
    assert abs(found.value - exact(model, PROMPT, (65, 66, 67), guidance=0.5)) < 3 * found.standard_error


def test_neither_batch_size_nor_neighbours_change_an_estimate(model: Backbone) -> None:
    pairs = [Pair((1,), (2, 3, 4, 5, 6), 1), Pair(PROMPT * 4, (7, 8), 2), Pair(PROMPT, (9,), 3), Pair((1,) * 20, (5,) * 9, 4)]
    together = log_likelihoods(model, pairs, draws=12, batch_size=7)
    alone = [log_likelihoods(model, [pair], draws=12, batch_size=1)[0] for pair in pairs]
    for one, other in zip(together, alone, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-9)
        assert one.standard_error == pytest.approx(other.standard_error, abs=1e-9)
        assert one.draws == other.draws


def test_a_logit_that_scores_the_next_column_is_read_there(model: Backbone) -> None:
    spec = model.spec
    model.spec = replace(spec, shift=1)
    try:
        (found,) = log_likelihoods(model, [Pair(PROMPT, (120,))])
    finally:
        model.spec = spec
    logits = model.logits(model.full(model.embed(torch.tensor([[*PROMPT, spec.mask_id]]))))[0, len(PROMPT) - 1]
    assert found.value == pytest.approx(float(logits.log_softmax(-1)[120]), abs=1e-9)


def test_masks_are_uniform_in_number_and_place() -> None:
    drawn = masks(Pair((1,), (1, 2, 3, 4), seed=11), 8000)
    sizes = Counter(sum(row) for row in drawn)
    assert set(sizes) == {1, 2, 3, 4}
    for count in sizes.values():
        assert abs(count - 2000) < 4 * math.sqrt(8000 * 0.25 * 0.75)
    sets = Counter(row for row in drawn if sum(row) == 2)
    assert len(sets) == 6
    assert max(sets.values()) < 1.35 * min(sets.values())
    assert drawn != masks(Pair((1,), (1, 2, 3, 4), seed=12), 8000)
    assert drawn[:100] == masks(Pair((1,), (9, 9, 9, 9), seed=11), 100)


def test_refusals(model: Backbone, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="answer must hold at least one token"):
        Pair((1,), ())
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        log_likelihoods(model, [Pair((1,), (2,))], draws=0)
    with pytest.raises(ValueError, match=r"64 positions, got 60 \+ 5"):
        log_likelihoods(model, [Pair((1,) * 60, (2,) * 5)])
    spec = model.spec
    model.spec = replace(spec, block=32)
    try:
        with pytest.raises(ValueError, match="blocks of 32"):
            log_likelihoods(model, [Pair((1,), (2,))])
    finally:
        model.spec = spec
