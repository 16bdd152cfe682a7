"""The loop: what it makes logits of, what it waits for, and that no part can break its promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dinfer.cache import Plan, Window
from dinfer.canvas import Canvas, compact
from dinfer.decoding import BlockView, Choice, Credit, Factor, Hierarchy, Sampled, Steps, Threshold
from dinfer.iteration import Blockwise, Smooth
from dinfer.iteration.smooth import CHUNK
from dinfer.loop import decode
from dinfer.types import CachePolicy, IterationManager, ModelSpec, Recipe, Request
from tests.networks import network
from tests.stubs import MASK, SPEC, Scripted, canvas_of, sure

NONE, DUAL = Window(), Window(before=0, after=0)
CACHES = [NONE, Window(before=0, after=None), DUAL, Window(before=5, after=5)]
#: 150 new tokens: with smoothing and no cache every forward observes more columns than are held at once.
REQUESTS = [Request("a", (1, 2, 3), 150), Request("b", (2,), 150), Request("c", (1, 2), 150)]


def widths(iteration: IterationManager, cache: CachePolicy, decoding: Any = None) -> tuple[list[int], Scripted]:
    script = sure([i % 9 for i in range(150)], [0.3 + 0.004 * i for i in range(150)])
    model = Scripted({1: script, 2: script.flip(0)})
    finished = list(decode(model, REQUESTS, Recipe(decoding or Steps(tokens_per_step=4), iteration, cache)))
    assert sum(sum(f.trace.committed) for f in finished) == 450
    return model.widths, model


@pytest.mark.parametrize("cache", CACHES, ids=str)
def test_logits_are_made_of_undecided_columns_of_the_block_only(cache: CachePolicy) -> None:
    made, model = widths(Blockwise(block_length=16), cache)
    # Per block 16, 12, 8 and 4 columns of each of the three rows; the last block holds 6 masks.
    assert made == [3 * k for k in (16, 12, 8, 4)] * 9 + [3 * 6, 3 * 2]
    assert len(model.asked) == len(made)


@pytest.mark.parametrize("cache", CACHES, ids=str)
def test_smoothing_never_holds_more_logits_than_its_chunk(cache: CachePolicy) -> None:
    made, model = widths(Smooth(block_length=16, threshold_decay=1.0), cache)
    assert max(made) == 3 * (CHUNK if any(len(call[0]) > CHUNK for call in model.asked) else 16)
    assert len(made) > len(model.asked)


class Largest(TorchDispatchMode):
    """The most columns for which anything as wide as the vocabulary was computed at a time; views do not count."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab, self.columns = vocab, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, Tensor) and t.dim() > 1 and t.shape[-1] == self.vocab and not t._is_view():
                self.columns = max(self.columns, t.numel() // self.vocab)
        return out


@pytest.mark.parametrize(
    "decoding", [Steps(temperature=1.0), Threshold(threshold=0.5), Factor(), Hierarchy(), Credit(inner=Threshold())]
)
@pytest.mark.parametrize("guidance", [0.0, 1.0])
def test_nothing_of_the_vocabulary_is_wider_than_the_block(decoding: Any, guidance: float) -> None:
    model = network(torch.float64)
    requests = [replace(r, max_tokens=24) for r in REQUESTS]
    with Largest(97) as largest:
        list(decode(model, requests, Recipe(decoding, Blockwise(block_length=4, early_stop=False), NONE, guidance)))
    assert largest.columns == 3 * 4


def test_smoothing_holds_a_chunk_of_beliefs_in_a_network() -> None:
    model = network(torch.float64)
    with Largest(97) as largest:
        list(decode(model, REQUESTS, Recipe(Steps(tokens_per_step=4), Smooth(block_length=8, early_stop=False), NONE)))
    assert largest.columns == 3 * CHUNK


def test_unrolling_waits_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host looks at numbers on the device through `tolist`."""
    model, waits = network(torch.float64), [0]
    plain: Callable[[Tensor], Any] = Tensor.tolist

    def counted(self: Tensor) -> Any:
        waits[0] += 1
        return plain(self)

    monkeypatch.setattr(Tensor, "tolist", counted)
    counts = []
    for sync_every in (1, 4, 16):
        waits[0] = 0
        recipe = Recipe(Steps(), Blockwise(block_length=16, early_stop=False), DUAL)
        (finished,) = decode(model, [Request("a", (1, 2, 3), 64)], recipe, sync_every=sync_every)
        assert finished.trace.steps == 64
        counts.append(waits[0])
    assert 64 <= counts[0] <= 80  # each step, and a little more where a block opens or the row ends
    assert counts[1] < 0.6 * counts[0]
    assert counts[2] < 0.4 * counts[0]


def test_sync_every_must_be_positive() -> None:
    with pytest.raises(ValueError, match="sync_every must be at least 1, got 0"):
        decode(network(), REQUESTS, Recipe(Steps(), Blockwise(), NONE), sync_every=0)


@dataclass(frozen=True)
class Nothing:
    """A policy that never asks for anything."""

    def plan(self, canvas: Canvas, spec: ModelSpec) -> Plan:
        return Plan(torch.zeros_like(canvas.masked()), torch.zeros_like(canvas.live))


def test_the_block_is_recomputed_whatever_the_policy_says() -> None:
    model = Scripted({1: sure([4, 5, 6, 7], 0.9)})
    (finished,) = decode(model, [Request("a", (1, 2), 4)], Recipe(Threshold(), Blockwise(block_length=2), Nothing()))
    assert finished.tokens == (4, 5, 6, 7)
    assert model.asked == [[[2, 3]], [[4, 5]]]


@dataclass(frozen=True, kw_only=True)
class Greedy(Sampled):
    """Accepts everything, padding included."""

    def select(self, view: BlockView, memo: Any) -> Choice:
        return Choice(view.logits.argmax(-1), torch.ones_like(view.eligible))


def test_no_strategy_can_write_outside_the_masks_of_a_block() -> None:
    scripts = {1: sure([4] * 8), 2: sure([5] * 5)}
    requests = [Request("a", (1, 2, 3), 8), Request("b", (2, MASK), 5)]
    finished = {f.row: f for f in decode(Scripted(scripts), requests, Recipe(Greedy(), Blockwise(block_length=4), DUAL))}
    assert finished[0].tokens == (4,) * 8
    assert finished[1].tokens == (5,) * 5
    assert finished[0].trace.committed == (4, 4)
    assert finished[1].trace.committed == (4, 1)


@dataclass(frozen=True, kw_only=True)
class Noting(Steps):
    """Steps that checks what the loop promises about a view."""

    def select(self, view: BlockView, memo: Any) -> Choice:
        assert (view.logits[..., MASK] == -torch.inf).all()
        assert torch.isfinite(view.mask_logit).all()
        assert view.logits.dtype in (torch.float32, torch.float64)
        for columns, offset, eligible in zip(view.columns, view.offset, view.eligible, strict=True):
            real = columns[eligible]
            assert torch.equal(real, real.unique())  # left to right, each once
            assert ((offset[eligible] >= 0) & (offset[eligible] < 4)).all()
            assert not eligible[int(eligible.sum()) :].any()  # padding comes last
        return super().select(view, memo)


def test_a_view_is_what_it_says() -> None:
    model = network()
    model.spec = replace(model.spec, mask_id=MASK)
    requests = [replace(r, max_tokens=10 + i) for i, r in enumerate(REQUESTS)]
    for align in (False, True):
        iteration = Blockwise(block_length=4, early_stop=False, align=align)
        assert len(list(decode(model, requests, Recipe(Noting(), iteration, DUAL), lockstep=False))) == 3


def test_logits_of_half_precision_are_judged_in_float32() -> None:
    model = network().to(torch.bfloat16)
    model.spec = replace(model.spec, mask_id=MASK)
    recipe = Recipe(Noting(), Blockwise(block_length=4), DUAL)
    (finished,) = decode(model, [Request("a", (1, 2), 8)], recipe)
    assert len(finished.tokens) == 8


@pytest.mark.parametrize("cache", [NONE, DUAL], ids=["none", "dual"])
def test_shifted_logits_score_the_column_after_them(cache: Window) -> None:
    """The script speaks one column early; its first word stands on the prompt's last column."""
    spoken = sure([9, 5, 6, 7, 8, 1], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])

    class Early(Scripted):
        def new_cache(self, canvas: Canvas) -> Any:
            return super().new_cache(replace(canvas, prompt=canvas.prompt - 1))

    model = Early({1: spoken}, replace(SPEC, shift=1))
    (finished,) = decode(model, [Request("a", (1, 2, 3), 6)], Recipe(Steps(), Blockwise(block_length=3), cache))
    assert finished.tokens == (9, 5, 6, 7, 8, 1)
    if cache is DUAL:
        assert [call[0] for call in model.asked] == [[*range(9)], *[[2, 3, 4, 5]] * 2, [*range(9)], *[[5, 6, 7, 8]] * 2]


