"""Hierarchical decoding: divide and conquer, one token from every run of masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dinfer.decoding.view import BlockView, Choice, Sampled, ranking


@dataclass(frozen=True, kw_only=True)
class Hierarchy(Sampled):
    """Take what exceeds `threshold`, the best column of each run of adjacent masks if it exceeds `low_threshold`, and the
    best of all.

    Splitting every run keeps the tokens of one step apart from each other. Source: dInfer, arXiv:2510.08666.
    """

    threshold: float = 0.9
    low_threshold: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1], got {self.threshold}")
        if not 0 <= self.low_threshold <= self.threshold:
            raise ValueError(f"low_threshold must lie in [0, threshold = {self.threshold}], got {self.low_threshold}")

    def select(self, view: BlockView, memo: Any) -> Choice:
        guess = self.predict(view)
        confidence = guess.confidence
        bar = torch.clamp_min(view.floor, self.threshold)[:, None]
        starts = torch.ones_like(view.eligible)
        starts[:, 1:] = view.columns[:, 1:] != view.columns[:, :-1] + 1
        run = starts.cumsum(-1) - 1
        rank = ranking(guess.log_odds)
        best = torch.full_like(rank, rank.shape[-1]).scatter_reduce_(-1, run, rank, "amin")
        accept = (rank == best.gather(-1, run)) & (confidence > self.low_threshold)
        accept |= (confidence > bar) | (rank == 0)
        return Choice(guess.tokens, accept & view.eligible)
