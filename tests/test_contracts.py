"""Every decoding x iteration x cache file keeps the contracts: alone or in a ragged batch, in any order, unrolled or not.

float64, so that equality is exact; the model is random, its end-of-text token likely enough to stop some rows early.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import conf
from dinfer.decoding import BlockView, Choice, Steps, Threshold
from dinfer.loop import Decoder, Finished, decode
from dinfer.models import Backbone, load_model
from dinfer.models.attention import KVCache
from dinfer.models.random import write_checkpoint
from dinfer.types import Recipe, Request
from tests.parts import compose_part

CONF = Path(conf.__file__).parent
FILES = {group: sorted(p.stem for p in (CONF / group).glob("*.yaml")) for group in ("decoding", "iteration", "cache")}
COMBINATIONS = list(itertools.product(*FILES.values()))
SMALL = {"iteration": {"block_length": 4}, "vicinity": {"before": 3, "after": 2}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = write_checkpoint(tmp_path_factory.mktemp("model"), seed=8, hidden=32, ffn=48, scale=4.0, gain=3.5, eos_bias=10.0)
    return load_model(folder, dtype="float64")


REQUESTS = [
    Request("long", tuple(range(65, 78)), 12, seed=1),
    Request("short", (90, 257, 92), 9, seed=2),
    Request("middle", tuple(range(100, 107)), 12, seed=3),
]


def recipe_of(decoding: str, iteration: str, cache: str, **changes: float) -> Recipe:
    return Recipe(
        compose_part("decoding", decoding, changes),
        compose_part("iteration", iteration, SMALL["iteration"]),
        compose_part("cache", cache, SMALL.get(cache, {})),
    )


def answers(model: Backbone, requests: list[Request], recipe: Recipe, **engine: int) -> dict[str, Finished]:
    return {requests[f.row].id: f for f in decode(model, requests, recipe, **engine)}


def tokens(finished: dict[str, Finished]) -> dict[str, tuple[int, ...]]:
    return {name: f.tokens for name, f in finished.items()}


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return recipe_of(*request.param)


@pytest.fixture(scope="module")
def alone(model: Backbone, recipe: Recipe) -> dict[str, Finished]:
    return {r.id: f for r in REQUESTS for f in decode(model, [r], recipe)}


def test_a_ragged_batch_gives_each_row_its_own_answer(model: Backbone, recipe: Recipe, alone: dict[str, Finished]) -> None:
    for lockstep in (True, False):
        together = answers(model, REQUESTS, recipe, lockstep=lockstep)
        assert tokens(together) == tokens(alone)
        assert {n: f.trace for n, f in together.items()} == {n: f.trace for n, f in alone.items()}


def test_order_and_unrolling_change_nothing(model: Backbone, recipe: Recipe, alone: dict[str, Finished]) -> None:
    for sync_every, lockstep in ((3, True), (7, False)):
        again = answers(model, REQUESTS[::-1], recipe, sync_every=sync_every, lockstep=lockstep)
        assert {n: (f.tokens, f.trace) for n, f in again.items()} == {n: (f.tokens, f.trace) for n, f in alone.items()}


def test_every_step_makes_progress_and_nothing_stays_masked(recipe: Recipe, alone: dict[str, Finished]) -> None:
    for request in REQUESTS:
        finished = alone[request.id]
        settled = recipe.iteration.observes
        assert settled or all(n > 0 for n in finished.trace.committed)
        assert finished.trace.steps <= 2 * request.max_tokens
        decoded = sum(finished.trace.committed)
        assert finished.tokens[:decoded].count(257) == 0
        assert decoded == request.max_tokens or 256 in finished.tokens[:decoded]


def test_the_prompt_is_never_changed(model: Backbone, recipe: Recipe) -> None:
    decoder = Decoder(model, REQUESTS, recipe, torch.device("cpu"), lockstep=True)
    list(decoder.run())
    for row, request in enumerate(REQUESTS):
        assert tuple(decoder.canvas.tokens[row, : len(request.prompt)].tolist()) == request.prompt


def test_no_key_is_read_before_it_is_written(model: Backbone, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots start as NaN: reading one would poison every later hidden state."""
    plain = KVCache.allocate.__func__  # type: ignore[attr-defined]

    def poisoned(cls: type[KVCache], *args: object) -> KVCache:
        cache = plain(cls, *args)
        for layer in (*cache.keys, *cache.values):
            layer.fill_(torch.nan)
        return cache

    expected = answers(model, REQUESTS[:1], recipe)
    monkeypatch.setattr(KVCache, "allocate", classmethod(poisoned))
    assert tokens(answers(model, REQUESTS[:1], recipe)) == tokens(expected)


