"""Blocks open, close and stop where they should; smoothing follows its schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dinfer.cache import Window
from dinfer.canvas import Canvas
from dinfer.decoding import BlockView, Choice, Credit, Factor, Hierarchy, Steps, Threshold
from dinfer.iteration import Blockwise, Smooth
from dinfer.loop import decode
from dinfer.models import Backbone, load_model
from dinfer.models.random import write_checkpoint
from dinfer.types import CachePolicy, DecodingStrategy, IterationManager, Recipe, Request
from tests.stubs import EOS, EOT, MASK, SPEC, Scripted, canvas_of, sure

NONE, DUAL = Window(), Window(before=0, after=0)


def bounds(canvas: Canvas) -> list[tuple[int, int]]:
    return list(zip(canvas.start.tolist(), canvas.stop.tolist(), strict=True))


def advance(iteration: Blockwise, canvas: Canvas, lockstep: bool = False) -> list[tuple[int, int]]:
    iteration.advance(canvas, SPEC, lockstep)
    return bounds(canvas)


def fill(canvas: Canvas, row: int, token: int = 1) -> None:
    """Decide all masks of a row's block in one step."""
    first, last = max(int(canvas.start[row]), int(canvas.prompt[row])), int(canvas.stop[row])
    canvas.tokens[row, first:last] = token
    canvas.tick(torch.arange(canvas.rows) == row, torch.zeros(canvas.rows, dtype=torch.bool))


def blocks(iteration: Blockwise, prompt: int, max_tokens: int) -> list[tuple[int, int]]:
    """Every block of one row, filled at once."""
    canvas, seen = canvas_of((prompt, max_tokens)), []
    while advance(iteration, canvas) and canvas.live[0]:
        seen += bounds(canvas)
        fill(canvas, 0)
    return seen


@pytest.mark.parametrize(
    ("iteration", "prompt", "max_tokens", "expected"),
    [
        (Blockwise(block_length=4), 13, 12, [(13, 17), (17, 21), (21, 25)]),
        (Blockwise(block_length=4), 3, 9, [(3, 7), (7, 11), (11, 12)]),
        (Blockwise(block_length=32), 5, 32, [(5, 37)]),
        (Blockwise(block_length=1), 2, 3, [(2, 3), (3, 4), (4, 5)]),
        (Blockwise(block_length=4, align=True), 13, 12, [(12, 16), (16, 20), (20, 24), (24, 25)]),
        (Blockwise(block_length=4, align=True), 12, 8, [(12, 16), (16, 20)]),
        (Blockwise(block_length=8, align=True), 3, 4, [(0, 7)]),
        (Smooth(block_length=4, align=True), 15, 6, [(12, 16), (16, 20), (20, 21)]),
    ],
    ids=str,
)
def test_blocks_tile_the_answer(iteration: Blockwise, prompt: int, max_tokens: int, expected: list[tuple[int, int]]) -> None:
    assert blocks(iteration, prompt, max_tokens) == expected


def test_a_block_stays_open_while_masks_are_left() -> None:
    canvas, iteration = canvas_of((3, 8)), Blockwise(block_length=4)
    assert advance(iteration, canvas) == [(3, 7)]
    canvas.tokens[0, 3:6] = EOS
    assert iteration.moving(canvas, SPEC).tolist() == [True]
    assert advance(iteration, canvas) == [(3, 7)]
    assert canvas.live.tolist() == [True]
    fill(canvas, 0)
    assert iteration.moving(canvas, SPEC).tolist() == [False]
    assert canvas.step.tolist() == [1]
    assert advance(iteration, canvas) == [(7, 11)]
    assert canvas.previous.tolist() == [3]
    assert canvas.step.tolist() == [0]
    assert canvas.age.tolist() == [1]


@pytest.mark.parametrize("token", [EOS, EOT])
@pytest.mark.parametrize("early_stop", [True, False])
def test_any_end_in_a_full_block_stops_the_row(token: int, early_stop: bool) -> None:
    canvas, iteration = canvas_of((3, 8)), Blockwise(block_length=4, early_stop=early_stop)
    advance(iteration, canvas)
    fill(canvas, 0)
    canvas.tokens[0, 5] = token
    advance(iteration, canvas)
    assert canvas.live.tolist() == [not early_stop]


@pytest.mark.parametrize("align", [True, False])
def test_ends_and_masks_in_the_prompt_are_text(align: bool) -> None:
    request = Request("a", (1, EOS, MASK, MASK, EOT, EOS), 6)
    canvas, iteration = Canvas.build([request], SPEC, "cpu"), Blockwise(block_length=4, align=align)
    first = advance(iteration, canvas)
    assert first == [(4, 8) if align else (6, 10)]
    assert canvas.masked().sum() == 6
    fill(canvas, 0)
    advance(iteration, canvas)
    assert canvas.live.tolist() == [True]
    assert tuple(canvas.tokens[0, :6].tolist()) == request.prompt


