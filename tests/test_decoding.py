"""Decoding strategies against cases worked out by hand, a dense reference of credit, and what all of them promise."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from dinfer.cache import Window
from dinfer.decoding import BlockView, Choice, Credit, Factor, Hierarchy, Sampled, Steps, Threshold
from dinfer.iteration import Blockwise
from dinfer.loop import decode
from dinfer.types import DecodingStrategy, Recipe, Request
from tests.stubs import EOS, MASK, SPEC, Scripted, canvas_of, chosen, sure, view_of

#: Six masks, three tokens, their probabilities; most confident first the columns are 4, 0, 2, 1, 5, 3.
SIX = [
    [0.95, 0.03, 0.02],
    [0.85, 0.10, 0.05],
    [0.02, 0.92, 0.06],
    [0.40, 0.35, 0.25],
    [0.01, 0.01, 0.98],
    [0.79, 0.20, 0.01],
]
EVERY = {0, 1, 2, 3, 4, 5}
STRATEGIES: list[DecodingStrategy] = [
    Steps(),
    Steps(tokens_per_step=3),
    Steps(tokens_per_step=None, steps_per_block=3),
    Steps(tokens_per_step=2, remasking="random"),
    Threshold(threshold=0.3),
    Threshold(threshold=1.0, temperature=1.0),
    Factor(factor=0.5),
    Factor(factor=100.0, confidence_eos_eot_inf=True),
    Hierarchy(threshold=0.5, low_threshold=0.1),
    Hierarchy(threshold=0.9, low_threshold=0.9, logits_eos_inf=True),
    Credit(inner=Threshold(threshold=0.4)),
    Credit(inner=Hierarchy(temperature=0.5)),
]


def six() -> BlockView:
    logits = torch.full((1, 6, SPEC.vocab), -torch.inf, dtype=torch.float64)
    logits[0, :, :3] = torch.tensor(SIX, dtype=torch.float64).log()
    return view_of(logits)


def select(strategy: DecodingStrategy, view: BlockView, memo: Any = None) -> Choice:
    rows = len(view.columns)
    return strategy.select(view, memo or strategy.begin(canvas_of(*[(1, int(view.columns.max()) + 1)] * rows), SPEC))


def taken(strategy: DecodingStrategy, view: BlockView) -> set[int]:
    (places,) = chosen(select(strategy, view).accept)
    return places


@pytest.mark.parametrize(("threshold", "places"), [(0.9, {0, 2, 4}), (1.0, {4}), (1e-9, EVERY), (0.95, {0, 4}), (0.951, {4})])
def test_threshold(threshold: float, places: set[int]) -> None:
    assert taken(Threshold(threshold=threshold), six()) == places


@pytest.mark.parametrize(
    ("factor", "places"),
    [
        (1e-9, {4}),
        (0.1, {4}),
        (0.25, {0, 4}),
        (0.5, {0, 2, 4}),
        (1.0, {0, 1, 2, 4}),
        (2.0, {0, 1, 2, 4, 5}),
        (4.19, {0, 1, 2, 4, 5}),
        (4.21, EVERY),
        (7.0, EVERY),
    ],
)
def test_factor(factor: float, places: set[int]) -> None:
    assert taken(Factor(factor=factor), six()) == places


@pytest.mark.parametrize(("count", "places"), [(1, {4}), (2, {0, 4}), (3, {0, 2, 4}), (5, {0, 1, 2, 4, 5}), (9, EVERY)])
def test_so_many_tokens_a_step(count: int, places: set[int]) -> None:
    assert taken(Steps(tokens_per_step=count), six()) == places


def test_the_tokens_are_the_likeliest_ones() -> None:
    assert select(Threshold(), six()).tokens.tolist() == [[0, 0, 1, 0, 2, 0]]


def schedule(strategy: Steps, max_tokens: int, block_length: int) -> list[int]:
    model = Scripted({1: sure([i % 10 for i in range(max_tokens)], [0.5 + i % 7 / 20 for i in range(max_tokens)])})
    recipe = Recipe(strategy, Blockwise(block_length=block_length), Window())
    (finished,) = decode(model, [Request("a", (1,), max_tokens)], recipe)
    assert finished.tokens == tuple(i % 10 for i in range(max_tokens))
    return list(finished.trace.committed)


@pytest.mark.parametrize(
    ("steps", "max_tokens", "block", "expected"),
    [
        (4, 8, 8, [2, 2, 2, 2]),
        (4, 6, 6, [2, 2, 1, 1]),
        (3, 8, 8, [3, 3, 2]),
        (1, 5, 5, [5]),
        (3, 6, 3, [1, 1, 1, 1, 1, 1]),
        (3, 8, 6, [2, 2, 2, 1, 1]),  # the last block holds 2 masks and cannot use its third step
        (4, 11, 8, [2, 2, 2, 2, 1, 1, 1]),
    ],
)
def test_steps_per_block_spreads_the_masks_with_the_remainder_first(
    steps: int, max_tokens: int, block: int, expected: list[int]
) -> None:
    assert schedule(Steps(tokens_per_step=None, steps_per_block=steps), max_tokens, block) == expected


@pytest.mark.parametrize(
    ("count", "max_tokens", "block", "expected"),
    [(4, 8, 8, [4, 4]), (4, 6, 6, [4, 2]), (3, 8, 4, [3, 1, 3, 1]), (2, 5, 4, [2, 2, 1]), (1, 3, 2, [1, 1, 1])],
)
def test_tokens_per_step_never_cross_a_block(count: int, max_tokens: int, block: int, expected: list[int]) -> None:
    assert schedule(Steps(tokens_per_step=count), max_tokens, block) == expected


def test_a_quota_counts_the_masks_of_the_rows_own_block() -> None:
    strategy = Steps(tokens_per_step=None, steps_per_block=2)
    memo = strategy.begin(canvas_of((1, 6), (1, 6)), SPEC)
    logits = sure([1] * 6, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])[None].repeat(2, 1, 1)
    half = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    assert chosen(strategy.select(view_of(logits, eligible=half), memo).accept) == [{0, 1, 2}, {0, 1}]
    rest = torch.tensor([[True] * 3 + [False] * 3, [True] + [False] * 5])
    assert chosen(strategy.select(view_of(logits, eligible=rest, step=1), memo).accept) == [{0, 1, 2}, {0}]


def test_random_remasking_repeats_itself_and_follows_the_seed() -> None:
    logits = sure([1] * 40, 0.5)[None].repeat(3, 1, 1)
    strategy = Steps(tokens_per_step=5, remasking="random")
    first = chosen(select(strategy, view_of(logits, seed=[7, 7, 8])).accept)
    assert first == chosen(select(strategy, view_of(logits, seed=[7, 7, 8])).accept)
    assert first[0] == first[1] != first[2]
    assert [len(places) for places in first] == [5, 5, 5]
    assert first[0] != chosen(select(strategy, view_of(logits, seed=7, age=1)).accept)[0]


def test_random_remasking_prefers_no_column_and_looks_at_no_confidence() -> None:
    seeds, columns = 6000, 8
    logits = sure([1] * columns, [0.1 + 0.1 * i for i in range(columns)])[None].expand(seeds, -1, -1)
    accept = select(Steps(remasking="random"), view_of(logits, seed=range(seeds))).accept
    share = accept.double().mean(0)
    error = math.sqrt((1 / columns) * (1 - 1 / columns) / seeds)
    assert (share - 1 / columns).abs().max() < 3.5 * error  # eight columns at once


@pytest.mark.parametrize(
    ("chances", "places"),
    [
        ([0.5, 0.6, 0.45, 0.3, 0.35, 0.95], {1, 5}),
        ([0.5, 0.6, 0.45, 0.3, 0.41, 0.95], {1, 4, 5}),
        ([0.5, 0.39, 0.45, 0.3, 0.41, 0.2], {0, 4}),
        ([0.3, 0.2, 0.31, 0.3, 0.35, 0.25], {4}),  # nothing exceeds the low bar: the best of all
        ([0.92, 0.91, 0.45, 0.3, 0.35, 0.93], {0, 1, 5}),
    ],
)
def test_hierarchy_takes_one_column_of_each_run(chances: list[float], places: set[int]) -> None:
    """Runs of masks: columns 3 4 5, then 8 9, then 12."""
    view = view_of(sure([1] * 6, chances)[None], columns=[[3, 4, 5, 8, 9, 12]])
    assert taken(Hierarchy(threshold=0.9, low_threshold=0.4), view) == places


def test_hierarchy_bars_are_exclusive() -> None:
    even = torch.full((1, 3, SPEC.vocab), -torch.inf, dtype=torch.float64)
    even[..., :2] = 0.0  # every column: one half, one half, exactly
    view = view_of(even, columns=[[0, 2, 4]])
    assert taken(Hierarchy(threshold=0.5, low_threshold=0.5), view) == {0}
    assert taken(Hierarchy(threshold=0.5, low_threshold=0.499), view_of(even, columns=[[0, 2, 4]])) == {0, 1, 2}


def test_a_floor_leaves_only_the_best_column() -> None:
    for strategy in (Threshold(threshold=0.5), Factor(factor=7.0), Steps(tokens_per_step=6)):
        view = six()
        view.floor[:] = 0.99
        assert taken(strategy, view) == {4}
        view = six()
        view.floor[:] = 0.90
        assert taken(strategy, view) == {0, 2, 4}
    view = six()
    view.floor[:] = 0.93
    assert taken(Threshold(threshold=0.97), view) == {4}  # the floor raises a bar, it never lowers one


def test_a_floor_raises_the_upper_bar_of_hierarchy_only() -> None:
    view = view_of(sure([1] * 4, [0.8, 0.7, 0.6, 0.5])[None], columns=[[0, 1, 4, 5]], floor=0.75)
    assert taken(Hierarchy(threshold=0.55, low_threshold=0.2), view) == {0, 2}


@dataclass(frozen=True)
class Watch(Sampled):
    """Takes the leftmost column and keeps the logits it was shown."""

    seen: list[Tensor] = field(default_factory=list)

    def select(self, view: BlockView, memo: Any) -> Choice:
        self.seen.append(view.logits.clone())
        return Choice(view.logits.argmax(-1), torch.zeros_like(view.eligible).index_fill_(1, torch.tensor([0]), True))


def test_credit_of_one_column_over_three_steps_by_hand() -> None:
    """Chances of a half: credit 0.5 ** 0.2 = 0.87055, then 0.8 of it more; a rival starts from nothing."""
    watch = Watch()
    strategy = Credit(inner=watch, alpha=0.7, gamma=0.2, beta=0.8)
    memo = strategy.begin(canvas_of((1, 3)), SPEC)
    gain = 0.5**0.2
    for step, token in enumerate((3, 3, 5)):
        strategy.select(view_of(sure([token] * 3, 0.5)[None], step=step, age=step), memo)
    plain = sure([3], 0.5)[0, 3].item()
    rival = sure([5], 0.5)[0, 3].item()
    assert watch.seen[0][0, 0, 3].item() == pytest.approx(plain + 0.7 * math.log(1 + 0.8705505633))
    assert watch.seen[1][0, 0, 3].item() == pytest.approx(plain + 0.7 * math.log(1 + 1.8 * gain))
    assert watch.seen[2][0, 0, 5].item() == pytest.approx(plain + 0.7 * math.log(1 + gain))
    assert watch.seen[2][0, 0, 3].item() == pytest.approx(rival + 0.7 * math.log(1 + 0.8 * 1.8 * gain))
    assert watch.seen[2][0, 0, 4].item() == pytest.approx(sure([5], 0.5)[0, 4].item())


def test_credit_starts_from_nothing_in_every_block() -> None:
    """However many tokens a column has favoured before, there is room for the next and no credit left of the others."""
    watch = Watch()
    strategy = Credit(inner=watch)
    memo = strategy.begin(canvas_of((1, 2)), SPEC)
    for age, token in enumerate((3, 4, 5, 6, 3)):
        plain = sure([token] * 2, 0.5)[None]
        strategy.select(view_of(plain, step=0, age=age), memo)
        expected = plain[0, 0].clone()
        expected[token] += 0.7 * math.log(1 + 0.5**0.2)
        torch.testing.assert_close(watch.seen[-1][0, 0, :10], expected[:10])


class Dense:
    """Credit as [L, V] numbers: what the pairs kept by `Credit` must amount to."""

    def __init__(self, columns: int, vocab: int) -> None:
        self.credit = torch.zeros(columns, vocab, dtype=torch.float64)

    def __call__(self, logits: Tensor, columns: list[int], opening: bool, alpha: float, gamma: float, beta: float) -> Tensor:
        self.credit *= 0.0 if opening else beta
        probs = logits.softmax(-1)
        best, token = probs.index_fill(-1, torch.tensor([MASK]), 0.0).max(-1)
        for column, p, v in zip(columns, best, token, strict=True):
            self.credit[column, v] += p**gamma
        fused = logits + alpha * torch.log1p(self.credit[columns])
        return fused.index_fill(-1, torch.tensor([MASK]), -torch.inf)


@pytest.mark.parametrize(("alpha", "gamma", "beta"), [(0.7, 0.2, 0.8), (2.0, 1.0, 0.5), (0.0, 0.5, 1.0), (1.0, 0.0, 0.0)])
def test_credit_equals_a_dense_table_over_blocks_and_rows(alpha: float, gamma: float, beta: float) -> None:
    """Two rows out of step: columns leave one by one, favourites change often, each row opens its blocks in its own time."""
    noise = torch.Generator().manual_seed(5)
    watch, width, length = Watch(), 6, 12
    strategy = Credit(inner=watch, alpha=alpha, gamma=gamma, beta=beta)
    memo = strategy.begin(canvas_of((1, length), (1, length)), SPEC)
    dense = [Dense(length + 1, SPEC.vocab) for _ in range(2)]
    for age in range(12):
        steps = [age % width, (age + 2) % width]
        blocks = [age // width, (age + 2) // width % 2]
        left = [list(range(blocks[b] * width + steps[b], (blocks[b] + 1) * width)) for b in range(2)]
        columns = [row + [length + 1] * (width - len(row)) for row in left]
        eligible = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in left])
        logits = 3 * torch.randn(2, width, SPEC.vocab, generator=noise, dtype=torch.float64)
        logits[..., 3:9] -= 20  # few favourites, so that they return
        strategy.select(view_of(logits, columns=columns, eligible=eligible, step=steps, age=age), memo)
        for b in range(2):
            count = len(left[b])
            expected = dense[b](logits[b, :count], left[b], steps[b] == 0, alpha, gamma, beta)
            torch.testing.assert_close(watch.seen[-1][b, :count], expected, rtol=1e-6, atol=1e-6)


def test_credit_without_weight_is_its_inner_strategy() -> None:
    noise = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 8, SPEC.vocab, generator=noise, dtype=torch.float64) * 3
    for inner in (Threshold(threshold=0.5), Factor(), Hierarchy()):
        credited, plain = select(Credit(inner=inner, alpha=0.0), view_of(logits)), select(inner, view_of(logits))
        assert torch.equal(credited.accept, plain.accept)
        assert torch.equal(credited.tokens, plain.tokens)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_something_eligible_is_taken_and_nothing_else_and_never_the_mask(strategy: DecodingStrategy) -> None:
    noise = torch.Generator().manual_seed(11)
    for trial in range(30):
        count = 1 + trial % 9
        logits = torch.randn(5, count, SPEC.vocab, generator=noise) * (1 + trial)
        logits[..., MASK] += 30.0 * (trial % 2)  # the mask token is the favourite of every second view
        logits[..., EOS] += 30.0 * (trial % 3 == 0)
        undecided = torch.randint(0, count + 1, (5,), generator=noise)
        undecided[0] = 0  # an idle row
        eligible = torch.arange(count) < undecided[:, None]
        columns = [sorted(torch.randperm(40, generator=noise)[:count].tolist()) for _ in range(5)]
        view = view_of(logits, columns=columns, eligible=eligible, age=trial, seed=range(5))
        choice = select(strategy, view)
        assert not (choice.accept & ~eligible).any()
        assert torch.equal(choice.accept.any(1), eligible.any(1))
        assert not (choice.tokens[choice.accept] == MASK).any()
        assert ((choice.tokens >= 0) & (choice.tokens < SPEC.vocab)).all()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_a_row_is_judged_alone(strategy: DecodingStrategy) -> None:
    noise = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(4, 6, SPEC.vocab, generator=noise, dtype=torch.float64)
    together = select(strategy, view_of(logits, seed=range(4)))
    for row in range(4):
        alone = select(strategy, view_of(logits[row : row + 1], seed=row))
        assert torch.equal(alone.accept[0], together.accept[row])
        assert torch.equal(alone.tokens[0], together.tokens[row])


def test_stricter_settings_take_a_subset() -> None:
    noise = torch.Generator().manual_seed(4)
    logits = 3 * torch.randn(40, 8, SPEC.vocab, generator=noise, dtype=torch.float64)
    ladders: list[list[DecodingStrategy]] = [
        [Threshold(threshold=t) for t in (1.0, 0.9, 0.7, 0.4, 0.1, 1e-9)],
        [Factor(factor=f) for f in (1e-9, 0.1, 0.5, 1.0, 3.0, 9.0)],
        [Steps(tokens_per_step=k) for k in (1, 2, 3, 8)],
        [Hierarchy(threshold=0.9, low_threshold=low) for low in (0.9, 0.6, 0.3, 0.0)],
        [Hierarchy(threshold=t, low_threshold=0.1) for t in (1.0, 0.8, 0.4, 0.1)],
    ]
    for ladder in ladders:
        sets = [select(strategy, view_of(logits, columns=[[0, 1, 3, 4, 5, 8, 10, 11]] * 40)).accept for strategy in ladder]
        for fewer, more in itertools.pairwise(sets):
            assert not (fewer & ~more).any()
        assert sets[0].sum() < sets[-1].sum()
    one, every = (select(ladders[1][i], view_of(logits)).accept for i in (0, -1))
    assert (one.sum(1) == 1).all()
    assert every.all()  # factor >= masks + 1


def test_a_threshold_of_one_is_greedy_and_of_nothing_is_one_step() -> None:
    model = Scripted({1: sure([2, 3, 4, 5, 6, 7, 8, 9], [0.9, 0.5, 0.8, 0.6, 0.3, 0.4, 0.7, 0.2])})
    request, iteration = [Request("a", (1,), 8)], Blockwise(block_length=4)
    (greedy,) = decode(model, request, Recipe(Threshold(threshold=1.0), iteration, Window()))
    (whole,) = decode(model, request, Recipe(Threshold(threshold=1e-9), iteration, Window()))
    assert greedy.trace.committed == (1,) * 8
    assert whole.trace.committed == (4, 4)


@pytest.mark.parametrize(
    ("strategy", "places"),
    [
        (Steps(), {0}),
        (Steps(tokens_per_step=2), {0, 1}),
        (Factor(factor=2.1), {0, 1, 2}),  # (n + 1) / 2 <= 2.1
        (Hierarchy(threshold=0.9, low_threshold=0.4), {0, 3}),
        (Hierarchy(threshold=0.9, low_threshold=0.6), {0}),
    ],
    ids=repr,
)
def test_the_leftmost_of_equals_wins(strategy: DecodingStrategy, places: set[int]) -> None:
    """Five columns of exactly one half each, in the runs 0 1 2 and 6 7."""
    logits = torch.full((1, 5, SPEC.vocab), -torch.inf)
    logits[..., 4:6] = 1.0
    view = view_of(logits, columns=[[0, 1, 2, 6, 7]])
    choice = select(strategy, view)
    assert chosen(choice.accept) == [places]
    assert choice.tokens.tolist() == [[4] * 5]


def test_threshold_takes_all_within_rounding_of_the_best() -> None:
    close = sure([1, 2, 3, 4], [0.5, 0.5 - 4e-6, 0.5 - 3e-5, 0.2])
    assert taken(Threshold(threshold=0.9), view_of(close[None])) == {0, 1}


def test_sure_tokens_are_still_told_apart() -> None:
    """In float32 both probabilities are 1; the second is the surer one."""
    logits = torch.zeros(1, 2, SPEC.vocab)
    logits[0, 0, 3], logits[0, 1, 3] = 40.0, 60.0
    assert taken(Steps(), view_of(logits)) == {1}
    assert taken(Factor(factor=1e-12), view_of(logits)) == {0, 1}  # 1 - c is 0 for both


def test_the_mask_token_counts_in_the_probability_it_cannot_win() -> None:
    logits = torch.full((1, 2, SPEC.vocab), -torch.inf, dtype=torch.float64)
    logits[0, 0, 2], logits[0, 0, MASK] = math.log(0.3), math.log(0.7)
    logits[0, 1, 2], logits[0, 1, 3] = math.log(0.6), math.log(0.4)
    choice = select(Threshold(threshold=0.55), view_of(logits))
    assert choice.tokens.tolist() == [[2, 2]]
    assert chosen(choice.accept) == [{1}]


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        (Threshold, {"threshold": 0.0}, "threshold"),
        (Threshold, {"threshold": 1.8}, "threshold"),
        (Threshold, {"threshold": math.nan}, "threshold"),
        (Threshold, {"temperature": -1.0}, "temperature"),
        (Threshold, {"temperature": math.nan}, "temperature"),
        (Factor, {"factor": 0.0}, "factor"),
        (Factor, {"factor": math.nan}, "factor"),
        (Hierarchy, {"threshold": 1.2}, "threshold"),
        (Hierarchy, {"low_threshold": 0.95}, "low_threshold"),
        (Hierarchy, {"low_threshold": -0.1}, "low_threshold"),
        (Steps, {"tokens_per_step": 0}, "tokens_per_step"),
        (Steps, {"steps_per_block": 4}, "steps_per_block"),
        (Steps, {"tokens_per_step": None}, "tokens_per_step"),
        (Steps, {"tokens_per_step": None, "steps_per_block": 0}, "steps_per_block"),
        (Steps, {"remasking": "entropy"}, "remasking"),
        (Credit, {"inner": Threshold(), "alpha": -0.1}, "alpha"),
        (Credit, {"inner": Threshold(), "alpha": math.nan}, "alpha"),
        (Credit, {"inner": Threshold(), "gamma": -1.0}, "gamma"),
        (Credit, {"inner": Threshold(), "gamma": math.inf}, "gamma"),
        (Credit, {"inner": Threshold(), "beta": 1.1}, "beta"),
    ],
)
def test_impossible_settings_are_refused_by_name(kind: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=field) as error:
        kind(**options)
    assert "\n" not in str(error.value)
    assert "got" in str(error.value)