def test_nothing_is_carried_from_one_call_to_the_next(model: Backbone, recipe: Recipe, alone: dict[str, Finished]) -> None:
    decode_first = answers(model, REQUESTS[1:], recipe)
    assert decode_first["short"].tokens == alone["short"].tokens
    assert answers(model, REQUESTS[1:], recipe)["middle"].tokens == alone["middle"].tokens


@pytest.mark.parametrize("decoding", FILES["decoding"])
def test_sampling_is_the_same_in_any_batch_and_differs_by_seed(model: Backbone, decoding: str) -> None:
    recipe = recipe_of(decoding, "blockwise", "dual", temperature=1.0)
    single = {r.id: f.tokens for r in REQUESTS for f in decode(model, [r], recipe)}
    assert tokens(answers(model, REQUESTS, recipe, lockstep=False, sync_every=4)) == single
    reseeded = [Request(r.id, r.prompt, r.max_tokens, r.seed + 100) for r in REQUESTS]
    assert tokens(answers(model, reseeded, recipe)) != single


@pytest.mark.parametrize("decoding", FILES["decoding"])
@pytest.mark.parametrize("rule", ["logits_eos_inf", "confidence_eos_eot_inf"])
def test_end_of_sequence_rules_act_and_keep_rows_apart(model: Backbone, decoding: str, rule: str) -> None:
    ruled = recipe_of(decoding, "blockwise", "none", **{rule: True})
    single = {r.id: f.tokens for r in REQUESTS for f in decode(model, [r], ruled)}
    assert tokens(answers(model, REQUESTS, ruled)) == single
    plain = tokens(answers(model, REQUESTS, recipe_of(decoding, "blockwise", "none")))
    assert any(256 in answer for answer in plain.values())
    if rule == "logits_eos_inf":
        assert not any(256 in answer for answer in single.values())


def test_guidance_keeps_rows_apart_and_matters(model: Backbone) -> None:
    plain, guided = (
        Recipe(Threshold(), compose_part("iteration", "blockwise", SMALL["iteration"]), compose_part("cache", "dual", {}), g)
        for g in (0.0, 1.5)
    )
    single = {r.id: f.tokens for r in REQUESTS for f in decode(model, [r], guided)}
    assert tokens(answers(model, REQUESTS, guided, sync_every=2)) == single
    assert tokens(answers(model, REQUESTS, plain)) != single


def test_a_window_over_everything_equals_no_cache(model: Backbone) -> None:
    none = recipe_of("threshold", "blockwise", "none")
    wide = Recipe(none.decoding, none.iteration, compose_part("cache", "vicinity", {"before": 99, "after": 99}))
    refreshed = Recipe(none.decoding, none.iteration, compose_part("cache", "dual", {"warmup": 10_000}))
    expected = tokens(answers(model, REQUESTS, none))
    assert tokens(answers(model, REQUESTS, wide)) == expected
    assert tokens(answers(model, REQUESTS, refreshed)) == expected


def test_blocks_aligned_to_columns_start_before_the_prompt_ends(model: Backbone) -> None:
    starts: list[int] = []

    class Watching(Steps):
        def select(self, view: BlockView, memo: object) -> Choice:
            starts.append(int((view.columns - view.offset)[0, 0]))
            return super().select(view, memo)

    blocks = compose_part("iteration", "blockwise", {"block_length": 4, "align": True, "early_stop": False})
    (finished,) = decode(model, REQUESTS[:1], Recipe(Watching(), blocks, compose_part("cache", "none", {})))
    assert sorted(set(starts)) == [12, 16, 20, 24]
    assert len(finished.tokens) == 12


def test_early_stop_off_fills_the_canvas(model: Backbone) -> None:
    filling = compose_part("iteration", "blockwise", {"block_length": 4, "early_stop": False})
    stopping = compose_part("iteration", "blockwise", {"block_length": 4})
    cache = compose_part("cache", "none", {})
    full = answers(model, REQUESTS, Recipe(Threshold(), filling, cache))
    assert all(sum(full[r.id].trace.committed) == r.max_tokens for r in REQUESTS)
    short = answers(model, REQUESTS, Recipe(Threshold(), stopping, cache))
    assert any(sum(short[r.id].trace.committed) < r.max_tokens for r in REQUESTS)
    for request in REQUESTS:
        seen = sum(short[request.id].trace.committed)
        assert short[request.id].tokens[:seen] == full[request.id].tokens[:seen]
