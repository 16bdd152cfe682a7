"""Which columns each cache setting recomputes, step by step; what stays in the cache untouched; when a cache is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from dinfer.cache import Plan, Window
from dinfer.canvas import Canvas
from dinfer.decoding import Steps, Threshold
from dinfer.iteration import Blockwise, Smooth
from dinfer.loop import decode
from dinfer.models import Backbone, load_model
from dinfer.models.attention import KVCache
from dinfer.models.random import write_checkpoint
from dinfer.types import CachePolicy, IterationManager, ModelSpec, Recipe, Request
from tests.stubs import SPEC, Scripted, canvas_of, sure

NONE = Window()
PREFIX = Window(before=0, after=None)
DUAL = Window(before=0, after=0)
CACHING = [
    PREFIX,
    DUAL,
    Window(before=3, after=2),
    Window(before=None, after=0),
    Window(before=0, after=0, refresh_every=2),
    Window(before=1, after=1, warmup=3),
]


def asked(cache: CachePolicy, *, prompt: int = 3, answer: int = 8, block: int = 4, tokens: int = 1) -> list[range]:
    """The columns recomputed at each step of one row that takes so many tokens a step."""
    model = Scripted({1: sure([4] * answer, [0.9 - 0.05 * i for i in range(answer)])})
    request = Request("a", (1,) * prompt, answer)
    (finished,) = decode(model, [request], Recipe(Steps(tokens_per_step=tokens), Blockwise(block_length=block), cache))
    assert finished.trace.queried == sum(len(row) for (row,) in model.asked)
    seen = [range(row[0], row[-1] + 1) for (row,) in model.asked]
    assert [list(columns) for columns in seen] == [row for (row,) in model.asked]
    return seen


def test_without_a_cache_everything_is_recomputed() -> None:
    assert asked(NONE) == [range(11)] * 8


def test_prefix_recomputes_the_block_and_all_after_it() -> None:
    assert asked(PREFIX) == [range(11), *[range(3, 11)] * 3, range(11), *[range(7, 11)] * 3]


def test_dual_recomputes_the_block() -> None:
    assert asked(DUAL) == [range(11), *[range(3, 7)] * 3, range(11), *[range(7, 11)] * 3]


def test_vicinity_looks_before_and_after_within_the_row() -> None:
    near = Window(before=2, after=3)
    assert asked(near, answer=12) == [
        *[range(15), *[range(1, 10)] * 3],
        *[range(15), *[range(5, 14)] * 3],
        *[range(15), *[range(9, 15)] * 3],
    ]
    assert asked(Window(before=100, after=1)) == [range(11), *[range(8)] * 3, range(11), *[range(11)] * 3]
    assert asked(Window(before=None, after=0)) == [range(11), *[range(7)] * 3, range(11), *[range(11)] * 3]


def steps_of(cache: Window, *, answer: int = 8, block: int = 8, tokens: int = 1) -> str:
    """The same from a canvas moved by hand: R, W or F for each step, a space where a block opens."""
    canvas, iteration, text = canvas_of((3, answer)), Blockwise(block_length=block), ""
    while True:
        opened = int(canvas.start[0]), int(canvas.stop[0])
        iteration.advance(canvas, SPEC, False)
        if not canvas.live[0]:
            return text
        if text and opened != (int(canvas.start[0]), int(canvas.stop[0])):
            text += " "
        plan = cache.plan(canvas, SPEC)
        whole = bool(plan.columns[0].all())
        text += "R" if plan.refresh[0] else "F" if whole else "W"
        assert whole or not plan.refresh[0]
        left = canvas.masked()[0].nonzero().flatten()
        canvas.tokens[0, left[left < canvas.stop[0]][:tokens]] = 4
        canvas.tick(torch.tensor([True]), plan.refresh)


@pytest.mark.parametrize(
    ("cache", "row", "expected"),
    [
        (NONE, {}, "FFFFFFFF"),
        (DUAL, {}, "RWWWWWWW"),
        (DUAL, {"block": 4}, "RWWW RWWW"),
        (DUAL, {"block": 4, "tokens": 4}, "R R"),
        (PREFIX, {"block": 4, "tokens": 2}, "RW RW"),
        (Window(before=0, after=0, refresh_every=1), {}, "RWRWRWRW"),
        (Window(before=0, after=0, refresh_every=2), {}, "RWWRWWRW"),
        (Window(before=0, after=0, refresh_every=3), {}, "RWWWRWWW"),
        (Window(before=0, after=0, refresh_every=99), {}, "RWWWWWWW"),
        # Rounds count over the whole answer, and a refresh that fills a block is a round of its own.
        (Window(before=0, after=0, refresh_every=2), {"answer": 10, "block": 5}, "RWWRW RWRWW"),
        (Window(before=0, after=0, refresh_every=2), {"block": 4}, "RWWR RWRW"),
        (Window(before=0, after=0, refresh_every=1), {"answer": 6, "block": 3}, "RWR RWR"),
        (Window(before=0, after=0, warmup=2), {"answer": 12, "block": 4}, "FFRW RWWW RWWW"),
        (Window(before=0, after=0, warmup=4), {"answer": 12, "block": 4}, "FFFF RWRW RWWW"),
        (Window(before=0, after=0, warmup=5), {"answer": 12, "block": 4}, "FFFF FRWR RWWW"),
        (Window(before=0, after=0, warmup=6), {"answer": 12, "block": 4}, "FFFF FFRW RWWW"),
        (Window(before=0, after=0, warmup=7), {"answer": 12, "block": 4}, "FFFF FFFR RWWW"),
        (Window(before=0, after=0, warmup=99), {"answer": 12, "block": 4}, "FFFF FFFF FFFF"),
        (Window(before=0, after=0, warmup=2, refresh_every=2), {"answer": 10, "block": 10}, "FFRWWRWWRW"),
        (Window(before=0, after=0, warmup=3, refresh_every=2), {"answer": 10, "block": 10}, "FFFRWWRWWR"),
    ],
    ids=str,
)
def test_when_the_whole_row_is_recomputed(cache: Window, row: dict[str, int], expected: str) -> None:
    assert steps_of(cache, **row) == expected


def test_rows_of_a_batch_are_planned_apart() -> None:
    canvas = canvas_of((3, 8), (5, 4))
    Blockwise(block_length=4).advance(canvas, SPEC, False)
    window = Window(before=1, after=2)
    assert window.plan(canvas, SPEC).refresh.tolist() == [True, True]
    assert window.plan(canvas, SPEC).columns.sum(1).tolist() == [11, 9]
    canvas.tick(torch.tensor([False, True]), torch.tensor([False, True]))
    plan = window.plan(canvas, SPEC)
    assert plan.refresh.tolist() == [True, False]
    assert plan.columns[1].nonzero().flatten().tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"before": -1}, "before"),
        ({"after": -2}, "after"),
        ({"before": 0, "warmup": -1}, "warmup"),
        ({"before": 0, "refresh_every": 0}, "refresh_every"),
        ({"refresh_every": 4}, "refresh_every"),
        ({"warmup": 2}, "warmup"),
    ],
)
def test_impossible_windows_are_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Window(**options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = write_checkpoint(
        tmp_path_factory.mktemp("model"), seed=5, hidden=32, ffn=48, layers=3, scale=4.0, gain=3.0, eos_bias=6.0
    )
    return load_model(folder, dtype="float64")


REQUESTS = [
    Request("long", tuple(range(65, 80)), 16, seed=1),
    Request("short", (90, 257, 92), 11, seed=2),
    Request("middle", tuple(range(100, 108)), 16, seed=3),
]


def answers(model: Any, cache: CachePolicy, iteration: IterationManager | None = None) -> dict[str, tuple[Any, ...]]:
    recipe = Recipe(Threshold(threshold=0.7), iteration or Blockwise(block_length=4), cache)
    return {REQUESTS[f.row].id: (f.tokens, f.trace.committed) for f in decode(model, REQUESTS, recipe)}


class Watched:
    """A network whose cache is compared before and after every call."""

    def __init__(self, model: Backbone) -> None:
        self.model, self.spec = model, model.spec
        self.embed, self.blend, self.logits, self.new_cache = model.embed, model.blend, model.logits, model.new_cache
        self.windows = 0

    @staticmethod
    def stored(cache: KVCache) -> list[Tensor]:
        """Everything stored, column by column: [B, L + 1, …]."""
        return [t.movedim(t.shape.index(cache.length + 1), 1) for t in (*cache.keys, *cache.values)]

    def __call__(self, x: Tensor, slots: Tensor, cache: KVCache, visible: Any, want: Tensor | None = None) -> Tensor:
        before = [t.clone() for t in self.stored(cache)]
        rows, length = len(slots), cache.length
        queried = torch.zeros(rows, length + 1, dtype=torch.bool).scatter_(1, slots, True)
        for t in self.stored(cache):
            t[queried] = torch.nan  # what is queried now must not be read as it was
        hidden = self.model(x, slots, cache, visible, want)
        kept = ~queried[:, :length]
        self.windows += int(kept.any())
        for old, new in zip(before, self.stored(cache), strict=True):
            assert torch.equal(old[:, :length][kept], new[:, :length][kept])
            assert torch.isfinite(new[:, :length]).all()
        return hidden


@pytest.mark.parametrize("cache", CACHING, ids=str)
@pytest.mark.parametrize("iteration", [Blockwise(block_length=4), Smooth(block_length=4)], ids=["blockwise", "smooth"])
def test_what_is_not_recomputed_stays_bit_for_bit(model: Backbone, cache: Window, iteration: IterationManager) -> None:
    watched = Watched(model)
    assert answers(watched, cache, iteration) == answers(model, cache, iteration)
    assert watched.windows > 3


@dataclass(frozen=True)
class Always:
    """Renews everything at every step."""

    def plan(self, canvas: Canvas, spec: ModelSpec) -> Plan:
        return Plan(canvas.between(torch.zeros_like(canvas.end), canvas.end), torch.ones_like(canvas.live))


def test_a_refresh_at_every_step_equals_no_cache(model: Backbone) -> None:
    assert answers(model, Always()) == answers(model, NONE)
    assert answers(model, Window(before=0, after=0, warmup=99)) == answers(model, NONE)


def test_caches_matter_to_this_model(model: Backbone) -> None:
    """So that the equalities below say something."""
    plain = answers(model, NONE)
    assert all(answers(model, cache) != plain for cache in CACHING)


def test_any_cache_is_exact_when_keys_and_values_depend_on_their_own_token(model: Backbone) -> None:
    """Attention adds nothing but in the last layer, so nothing stored can be out of date."""
    saved = [layer.attn.out.weight.clone() for layer in model.stack]
    try:
        for layer in list(model.stack)[:-1]:
            layer.attn.out.weight.zero_()
        plain = answers(model, NONE)
        assert len({committed for _, committed in plain.values()}) > 1
        for cache in CACHING:
            assert answers(model, cache) == plain
    finally:
        for layer, weight in zip(model.stack, saved, strict=True):
            layer.attn.out.weight.copy_(weight)


def test_any_cache_is_exact_when_attention_is_block_causal(model: Backbone) -> None:
    """Blocks that see only themselves and what is before them: finished ones cannot change, later ones are not seen."""
    spec = model.spec
    try:
        model.spec = ModelSpec(spec.vocab, spec.hidden, spec.mask_id, spec.eos_ids, spec.max_length, block=4)
        aligned = Blockwise(block_length=4, align=True)
        plain = answers(model, NONE, aligned)
        for cache in CACHING:
            assert answers(model, cache, aligned) == plain
    finally:
        model.spec = spec
    assert answers(model, NONE, Blockwise(block_length=4, align=True)) != plain


def test_all_caches_agree_on_the_first_step(model: Backbone) -> None:
    firsts = []
    for cache in (NONE, *CACHING):
        decoded = answers(model, cache, Blockwise(block_length=16))
        firsts.append({name: committed[0] for name, (_, committed) in decoded.items()})
    assert all(first == firsts[0] for first in firsts)


def test_dual_cache_of_a_batch_with_long_blocks(model: Backbone) -> None:
    """Blocks of 32, 256 new tokens, several rows: once a shape mismatch elsewhere."""
    recipe = Recipe(Steps(tokens_per_step=8), Blockwise(block_length=32, early_stop=False), DUAL)
    requests = [Request("a", (65, 66, 67), 256), Request("b", tuple(range(40, 60)), 256)]
    together = {f.row: f.tokens for f in decode(model, requests, recipe)}
    alone = {i: f.tokens for i, r in enumerate(requests) for f in decode(model, [r], recipe)}
    assert together == alone
    assert all(len(tokens) == 256 for tokens in together.values())
