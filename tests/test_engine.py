"""The engine: results as they come, batches, refusals, and every number of a result counted by hand."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dinfer.cache import Window
from dinfer.check import check_recipe
from dinfer.decoding import Credit, Steps, Threshold
from dinfer.engine import Engine
from dinfer.iteration import Blockwise, Smooth
from dinfer.models import Backbone
from dinfer.types import CachePolicy, GenerationResult, Recipe, Request, Trace
from tests.networks import network
from tests.stubs import EOS, EOT, MASK, SPEC, Scripted, sure

NONE, PREFIX, DUAL = Window(), Window(before=0, after=None), Window(before=0, after=0)
FOUR = Blockwise(block_length=4)


def answer(text: int, length: int, end: int = EOS) -> Tensor:
    """A script of `text` plain tokens and ends after that, the ends as sure as the text."""
    script = sure([4] * length, [0.9 - 0.001 * i for i in range(length)])
    script[text:] = -torch.inf
    script[text:, end] = 0.0
    return script


def serve(
    scripts: dict[int, Tensor], requests: Sequence[Request], recipe: Recipe, **settings: Any
) -> tuple[dict[str, GenerationResult], Scripted]:
    model = Scripted(scripts)
    return {r.id: r for r in Engine(model, **settings).generate(requests, recipe)}, model


def test_four_rows_of_ten_to_forty_tokens_are_a_hundred() -> None:
    """The tail of every row is filled with end-of-sequence tokens, which nobody reads."""
    scripts = {k: answer(10 * k, 48) for k in (1, 2, 3, 4)}
    requests = [Request(str(k), (k, 5, 6), 48) for k in scripts]
    for early_stop in (True, False):
        recipe = Recipe(Threshold(threshold=0.5), Blockwise(block_length=8, early_stop=early_stop), NONE)
        results, _ = serve(scripts, requests, recipe, batch_size=4)
        assert [len(results[str(k)].tokens) for k in scripts] == [10, 20, 30, 40]
        assert sum(len(r.tokens) for r in results.values()) == 100
        assert {r.finish for r in results.values()} == {"eos"}
        assert {r.canvas for r in results.values()} == {48}
        assert all(set(r.tokens) == {4} for r in results.values())
        filled = [16, 24, 32, 48] if early_stop else [48] * 4
        assert [results[str(k)].filled for k in scripts] == filled
        assert [results[str(k)].eos for k in scripts] == [n - 10 * k for k, n in zip(scripts, filled, strict=True)]
        assert all(r.filled == sum(r.trace.committed) for r in results.values())


@pytest.mark.parametrize("end", [EOS, EOT])
def test_any_end_ends_the_visible_answer(end: int) -> None:
    (result,) = serve({1: answer(3, 8, end)}, [Request("a", (1,), 8)], Recipe(Steps(), FOUR, NONE))[0].values()
    assert (result.tokens, result.finish, result.eos, result.filled) == ((4, 4, 4), "eos", 1, 4)
    (empty,) = serve({1: answer(0, 8, end)}, [Request("a", (1,), 8)], Recipe(Steps(), FOUR, NONE))[0].values()
    assert (empty.tokens, empty.finish, empty.eos) == ((), "eos", 4)


def test_an_answer_that_fills_its_budget() -> None:
    (result,) = serve({1: answer(8, 8)}, [Request("a", (1,), 8)], Recipe(Steps(), FOUR, NONE))[0].values()
    assert (len(result.tokens), result.finish, result.eos, result.filled, result.canvas) == (8, "length", 0, 8, 8)


def test_a_reply_shorter_than_a_block_still_has_its_numbers() -> None:
    (result,) = serve({1: answer(2, 32)}, [Request("a", (1,), 32)], Recipe(Threshold(), Blockwise(), DUAL))[0].values()
    assert len(result.tokens) == 2
    assert result.seconds > 0
    assert result.trace.forwards == result.trace.steps == result.batch_forwards > 0


@pytest.mark.parametrize(
    ("cache", "kinds", "queried"),
    [
        (NONE, (8, 0, 0), 8 * 11),
        (DUAL, (0, 2, 6), 2 * 11 + 6 * 4),
        (PREFIX, (0, 2, 6), 2 * 11 + 3 * 8 + 3 * 4),
        (Window(before=1, after=1), (0, 2, 6), 2 * 11 + 3 * 6 + 3 * 5),
        (Window(before=0, after=0, warmup=2), (2, 2, 4), 4 * 11 + 4 * 4),
        (Window(before=0, after=0, refresh_every=1), (0, 4, 4), 4 * 11 + 4 * 4),
    ],
    ids=str,
)
def test_forwards_by_kind_and_columns(cache: CachePolicy, kinds: tuple[int, int, int], queried: int) -> None:
    """Three columns of prompt, two blocks of four, a token a step."""
    recipe = Recipe(Steps(), FOUR, cache)
    (result,) = serve({1: answer(8, 8)}, [Request("a", (1, 2, 3), 8)], recipe)[0].values()
    trace = result.trace
    assert trace == Trace((1,) * 8, queried, *kinds)
    assert (trace.steps, trace.forwards) == (8, 8)


def test_rows_of_a_batch_are_counted_apart() -> None:
    """The short row has 2 + 4 columns and one block; the long one 5 + 12 and three. Idle rows count nothing."""
    requests = [Request("long", (1, 2, 3, 4, 5), 12), Request("short", (1, 2), 4)]
    for lockstep in (True, False):
        results, model = serve({1: answer(12, 12)}, requests, Recipe(Steps(), FOUR, DUAL), batch_size=2, lockstep=lockstep)
        assert results["short"].trace == Trace((1,) * 4, 6 + 3 * 4, 0, 1, 3)
        assert results["long"].trace == Trace((1,) * 12, 3 * 17 + 9 * 4, 0, 3, 9)
        assert (results["short"].batch_forwards, results["long"].batch_forwards) == (4, 12)
        assert len(model.asked) == 12
        assert sum(len(row) for call in model.asked for row in call) == sum(r.trace.queried for r in results.values())
        assert [r.rows for r in results.values()] == [2, 2]


def test_lockstep_saves_forwards_of_the_batch_but_not_of_a_row() -> None:
    """Two rows whose blocks take 4 and 1 steps, and then 1 and 4."""
    uneven = sure([4] * 8, [0.9, 0.8, 0.7, 0.6] + [0.99] * 4)
    scripts = {1: uneven, 2: uneven.roll(4, 0)}
    requests = [Request("a", (1,), 8), Request("b", (2,), 8)]
    recipe = Recipe(Threshold(threshold=0.95), FOUR, DUAL)
    apart, locked = (serve(scripts, requests, recipe, batch_size=2, lockstep=flag)[0] for flag in (False, True))
    assert {k: r.trace for k, r in apart.items()} == {k: r.trace for k, r in locked.items()}
    assert apart["a"].trace.committed == (1, 1, 1, 1, 4)
    assert max(r.batch_forwards for r in apart.values()) == 5
    assert max(r.batch_forwards for r in locked.values()) == 8


def test_results_come_as_soon_as_their_row_is_done() -> None:
    scripts = {1: answer(1, 16), 2: answer(16, 16)}
    requests = [Request("short", (1,), 16), Request("full", (2,), 16), Request("later", (2,), 8)]
    model = Scripted(scripts)
    stream = Engine(model, batch_size=2).generate(requests, Recipe(Steps(), FOUR, NONE))
    first = next(stream)
    assert (first.id, len(model.asked), first.batch_forwards) == ("short", 4, 4)
    second = next(stream)
    assert (second.id, len(model.asked), second.batch) == ("full", 16, 1)
    third = next(stream)
    assert (third.id, len(model.asked), third.batch, third.rows, third.batch_forwards) == ("later", 24, 2, 1, 8)
    assert next(stream, None) is None


def test_batches_go_from_long_to_short_and_are_numbered() -> None:
    requests = [Request(f"r{i}", (1,) * (1 + i % 5), 4 + 4 * (i % 3)) for i in range(11)]
    model = Scripted({1: answer(12, 12)})
    engine = Engine(model, batch_size=4)
    results = list(engine.generate(requests, Recipe(Steps(tokens_per_step=4), FOUR, NONE)))
    assert sorted(r.id for r in results) == sorted(r.id for r in requests)
    length = {r.id: len(r.prompt) + r.max_tokens for r in requests}
    batches = [[length[r.id] for r in results if r.batch == number] for number in (1, 2, 3)]
    assert [len(batch) for batch in batches] == [4, 4, 3]
    assert [r.rows for r in results] == [4] * 8 + [3] * 3
    assert min(batches[0]) >= max(batches[1])
    assert min(batches[1]) >= max(batches[2])
    again = list(engine.generate(requests[:1], Recipe(Steps(), FOUR, NONE)))
    assert again[0].batch == 4


def test_seconds_grow_within_a_batch_and_hold_no_time_of_the_caller() -> None:
    class Slow(Scripted):
        def __call__(self, *arguments: Any, **named: Any) -> Tensor:
            time.sleep(0.01)
            return super().__call__(*arguments, **named)

    model = Slow({k: answer(4 * k - 1, 16) for k in (1, 2, 3)})
    requests = [Request(str(k), (k,), 16) for k in (1, 2, 3)]
    results = []
    started = time.perf_counter()
    for result in Engine(model, batch_size=3).generate(requests, Recipe(Threshold(threshold=0.5), FOUR, NONE)):
        results.append(result)
        time.sleep(0.2)
    whole = time.perf_counter() - started
    assert [r.id for r in results] == ["1", "2", "3"]
    seconds = [r.seconds for r in results]
    assert seconds == sorted(seconds)
    assert [r.batch_forwards for r in results] == [1, 2, 3]
    assert all(s >= 0.01 * r.batch_forwards for s, r in zip(seconds, results, strict=True))
    assert seconds[-1] <= whole - 3 * 0.2


def same_but_for_time(results: dict[str, GenerationResult]) -> dict[str, GenerationResult]:
    return {k: replace(r, seconds=0.0, batch=0, rows=0, batch_forwards=0) for k, r in results.items()}


@pytest.fixture(scope="module")
def model() -> Backbone:
    model = network(torch.float64, seed=3)
    model.head[95] += 0.3 * model.head[96]  # some rows end early
    return model


REQUESTS = [Request(f"r{i}", tuple(range(3 * i, 3 * i + 2 + 3 * (i % 4))), 12 + 4 * (i % 3), seed=i) for i in range(7)]


@pytest.mark.parametrize("iteration", [FOUR, Smooth(block_length=4)], ids=["blockwise", "smooth"])
def test_batch_size_lockstep_and_unrolling_change_no_result(model: Backbone, iteration: Any) -> None:
    recipe = Recipe(Threshold(threshold=0.6, temperature=0.5), iteration, DUAL)
    settings: list[dict[str, Any]] = [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "lockstep": False},
        {"batch_size": 7, "sync_every": 3},
        {"batch_size": 2, "sync_every": 50, "lockstep": False},
    ]
    served = [same_but_for_time({r.id: r for r in Engine(model, **s).generate(REQUESTS, recipe)}) for s in settings]
    assert all(results == served[0] for results in served)
    assert len({r.tokens for r in served[0].values()}) > 3


def test_what_cannot_be_served_is_refused_before_anything_runs() -> None:
    model = Scripted({1: answer(4, 4)}, replace(SPEC, max_length=20))
    engine = Engine(model, batch_size=2)
    recipe = Recipe(Steps(), FOUR, NONE)
    fine = Request("fine", (1,), 4)
    with pytest.raises(ValueError, match=r"must fit the model's 20 positions, got 17 \+ 4 \(request 'wide'\)"):
        list(engine.generate([fine, Request("wide", (1,) * 17, 4)], recipe))
    with pytest.raises(ValueError, match="request ids must be unique, 'fine' occurs twice"):
        list(engine.generate([fine, fine], recipe))
    assert model.asked == []
    (result,) = engine.generate([Request("just", (1,) * 16, 4)], recipe)
    assert len(result.tokens) == 4
    assert list(engine.generate([], recipe)) == []


@pytest.mark.parametrize("field", ["batch_size", "sync_every"])
def test_engine_settings_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=f"engine.{field} must be at least 1, got 0"):
        Engine(Scripted({}), **{field: 0})  # type: ignore[arg-type]


def test_requests_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"max_tokens must be at least 1, got 0 \(request 'a'\)"):
        Request("a", (1,), 0)
    with pytest.raises(ValueError, match=r"prompt must hold at least one token, got none \(request 'b'\)"):
        Request("b", (), 4)
    for guidance in (-0.5, math.nan):
        with pytest.raises(ValueError, match="guidance must be at least 0"):
            Recipe(Steps(), FOUR, NONE, guidance)


@pytest.mark.parametrize(
    ("recipe", "max_tokens", "message"),
    [
        (Recipe(Steps(), FOUR, NONE), 0, "max_tokens must be at least 1, got 0"),
        (Recipe(Steps(), FOUR, NONE), 4096, "max_tokens must be below the model's 4096 positions, got 4096"),
        (Recipe(Steps(), Blockwise(block_length=32), NONE), 16, "iteration.block_length .* max_tokens = 16, got 32"),
        (Recipe(Steps(tokens_per_step=5), FOUR, NONE), 8, "decoding.tokens_per_step .* iteration.block_length = 4, got 5"),
        (Recipe(Steps(tokens_per_step=None, steps_per_block=6), FOUR, NONE), 8, "decoding.steps_per_block .* = 4, got 6"),
        (Recipe(Credit(inner=Steps(tokens_per_step=5)), FOUR, NONE), 8, "decoding.tokens_per_step .* = 4, got 5"),
    ],
)
def test_recipes_that_contradict_themselves(recipe: Recipe, max_tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_recipe(recipe, SPEC, max_tokens)
    check_recipe(Recipe(Credit(inner=Steps(tokens_per_step=4)), FOUR, NONE), SPEC, 8)


def test_warming_up_leaves_no_trace() -> None:
    model = Scripted({1: answer(4, 4)})
    engine = Engine(model, batch_size=2)
    recipe = Recipe(Steps(), FOUR, NONE)
    requests = [Request(str(i), (1,) * i, 4) for i in (1, 2, 3, 4, 5)]
    assert engine.warm_up(requests, recipe) == 2
    assert [len(call) for call in model.asked] == [2] * 4 + [1] * 4  # the widest batch and the narrowest
    assert engine.warm_up(requests[:1], recipe) == 1
    assert engine.warm_up([], recipe) == 0
    assert next(iter(engine.generate(requests, recipe))).batch == 1


def test_what_a_record_must_state(model: Backbone) -> None:
    facts = Engine(model).info()
    assert facts["dtype"] == "float64"
    assert facts["device"] == "cpu"
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert facts["kv_bytes_per_column"] == 2 * 2 * 48 * 8  # keys and values, layers, width, bytes
    assert {"device_name", "threads", "torch", "python"} <= facts.keys()
    assert "parameters" not in Engine(Scripted({})).info()


def test_a_literal_mask_token_in_a_prompt_is_text() -> None:
    """Its id stands in the prompt: it is neither decoded, nor counted, nor taken for the prompt's end."""
    prompt = (1, MASK, 7, MASK)
    for cache in (NONE, DUAL):
        results, model = serve({1: answer(6, 6)}, [Request("a", prompt, 6)], Recipe(Steps(), FOUR, cache))
        assert results["a"].tokens == (4,) * 6
        assert results["a"].trace.committed == (1,) * 6
        assert {int(model.shown[0][0][column].argmax()) for column in (1, 3)} == {MASK}
        assert model.asked[0] == [list(range(10))]
