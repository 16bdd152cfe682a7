"""How likely an answer is under a masked diffusion model: LLaDA's Monte-Carlo estimate.

Source: Nie et al., arXiv:2502.09992, equation 6 and algorithm 3. Letters: B rows, L columns, N answer tokens of the longest
row, M draws, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.decoding.view import uniform_noise
from dinfer.models.attention import visible_keys
from dinfer.types import DiffusionModel, ModelSpec, Request


@dataclass(frozen=True, slots=True)
class Pair:
    """An answer to judge behind a prompt, both as ids; `seed` decides which tokens are masked."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt", "answer"):
            if not getattr(self, name):
                raise ValueError(f"{name} must hold at least one token, got none")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A bound from below on the log-likelihood in nats, the mean of `draws` draws, and the standard error of that mean."""

    value: float
    standard_error: float
    draws: int


@dataclass(frozen=True, slots=True)
class _Draw:
    pair: int
    masked: tuple[bool, ...]


def log_likelihoods(
    model: DiffusionModel, pairs: Sequence[Pair], *, draws: int = 128, batch_size: int = 8, device: torch.device | str = "cpu"
) -> list[Estimate]:
    """The estimate for each pair. A draw masks k ~ U{1..n} of the n answer tokens, chosen at random, and is worth n / k times
    the sum of their log-probabilities given all others.

    Masks are a hash of (seed, draw, place), so an estimate depends neither on batch size nor on the other pairs. An answer of
    one token has one possible mask and takes one draw. ValueError for a block-causal model, whose training objective is
    another, or a pair beyond the model's length.
    """
    for name, number in (("draws", draws), ("batch_size", batch_size)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    _check(model.spec, pairs)
    jobs = [_Draw(i, mask) for i, pair in enumerate(pairs) for mask in masks(pair, draws if len(pair.answer) > 1 else 1)]
    jobs.sort(key=lambda job: -len(pairs[job.pair].prompt) - len(pairs[job.pair].answer))
    found: list[list[float]] = [[] for _ in pairs]
    for first in range(0, len(jobs), batch_size):
        batch = jobs[first : first + batch_size]
        values = _evaluate(model, [pairs[job.pair] for job in batch], [job.masked for job in batch], torch.device(device))
        for job, value in zip(batch, values, strict=True):
            found[job.pair].append(value)
    return [_estimate(values) for values in found]


def masks(pair: Pair, draws: int) -> list[tuple[bool, ...]]:
    """Which answer tokens each draw masks: k ~ U{1..n} of them, all sets of that size equally likely."""
    n = len(pair.answer)
    places = torch.arange(n + 1).expand(draws, -1)
    noise = uniform_noise(torch.full((draws,), pair.seed), torch.arange(draws), places)
    count = 1 + (noise[:, n] * n).long()
    rank = noise[:, :n].argsort(1).argsort(1)
    return [tuple(row) for row in (rank < count[:, None]).tolist()]


def _check(spec: ModelSpec, pairs: Sequence[Pair]) -> None:
    if spec.block is not None:
        raise ValueError(f"likelihood needs a model that sees all columns at once, got one with blocks of {spec.block}")
    for pair in pairs:
        sizes = len(pair.prompt), len(pair.answer)
        if sum(sizes) > spec.max_length:
            raise ValueError(f"prompt and answer must fit the model's {spec.max_length} positions, got {sizes[0]} + {sizes[1]}")


@torch.inference_mode()
def _evaluate(
    model: DiffusionModel, pairs: Sequence[Pair], masked: Sequence[tuple[bool, ...]], device: torch.device
) -> list[float]:
    """n / k times the summed log-probability of the masked tokens of every row, from one forward over all columns."""
    canvas = Canvas.build([Request("", pair.prompt, len(pair.answer)) for pair in pairs], model.spec, device)
    longest = max(len(pair.answer) for pair in pairs)
    answer = _padded([pair.answer for pair in pairs], longest, device)
    hidden_at = _padded(masked, longest, device).bool()
    inside = torch.arange(longest, device=device) < (canvas.end - canvas.prompt)[:, None]
    columns = torch.where(inside, canvas.prompt[:, None] + torch.arange(longest, device=device), canvas.columns)
    canvas.commit(columns, answer, inside & ~hidden_at)

    at = canvas.positions[:-1]
    slots = torch.where(at < canvas.end[:, None], at, canvas.columns)
    visible = visible_keys(slots, canvas.end, canvas.columns, model.spec.block, canvas.uniform)
    want = (columns.clamp_max(canvas.columns - 1) - model.spec.shift).clamp_min(0)
    x = model.embed(canvas.tokens.gather(1, slots))
    logits = model.logits(model(x, slots, model.new_cache(canvas), visible, want))
    logits = logits if logits.dtype == torch.float64 else logits.float()
    chances = logits.gather(-1, answer[..., None])[..., 0] - logits.logsumexp(-1)
    weight = hidden_at.new_tensor([len(row) / sum(row) for row in masked], dtype=torch.float64)
    return ((chances.double() * (hidden_at & inside)).sum(1) * weight).tolist()


def _padded(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> Tensor:
    """[B, width] ids, zero behind a row's end."""
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.long, device=device)


def _estimate(values: Sequence[float]) -> Estimate:
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Estimate(mean, 0.0, 1)
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Estimate(mean, math.sqrt(spread / len(values)), len(values))
