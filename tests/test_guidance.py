"""Classifier-free guidance: two branches, one with the prompt masked, mixed as LLaDA's sampler mixes them."""

from __future__ import annotations

import pytest
import torch

from dinfer.cache import Window
from dinfer.decoding import Steps, Threshold
from dinfer.guidance import Guided
from dinfer.iteration import Blockwise, Smooth
from dinfer.loop import decode
from dinfer.types import Recipe, Request
from tests.networks import by_hand, ids, network
from tests.stubs import MASK, Scripted, canvas_of, sure

NONE, DUAL = Window(), Window(before=0, after=0)


@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0])
def test_guidance_equals_two_full_forwards(scale: float) -> None:
    model = network(torch.float64)
    requests = [Request("a", (5, 6, 7, 8), 8), Request("b", (9, 10), 7)]
    recipe = Recipe(Steps(), Blockwise(block_length=4, early_stop=False), NONE, scale)
    finished = {f.row: f.tokens for f in decode(model, requests, recipe)}
    expected = {i: by_hand(model, r, 4, scale) for i, r in enumerate(requests)}
    assert finished == expected
    assert scale == 0 or expected != {i: by_hand(model, r, 4, 0.0) for i, r in enumerate(requests)}


@pytest.mark.parametrize(("scale", "calls"), [(0.0, 8), (0.7, 16)])
def test_guidance_runs_the_network_twice_and_masks_the_prompt_of_one(scale: float, calls: int) -> None:
    model = Scripted({1: sure([4] * 8, 0.9).clamp_min(-50.0)})
    (finished,) = decode(model, [Request("a", (1, 2, 3), 8)], Recipe(Steps(), Blockwise(block_length=4), DUAL, scale))
    assert finished.tokens == (4,) * 8
    assert finished.trace.forwards == 8
    assert len(model.asked) == calls
    for given, blank in zip(model.shown[::2], model.shown[1::2], strict=True) if scale else ():
        for column, what in blank[0].items():
            assert int(what.argmax()) == (MASK if column < 3 else int(given[0][column].argmax()))
        assert all(int(given[0][column].argmax()) == column + 1 for column in given[0] if column < 3)


def test_the_mixture_is_a_line_through_both_branches() -> None:
    model = network(torch.float64)
    given, blank = torch.randn(2, 3, 5, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    both = torch.cat((given, blank), -1)
    torch.testing.assert_close(Guided(model, 0.0).logits(both), model.logits(given))
    torch.testing.assert_close(Guided(model, -1.0).logits(both), model.logits(blank))
    torch.testing.assert_close(Guided(model, 2.0).logits(both), 3 * model.logits(given) - 2 * model.logits(blank))


def test_each_branch_has_a_cache_of_its_own() -> None:
    """In a ragged batch: the blank branch stores mask tokens for each row's own prompt and nothing else."""
    model = network(torch.float64)
    canvas = canvas_of((5, 4), (2, 6), spec=model.spec)
    slots = torch.arange(9).expand(2, 9)
    tokens = ids(2, 9)
    guided, masked = Guided(model, 1.0), tokens.clone()
    cache = guided.new_cache(canvas)
    guided(model.embed(tokens), slots, cache, None)
    masked[0, :5] = masked[1, :2] = 96
    for branch, shown in ((cache.given, tokens), (cache.blank, masked)):
        alone = model.new_cache(canvas)
        model(model.embed(shown), slots, alone, None)
        assert all(torch.equal(a, b) for a, b in zip(branch.keys, alone.keys, strict=True))


def test_without_scale_guidance_is_no_guidance() -> None:
    model = network(torch.float64)
    request = Request("a", (5, 6, 7), 12)
    for iteration in (Blockwise(block_length=4), Smooth(block_length=4)):
        (plain,) = decode(model, [request], Recipe(Threshold(threshold=0.5), iteration, DUAL))
        guided = Guided(model, 0.0)
        (wrapped,) = decode(guided, [request], Recipe(Threshold(threshold=0.5), iteration, DUAL))
        assert (wrapped.tokens, wrapped.trace) == (plain.tokens, plain.trace)
