"""Credit decoding: a token that keeps being the favourite of its column is trusted sooner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.decoding.view import BlockView, Choice, Sampled, favourite, log_odds
from dinfer.types import DecodingStrategy, ModelSpec


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Add `alpha` * log(1 + credit) to the logits and let `inner` choose.

    At every step of a block all credit decays by `beta`, then each undecided column adds p ** `gamma` to its favourite token,
    p being that token's probability. Credit starts from nothing in each block. Source: CreditDecoding,
    arXiv:2510.06133, as in dInfer.

    Temperature and end-of-sequence rules are those of `inner`.

    A column can only favour one token a step, so credit is kept as (token, value) pairs, never as [B, K, V].
    """

    inner: DecodingStrategy
    alpha: float = 0.7
    gamma: float = 0.2
    beta: float = 0.8

    def __post_init__(self) -> None:
        for name in ("alpha", "gamma"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta must lie in [0, 1], got {self.beta}")

    def begin(self, canvas: Canvas, spec: ModelSpec) -> dict[str, Any]:
        """Per column the tokens it favoured in this block, [B, L + 1, S] (-1: free), and their credit; S is K at most."""
        shape = (*canvas.tokens.shape, 0)
        return {
            "tokens": torch.full(shape, -1, dtype=torch.long, device=canvas.tokens.device),
            "credit": torch.zeros(shape, device=canvas.tokens.device),
            "inner": self.inner.begin(canvas, spec),
        }

    def select(self, view: BlockView, memo: Any) -> Choice:
        if isinstance(self.inner, Sampled):
            self.inner.forbid(view)
        liked = favourite(view.logits)
        gain = torch.sigmoid(log_odds(view.logits, view.mask_logit, liked)) ** self.gamma
        tokens, credit = self._remember(view, memo, liked, gain.masked_fill(~view.eligible, 0.0))
        bonus = self.alpha * torch.log1p(credit)
        view.logits.scatter_add_(-1, tokens.clamp_min(0), bonus.masked_fill(tokens < 0, 0.0).to(view.logits.dtype))
        return self.inner.select(view, memo["inner"])

    def _remember(self, view: BlockView, memo: Any, liked: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        """Decay, add `gain` to each column's favourite, store; the columns' tokens and credit, [B, K, S]."""
        self._make_room(view, memo)
        at = view.columns[..., None].expand(*view.columns.shape, memo["tokens"].shape[-1])
        tokens, credit = memo["tokens"].gather(1, at), memo["credit"].gather(1, at)
        opening = (view.step == 0)[:, None, None]
        tokens, credit = tokens.masked_fill(opening, -1), credit.masked_fill(opening, 0.0) * self.beta
        known = tokens == liked[..., None]
        free = (tokens < 0) & ((tokens < 0).cumsum(-1) == 1)
        slot = torch.where(known.any(-1, keepdim=True), known, free)
        tokens = torch.where(slot, liked[..., None], tokens)
        credit = credit + slot * gain[..., None]
        memo["tokens"].scatter_(1, at, tokens)
        memo["credit"].scatter_(1, at, credit)
        return tokens, credit

    @staticmethod
    def _make_room(view: BlockView, memo: Any) -> None:
        """A row takes a token at every step, so no column sees more steps of a block than the block had masks: K."""
        short = view.columns.shape[-1] - memo["tokens"].shape[-1]
        if short > 0:
            memo["tokens"] = torch.nn.functional.pad(memo["tokens"], (0, short), value=-1)
            memo["credit"] = torch.nn.functional.pad(memo["credit"].to(view.logits.dtype), (0, short))
