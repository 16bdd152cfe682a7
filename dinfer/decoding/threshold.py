"""Threshold decoding: take every token that is confident enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dinfer.decoding.view import BlockView, Choice, Sampled, at_least


@dataclass(frozen=True, kw_only=True)
class Threshold(Sampled):
    """Take all columns whose confidence reaches `threshold`, and always the best one (ties within 1e-5).

    Source: Fast-dLLM, arXiv:2505.22618. `threshold` in (0, 1]; 1 is one token a step.
    """

    threshold: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must lie in (0, 1], got {self.threshold}")

    def select(self, view: BlockView, memo: Any) -> Choice:
        guess = self.predict(view)
        bar = torch.clamp_min(view.floor, self.threshold)[:, None]
        return Choice(guess.tokens, at_least(guess.confidence, bar))