def test_lockstep_waits_for_all_rows_that_live() -> None:
    for lockstep in (True, False):
        canvas, iteration = canvas_of((2, 8), (5, 8), (3, 4)), Blockwise(block_length=4)
        assert advance(iteration, canvas, lockstep) == [(2, 6), (5, 9), (3, 7)]
        fill(canvas, 0)
        fill(canvas, 2)
        opened = (2, 6) if lockstep else (6, 10)
        assert advance(iteration, canvas, lockstep) == [opened, (5, 9), (3, 7)]
        assert canvas.live.tolist() == [True, True, False]
        fill(canvas, 1)
        assert advance(iteration, canvas, lockstep)[:2] == [(6, 10), (9, 13)]


def test_rows_end_alone_and_come_out_at_once() -> None:
    """Row 1 stops in its first block, row 2 in its second, row 3 fills all three."""
    scripts = {1: sure([4, EOS, 5, 5] * 3), 2: sure([4] * 5 + [EOT] + [4] * 6), 3: sure([4] * 12)}
    for script in scripts.values():
        script[script == -math.inf] = -40.0
    scripts[1][1, EOS] = scripts[2][5, EOT] = 40.0
    requests = [Request(str(key), (key,), 12) for key in (3, 2, 1)]
    recipe = Recipe(Threshold(), Blockwise(block_length=4), NONE)
    finished = list(decode(Scripted(scripts), requests, recipe))
    assert [requests[f.row].id for f in finished] == ["1", "2", "3"]
    assert [f.batch_forwards for f in finished] == [1, 2, 3]
    assert [sum(f.trace.committed) for f in finished] == [4, 8, 12]
    assert finished[0].tokens == (4, EOS, 5, 5) + (MASK,) * 8


@dataclass(frozen=True, kw_only=True)
class Listening(Threshold):
    """Threshold that notes what it is told at every step."""

    floors: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def select(self, view: BlockView, memo: Any) -> Choice:
        self.floors.append(float(view.floor[0]))
        self.starts.append(int((view.columns - view.offset)[0, 0]))
        return super().select(view, memo)


def run(model: Scripted, decoding: DecodingStrategy, iteration: IterationManager, cache: CachePolicy, n: int) -> list[int]:
    (finished,) = decode(model, [Request("a", (1, 2, 3), n)], Recipe(decoding, iteration, cache))
    return list(finished.trace.committed)


def test_the_floor_falls_over_the_whole_answer() -> None:
    """Three columns a block: one is sure, one is taken once the floor is down, one waits for the threshold."""
    listening = Listening(threshold=0.9)
    model = Scripted({1: sure([4] * 8, [0.99, 0.985, 0.975, 0.965, 0.97, 0.93, 0.915, 0.8])})
    committed = run(model, listening, Smooth(block_length=4), NONE, 8)
    assert listening.floors == pytest.approx([1 - 0.02 * age for age in range(len(committed))])
    # floors 1, .98 and .96 take 0.99, then 0.985, then the rest; then .94, .92, .90: 0.97; 0.93; 0.915; and 0.8 at last
    assert committed == [1, 1, 2, 1, 1, 1, 1]
    assert listening.starts == [3, 3, 3, 7, 7, 7, 7]


def test_blockwise_has_no_floor() -> None:
    listening = Listening(threshold=0.5)
    assert run(Scripted({1: sure([4] * 4, 0.6)}), listening, Blockwise(block_length=4), NONE, 4) == [4]
    assert listening.floors == [-math.inf]


def onehot(token: int) -> Tensor:
    return F.one_hot(torch.tensor(token), SPEC.vocab).double()


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [0.15, 0.17, 0.19, 0.21, 0.23, 0.25, 0.27]),
        ({"weight": 0.18}, [0.15, 0.17, 0.18, 0.18, 0.18, 0.18, 0.18]),
        ({"weight": 1.0, "weight_init": 0.5, "weight_growth": 0.25}, [0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"weight": 0.0}, [0.0] * 7),
    ],
)
def test_masks_carry_the_last_belief_with_a_growing_weight(options: dict[str, Any], weights: list[float]) -> None:
    """One token a step, from the left, nothing cached: the belief shown at a step was formed at the one before."""
    chances = [0.9 - 0.1 * i for i in range(8)]
    script = sure([4, 5, 6, 7, 8, 9, 0, 1], chances)
    script[:, MASK] = -1.0  # the mask token is part of the belief
    model = Scripted({1: script})
    committed = run(model, Threshold(threshold=1.0), Smooth(block_length=4, **options), NONE, 8)
    assert committed == [1] * 8
    beliefs = script.softmax(-1)
    for step, (shown,) in enumerate(model.shown):
        for column in range(11):
            place = column - 3
            if place < 0:
                expected = onehot((1, 2, 3)[column])
            elif place < step:
                expected = onehot((4, 5, 6, 7, 8, 9, 0, 1)[place])
            else:
                expected = onehot(MASK) + (weights[step - 1] * beliefs[place] if step else 0)
            torch.testing.assert_close(shown[column], expected)


