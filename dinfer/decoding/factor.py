"""Factor decoding: as many tokens as the least confident of them allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dinfer.decoding.view import BlockView, Choice, Sampled, ranking


@dataclass(frozen=True, kw_only=True)
class Factor(Sampled):
    """Take the n most confident columns for the largest n with (n + 1)(1 - c_n) <= `factor`, at least one.

    Source: Fast-dLLM, arXiv:2505.22618, without its habit of taking the last column when only that one fails.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.factor > 0:
            raise ValueError(f"factor must be above 0, got {self.factor}")

    def select(self, view: BlockView, memo: Any) -> Choice:
        guess = self.predict(view)
        rank = ranking(guess.log_odds)
        allowed = (rank + 2) * (1 - guess.confidence) <= self.factor
        allowed &= guess.confidence >= view.floor[:, None]
        first_failure = torch.where(allowed, rank.shape[-1], rank).amin(-1, keepdim=True)
        accept = (rank < first_failure.clamp_min(1)) & view.eligible
        return Choice(guess.tokens, accept)
