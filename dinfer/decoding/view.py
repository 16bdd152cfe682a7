"""What a strategy sees of a step, what it answers, and the arithmetic all strategies share.

Letters: B rows, K undecided columns of the current block (padded), V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.types import ModelSpec

#: Confidences this close to a row's best count as equally good; rounding between batch shapes must not decide.
TIE = 1e-5
#: Log-odds taken off a prediction that must come after all others.
LAST = 1e6


@dataclass(slots=True)
class BlockView:
    """The undecided columns of each row's block, left to right.

    `logits` [B, K, V] in float32 or better, the mask token at -inf and its true value in `mask_logit` [B, K]; a strategy
    may change both in place. `columns` [B, K]; `offset` [B, K] is the distance from the block's start; `eligible` [B, K]
    is false where K is padding. `step`, `age`, `floor`, `seed` are [B]; a strategy's own confidence bar is raised to `floor`.
    """

    logits: Tensor
    mask_logit: Tensor
    columns: Tensor
    offset: Tensor
    eligible: Tensor
    step: Tensor
    age: Tensor
    floor: Tensor
    seed: Tensor
    spec: ModelSpec


@dataclass(slots=True)
class Choice:
    """`tokens` [B, K] to write where `accept` [B, K]; at least one per row that has an eligible column."""

    tokens: Tensor
    accept: Tensor


@dataclass(slots=True)
class Prediction:
    """Most likely (or sampled) `tokens` [B, K], the noise-free probability of each, and its log-odds; -inf where padding.

    Order columns by `log_odds`: in float32 the probabilities of sure tokens all round to 1.
    """

    tokens: Tensor
    confidence: Tensor
    log_odds: Tensor


def uniform_noise(seed: Tensor, age: Tensor, columns: Tensor, tokens: Tensor | None = None) -> Tensor:
    """Numbers in (0, 1) that depend on (seed, age, column, token) alone, never on batch, rank or device.

    seed, age [B], columns [B, K] -> float64 [B, K]; with `tokens` [V] -> [B, K, V]. A 32-bit integer hash
    (murmur3's finaliser applied to each part in turn).
    """
    state = _mix(seed[:, None] * 0x9E3779B1 + 0x7F4A7C15)
    state = _mix(state ^ _mix(age[:, None] + 0x165667B1))
    state = _mix(state ^ _mix(columns + 0x27D4EB2F))
    if tokens is not None:
        state = _mix(state[..., None] ^ _mix(tokens + 0x85EBCA77))
    return (state.double() + 0.5) / 2.0**32


def _mix(x: Tensor) -> Tensor:
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Options every strategy has.

    `temperature` > 0 draws each token by Gumbel noise (the confidence stays noise-free); `logits_eos_inf` forbids the
    end-of-sequence token; `confidence_eos_eot_inf` ranks end-of-sequence and end-of-turn predictions below all others,
    by their own probability. Source of the three: LLaDA's sampler, arXiv:2502.09992.
    """

    temperature: float = 0.0
    logits_eos_inf: bool = False
    confidence_eos_eot_inf: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number of at least 0, got {self.temperature}")

    def begin(self, canvas: Canvas, spec: ModelSpec) -> Any:
        """Room for what the strategy remembers between steps of a block: nothing."""
        return None

    def forbid(self, view: BlockView) -> None:
        """Take away the tokens that may not be predicted at all, in place."""
        if self.logits_eos_inf:
            view.logits[..., view.spec.eos_ids[0]] = -torch.inf

    def predict(self, view: BlockView) -> Prediction:
        """Token and confidence at every column of `view`."""
        self.forbid(view)
        logits = view.logits
        if self.temperature > 0:
            vocabulary = torch.arange(logits.shape[-1], device=logits.device)
            noise = -torch.log(-torch.log(uniform_noise(view.seed, view.age, view.columns, vocabulary)))
            tokens = (logits.double() + self.temperature * noise).argmax(-1)
        else:
            tokens = favourite(logits)
        log_odds = self._log_odds(view, tokens)
        confidence = torch.sigmoid(log_odds)
        if self.confidence_eos_eot_inf:
            ends = torch.isin(tokens, torch.tensor(view.spec.eos_ids, device=tokens.device))
            confidence, log_odds = confidence - 2.0 * ends, log_odds - LAST * ends
        out = ~view.eligible
        return Prediction(tokens, confidence.masked_fill(out, -torch.inf), log_odds.masked_fill(out, -torch.inf))

    def _log_odds(self, view: BlockView, tokens: Tensor) -> Tensor:
        """log p / (1 - p) of `tokens` [B, K] under the softmax over all tokens, the mask token included."""
        logits = view.logits
        if self.confidence_eos_eot_inf:
            score = logits.gather(-1, tokens[..., None])[..., 0]
            logits[..., list(view.spec.eos_ids)] = -torch.inf
            logits.scatter_(-1, tokens[..., None], score[..., None])
        return log_odds(logits, view.mask_logit, tokens)


def favourite(logits: Tensor) -> Tensor:
    """The lowest index of the largest logit, [..., V] -> [...]; on a CPU in two passes, seven times faster than argmax."""
    width = 256
    size = logits.shape[-1]
    if logits.is_cuda or size < 16 * width:
        return logits.argmax(-1)
    best = logits[..., : size // width * width].unflatten(-1, (-1, width)).amax(-1)
    if size % width:
        best = torch.cat((best, logits[..., size // width * width :].amax(-1, keepdim=True)), -1)
    at = best.argmax(-1, keepdim=True) * width + torch.arange(width, device=logits.device)
    at = at.clamp_max(size - 1) if size % width else at
    return at.gather(-1, logits.gather(-1, at).argmax(-1, keepdim=True))[..., 0]


def log_odds(logits: Tensor, mask_logit: Tensor, tokens: Tensor) -> Tensor:
    """log p / (1 - p) [B, K] of `tokens` [B, K]: its logit against the log-sum of all others; `logits` are left as found."""
    place = tokens[..., None]
    score = logits.gather(-1, place)
    logits.scatter_(-1, place, -torch.inf)
    others = torch.logaddexp(log_sum(logits, score), mask_logit)
    logits.scatter_(-1, place, score)
    return score[..., 0] - others


def log_sum(logits: Tensor, near: Tensor) -> Tensor:
    """log sum exp over the last axis, [B, K, V] -> [B, K], given a value `near` [B, K, 1] the largest logit.

    On a CPU the sum is taken relative to `near`, a few columns at a time: one pass less, and the scratch stays in cache. Where
    that is too far off (sampled tokens, overwhelming favourites) all are summed again with care.
    """
    if logits.is_cuda:
        return logits.logsumexp(-1)
    rows = max(1, 2**17 // logits.shape[-1])
    flat, base = logits.flatten(0, 1), near.flatten(0, 1)
    total = torch.cat([(part - b).exp_().sum(-1) for part, b in zip(flat.split(rows), base.split(rows), strict=True)])
    sums = total.log() + base[:, 0]
    if bool(((total < 1e-30) | (total > 1e30)).any()):
        sums = flat.logsumexp(-1)
    return sums.view(logits.shape[:-1])


def at_least(confidence: Tensor, bar: Tensor) -> Tensor:
    """[B, K] bool: confidence reaches `bar` [B, 1], or is the row's best (ties within `TIE`); never a padded column."""
    best = confidence.amax(-1, keepdim=True) - TIE
    return (confidence >= torch.minimum(best, bar.to(best.dtype))) & (confidence > -torch.inf)


def ranking(score: Tensor) -> Tensor:
    """[B, K]: 0 for a row's highest score, 1 for the next, …; the leftmost of equals comes first."""
    places = torch.arange(score.shape[-1], device=score.device)
    if score.shape[-1] <= 128:
        ahead, mine = score[:, None, :], score[:, :, None]
        return ((ahead > mine) | ((ahead == mine) & (places < places[:, None]))).sum(-1)
    order = score.argsort(dim=-1, descending=True, stable=True)
    return torch.empty_like(order).scatter_(-1, order, places.expand_as(order))