def test_belief_outside_the_window_stays_as_it_was_formed() -> None:
    script = sure([4, 5, 6, 7, 8, 9, 0, 1], [0.9 - 0.1 * i for i in range(8)])
    model = Scripted({1: script})
    run(model, Threshold(threshold=1.0), Smooth(block_length=4), DUAL, 8)
    assert [len(shown) for (shown,) in model.shown] == [11, 4, 4, 4, 11, 4, 4, 4]
    beliefs = script.softmax(-1)
    second = model.shown[4][0]  # the refresh of the second block: its beliefs date from the first forward
    for place in range(4, 8):
        torch.testing.assert_close(second[3 + place], onehot(MASK) + 0.15 * beliefs[place])
    third = model.shown[5][0]
    for place in range(5, 8):
        torch.testing.assert_close(third[3 + place], onehot(MASK) + (0.15 + 0.02 * 4) * beliefs[place])


def test_a_mask_id_in_the_prompt_never_carries_a_belief() -> None:
    model = Scripted({1: sure([4] * 4, [0.9, 0.8, 0.7, 0.6])})
    (finished,) = decode(model, [Request("a", (1, MASK, 3), 4)], Recipe(Steps(), Smooth(block_length=4), NONE))
    assert finished.tokens == (4, 4, 4, 4)
    assert all(torch.equal(shown[1], onehot(MASK)) for (shown,) in model.shown)
    assert len(model.shown) == 4


def test_a_refresh_that_fills_a_block_is_followed_by_one_window_step() -> None:
    model = Scripted({1: sure([4] * 12, 0.9)})  # equally sure: a block is filled at once, whatever the floor
    assert run(model, Threshold(), Smooth(block_length=4), DUAL, 12) == [4, 0, 4, 0, 4]
    assert [len(asked) for (asked,) in model.asked] == [15, 4, 15, 4, 15]
    assert run(model, Threshold(), Smooth(block_length=4), NONE, 12) == [4, 4, 4]
    assert run(model, Threshold(), Blockwise(block_length=4), DUAL, 12) == [4, 4, 4]


@dataclass(frozen=True, kw_only=True)
class Decayed(Threshold):
    """Threshold decoding whose bar falls from 1 to `threshold` by 0.05 a step."""

    def select(self, view: BlockView, memo: Any) -> Choice:
        guess = self.predict(view)
        bar = torch.clamp_min(1.0 - 0.05 * view.age.double(), self.threshold)[:, None]
        best = guess.confidence.amax(-1, keepdim=True) - 1e-5
        return Choice(guess.tokens, (guess.confidence >= torch.minimum(best, bar)) & view.eligible)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder = write_checkpoint(tmp_path_factory.mktemp("model"), seed=3, hidden=32, ffn=48, scale=4.0, gain=3.5, eos_bias=6.0)
    return load_model(folder, dtype="float64")


PROMPTS = [Request("a", tuple(range(65, 80)), 24), Request("b", (70, 257, 71), 17), Request("c", (1, 2, 3, 4, 5), 24)]


@pytest.mark.parametrize("cache", [NONE, Window(before=0, after=0, warmup=10_000)], ids=["none", "always warming up"])
def test_smoothing_without_weight_is_a_decayed_threshold(model: Backbone, cache: Window) -> None:
    smooth = Recipe(Threshold(threshold=0.5), Smooth(block_length=8, weight=0.0, threshold_decay=0.05), cache)
    plain = Recipe(Decayed(threshold=0.5), Blockwise(block_length=8), cache)
    ours = {f.row: f for f in decode(model, PROMPTS, smooth)}
    theirs = {f.row: f for f in decode(model, PROMPTS, plain)}
    assert {r: f.tokens for r, f in ours.items()} == {r: f.tokens for r, f in theirs.items()}
    assert {r: f.trace for r, f in ours.items()} == {r: f.trace for r, f in theirs.items()}
    undecayed = {f.row: f for f in decode(model, PROMPTS, Recipe(Threshold(threshold=0.5), Blockwise(block_length=8), cache))}
    assert any(ours[r].trace.committed != undecayed[r].trace.committed for r in ours)


@pytest.mark.parametrize("decoding", [Steps(tokens_per_step=2), Threshold(), Factor(), Hierarchy(), Credit(inner=Threshold())])
def test_smoothing_with_weight_changes_what_the_model_says(model: Backbone, decoding: DecodingStrategy) -> None:
    managers = [Smooth(block_length=8, weight=weight, weight_init=weight) for weight in (0.0, 0.3)]
    without, fully = ({f.row: f.tokens for f in decode(model, PROMPTS, Recipe(decoding, m, NONE))} for m in managers)
    assert without != fully


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Blockwise, {"block_length": 0}),
        (Smooth, {"block_length": -4}),
        (Smooth, {"weight": -0.1}),
        (Smooth, {"weight_init": math.nan}),
        (Smooth, {"weight_growth": math.inf}),
        (Smooth, {"threshold_decay": -1.0}),
    ],
)
def test_impossible_settings_are_refused_by_name(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least"):
        kind(**options)
