"""The arithmetic all strategies share: noise from a hash, Gumbel sampling, end-of-sequence rules, odds and ranks."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from dinfer.decoding import Credit, Factor, Hierarchy, Sampled, Steps, Threshold, at_least, ranking, uniform_noise
from dinfer.decoding.view import favourite, log_odds
from dinfer.types import DecodingStrategy
from tests.stubs import EOS, EOT, MASK, SPEC, canvas_of, chosen, sure, view_of

ARGUMENTS = ("seed", "age", "column", "token")


def noise(seeds: int = 1, ages: int = 1, columns: int = 1, tokens: int = 1, first: int = 0) -> Tensor:
    """Noise over a grid, [seeds, ages, columns, tokens]."""
    rows = torch.cartesian_prod(torch.arange(first, first + seeds), torch.arange(ages))
    drawn = uniform_noise(rows[:, 0], rows[:, 1], torch.arange(columns).expand(len(rows), columns), torch.arange(tokens))
    return drawn.view(seeds, ages, columns, tokens)


@pytest.mark.parametrize("shape", [(20000, 1, 1, 1), (1, 20000, 1, 1), (1, 1, 20000, 1), (1, 1, 1, 20000), (12, 12, 12, 12)])
def test_noise_is_uniform_along_every_argument(shape: tuple[int, int, int, int]) -> None:
    drawn = noise(*shape, first=1).flatten()
    count = len(drawn)
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 3 * math.sqrt(1 / 12 / count)
    assert abs(drawn.var() - 1 / 12) < 3 * math.sqrt(1 / 180 / count)
    bins = torch.histc(drawn, 50, 0, 1)
    spread = ((bins - count / 50) ** 2 / (count / 50)).sum()
    assert abs(spread - 49) < 3 * math.sqrt(2 * 49)  # chi-square with 49 degrees of freedom
    assert drawn.unique().numel() > count * 0.999


@pytest.mark.parametrize("axis", range(4), ids=ARGUMENTS)
def test_neighbours_are_not_correlated(axis: int) -> None:
    drawn = noise(12, 12, 12, 12) - 0.5
    ahead, behind = drawn.narrow(axis, 1, 11), drawn.narrow(axis, 0, 11)
    correlation = 12 * (ahead * behind).mean()
    assert abs(correlation) < 3 / math.sqrt(ahead.numel())


def test_any_two_arguments_may_be_swapped_without_repeating_noise() -> None:
    drawn = noise(8, 8, 8, 8)
    for a, b in itertools.combinations(range(4), 2):
        same = (drawn == drawn.transpose(a, b)).double().mean().item()
        assert same == pytest.approx(1 / 8), (ARGUMENTS[a], ARGUMENTS[b])  # the diagonal alone


def test_noise_knows_neither_batch_nor_neighbours() -> None:
    seed, age = torch.tensor([5, 9, 2**40 + 3]), torch.tensor([0, 7, 31])
    columns = torch.tensor([[4, 8, 60], [1, 2, 3], [70, 71, 90]])
    words = torch.arange(50)
    together = uniform_noise(seed, age, columns, words)
    for row in range(3):
        for place in range(3):
            own = slice(row, row + 1)
            one = uniform_noise(seed[own], age[own], columns[own, place : place + 1], words[30:40])
            assert torch.equal(one[0, 0], together[row, place, 30:40])
    plain = uniform_noise(seed, age, columns)
    assert torch.equal(plain[1:2, 1:], uniform_noise(seed[1:2], age[1:2], columns[1:2, 1:]))


def draws(logits: Tensor, temperature: float, count: int, axis: str) -> tuple[Tensor, Tensor]:
    """`count` tokens drawn from logits [V], along seeds, ages or columns; and their confidences."""
    several = {axis: range(count)} if axis != "column" else {}
    shape = (1, count) if axis == "column" else (count, 1)
    view = view_of(logits.expand(*shape, -1), **several)  # type: ignore[arg-type]
    guess = Sampled(temperature=temperature).predict(view)
    return guess.tokens.flatten(), guess.confidence.flatten()


@pytest.mark.parametrize("axis", ["seed", "age", "column"])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_sampled_tokens_follow_the_softmax(axis: str, temperature: float) -> None:
    logits = torch.tensor([1.0, 0.2, -0.5, 2.0, 0.0, -3.0, 1.5, 0.9, -1.0, 0.3, -0.2, 0.6, 9.0], dtype=torch.float64)
    count = 20000
    tokens, _ = draws(logits, temperature, count, axis)
    expected = (logits[:MASK] / temperature).softmax(-1)
    share = torch.bincount(tokens, minlength=SPEC.vocab).double() / count
    error = (expected * (1 - expected) / count).sqrt()
    assert share[MASK] == 0
    distance = (share[:MASK] - expected) / error
    assert (distance.abs() < 3.5).all()  # twelve tokens at once
    assert abs(distance[3]) < 3


def test_a_small_temperature_is_greedy_and_a_large_one_is_blind() -> None:
    logits = torch.linspace(-1, 1, SPEC.vocab, dtype=torch.float64)
    cold, _ = draws(logits, 1e-6, 500, "seed")
    assert (cold == MASK - 1).all()
    hot, _ = draws(logits, 1e6, 12000, "seed")
    share = torch.bincount(hot, minlength=MASK).double() / 12000
    assert (share - 1 / 12).abs().max() < 3.5 * math.sqrt(1 / 12 * 11 / 12 / 12000)


def test_the_confidence_of_a_sample_is_its_plain_probability() -> None:
    logits = torch.tensor([1.0, 0.2, -0.5, 2.0] + [-math.inf] * 9, dtype=torch.float64)
    tokens, confidence = draws(logits, 5.0, 200, "seed")
    assert tokens.unique().tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(confidence, logits.softmax(-1)[tokens])


def ends_view(*rows: dict[int, float]) -> Tensor:
    """Logits [1, K, V] from chances of tokens; what is not named cannot happen."""
    logits = torch.full((1, len(rows), SPEC.vocab), -torch.inf, dtype=torch.float64)
    for place, chances in enumerate(rows):
        for token, chance in chances.items():
            logits[0, place, token] = math.log(chance)
    return logits


ALL = [Steps(), Threshold(threshold=0.9), Factor(factor=0.5), Hierarchy(threshold=0.9), Credit(inner=Threshold())]


def with_rule(strategy: DecodingStrategy, rule: str) -> DecodingStrategy:
    """The same strategy with an end-of-sequence rule, which a wrapping one leaves to the one it wraps."""
    options = {name: getattr(strategy, name) for name in strategy.__dataclass_fields__}  # type: ignore[attr-defined]
    if "inner" in options:
        return type(strategy)(**options | {"inner": with_rule(options["inner"], rule)})
    return type(strategy)(**options | {rule: True})


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: type(s).__name__)
def test_a_forbidden_end_is_never_written_and_takes_no_probability(strategy: DecodingStrategy) -> None:
    logits = ends_view({EOS: 0.9, 3: 0.06, 4: 0.04}, {5: 0.55, 6: 0.45}, {EOT: 0.7, 2: 0.3})
    ruled = with_rule(strategy, "logits_eos_inf")
    choice = ruled.select(view_of(logits, columns=[[1, 3, 5]]), ruled.begin(canvas_of((1, 6)), SPEC))
    assert choice.tokens.tolist() == [[3, 5, EOT]]
    guess = Sampled(logits_eos_inf=True).predict(view_of(logits))
    torch.testing.assert_close(guess.confidence, torch.tensor([[0.6, 0.55, 0.7]], dtype=torch.float64))


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("end", [EOS, EOT])
def test_an_end_comes_last_whatever_its_confidence(strategy: DecodingStrategy, end: int) -> None:
    ruled = with_rule(strategy, "confidence_eos_eot_inf")
    logits = ends_view({end: 0.99, 3: 0.01}, {5: 0.3, 6: 0.25, 7: 0.25, 8: 0.2})
    columns = [[1, 3]]
    choice = ruled.select(view_of(logits, columns=columns), ruled.begin(canvas_of((1, 6)), SPEC))
    assert choice.tokens.tolist() == [[end, 5]]
    assert chosen(choice.accept) == [{1}]
    free = strategy.select(view_of(logits, columns=columns), strategy.begin(canvas_of((1, 6)), SPEC))
    assert 0 in chosen(free.accept)[0]


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: type(s).__name__)
def test_ends_alone_are_taken_by_their_own_probability(strategy: DecodingStrategy) -> None:
    ruled = with_rule(strategy, "confidence_eos_eot_inf")
    view = view_of(ends_view({EOS: 0.6, 3: 0.4}, {EOT: 0.8, 3: 0.2}, {EOS: 0.7, 3: 0.3}), columns=[[1, 3, 5]])
    choice = ruled.select(view, ruled.begin(canvas_of((1, 6)), SPEC))
    assert chosen(choice.accept) == [{1}]
    assert choice.tokens.tolist() == [[EOS, EOT, EOS]]


def test_last_ends_leave_their_probability_to_the_others() -> None:
    guess = Sampled(confidence_eos_eot_inf=True).predict(view_of(ends_view({2: 0.5, EOS: 0.3, EOT: 0.1, 4: 0.1}, {2: 1.0})))
    assert guess.tokens.tolist() == [[2, 2]]
    torch.testing.assert_close(guess.confidence, torch.tensor([[0.5 / 0.6, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize("vocab", [5, 300, 4096, 5000, 32768 + 7])
def test_the_favourite_is_the_first_largest(vocab: int) -> None:
    draw = torch.Generator().manual_seed(vocab)
    logits = torch.randint(0, 50, (2, 30, vocab), generator=draw).float()  # full of ties
    logits[0, 0, 1:] = -torch.inf
    logits[1, 0, :-1] = -torch.inf
    for column in range(1, 30):
        logits[0, column, int(torch.randint(0, vocab, (1,), generator=draw))] = 99.0
    assert torch.equal(favourite(logits), logits.argmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_are_exact_however_sure_or_unlikely(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 40, 700, generator=draw, dtype=dtype)
    logits[1] *= 40  # overwhelming favourites
    logits[2] += 500 * torch.randn(40, 1, generator=draw, dtype=dtype)  # far from zero
    logits[..., 9] = -torch.inf
    mask_logit = torch.randn(3, 40, generator=draw, dtype=dtype)
    mask_logit[0, :5] = -torch.inf
    mask_logit[0, 5:9] = 60.0
    tokens = logits.argmax(-1)
    tokens[:, ::3] = 17  # not the favourite, as when sampled
    before = logits.clone()
    ours = log_odds(logits, mask_logit, tokens)
    assert torch.equal(logits, before)
    wide = torch.cat((logits.double(), mask_logit.double()[..., None]), -1)
    place = tokens[..., None]
    score = wide.gather(-1, place)[..., 0]
    others = wide.scatter(-1, place, -torch.inf).logsumexp(-1)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-12
    scale = torch.maximum(score.abs(), others.abs()).clamp_min(1)
    assert ((ours.double() - (score - others)).abs() / scale).max() < tolerance


def test_odds_of_the_only_token_left_are_infinite() -> None:
    logits = ends_view({3: 1.0}, {3: 0.5, 4: 0.5})
    odds = log_odds(logits, torch.full((1, 2), -torch.inf, dtype=torch.float64), torch.tensor([[3, 3]]))
    assert odds.tolist() == [[math.inf, pytest.approx(0.0, abs=1e-12)]]


def test_padding_is_behind_everything() -> None:
    eligible = torch.tensor([[True, True, False]])
    guess = Sampled().predict(view_of(sure([1, 2, 3], [0.5, 0.2, 0.99])[None], eligible=eligible))
    assert guess.confidence[0, 2] == guess.log_odds[0, 2] == -math.inf
    assert chosen(at_least(guess.confidence, torch.tensor([[0.0]]))) == [{0, 1}]
    assert chosen(at_least(torch.full((1, 3), -torch.inf), torch.tensor([[0.5]]))) == [set()]


def test_ranks_count_from_the_left_among_equals() -> None:
    score = torch.tensor([[0.1, 0.5, 0.5, -math.inf, 0.9], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert ranking(score).tolist() == [[3, 1, 2, 4, 0], [0, 1, 2, 3, 4]]