def test_columns_are_packed_in_order() -> None:
    chosen = torch.tensor([[False, True, True, False, True], [False, False, False, True, False], [False] * 5])
    slots, rank = compact(chosen, 4)
    assert slots.tolist() == [[1, 2, 4, 5], [3, 5, 5, 5], [5, 5, 5, 5]]
    assert [rank[row][chosen[row]].tolist() for row in range(3)] == [[0, 1, 2], [0], []]
    assert compact(chosen, 3)[0].tolist() == [[1, 2, 4], [3, 5, 5], [5, 5, 5]]


def test_a_canvas_begins_masked_and_copies_do_not_share_where_they_stand() -> None:
    canvas = canvas_of((3, 4), (1, 2))
    assert canvas.tokens.tolist() == [[1, 1, 1, MASK, MASK, MASK, MASK, MASK], [1, *[MASK] * 7]]
    assert canvas.masked().sum(1).tolist() == [4, 2]
    assert (canvas.rows, canvas.columns, canvas.uniform) == (2, 7, False)
    assert canvas_of((3, 4), (2, 5)).uniform
    twin = canvas.copy()
    twin.tick(torch.tensor([True, False]), torch.tensor([True, False]))
    assert (twin.age.tolist(), canvas.age.tolist()) == ([1, 0], [0, 0])
    assert (twin.fresh.tolist(), canvas.fresh.tolist()) == ([True, False], [False, False])
    with pytest.raises(ValueError, match=r"4000 \+ 200 \(request '0'\)"):
        canvas_of((4000, 200))
