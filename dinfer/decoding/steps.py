"""Fixed schedules: so many tokens a step, or so many steps a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.decoding.view import BlockView, Choice, Sampled, ranking, uniform_noise
from dinfer.types import ModelSpec

REMASKING = ("low_confidence", "random")


@dataclass(frozen=True, kw_only=True)
class Steps(Sampled):
    """LLaDA's schedule: each step takes a fixed number of columns and leaves the others masked.

    Exactly one of `tokens_per_step` (k columns a step) and `steps_per_block` (a block's n masks are spread over that many
    steps, the remainder over the first ones) is set. `remasking` says which columns are taken: the most confident
    ("low_confidence" remasks the others) or "random" ones. Source: arXiv:2502.09992.
    """

    tokens_per_step: int | None = 1
    steps_per_block: int | None = None
    remasking: str = "low_confidence"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.tokens_per_step is None) == (self.steps_per_block is None):
            raise ValueError(
                "set exactly one of tokens_per_step and steps_per_block (the other to null), got "
                f"{self.tokens_per_step} and {self.steps_per_block}"
            )
        for name in ("tokens_per_step", "steps_per_block"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.remasking not in REMASKING:
            raise ValueError(f"remasking must be one of {', '.join(REMASKING)}, got {self.remasking!r}")

    def begin(self, canvas: Canvas, spec: ModelSpec) -> dict[str, Tensor]:
        """The number of masks each row's block started with, [B]."""
        return {"masks": torch.zeros_like(canvas.step)}

    def select(self, view: BlockView, memo: Any) -> Choice:
        guess = self.predict(view)
        memo["masks"] = torch.where(view.step == 0, view.eligible.sum(-1), memo["masks"])
        score = guess.log_odds
        if self.remasking == "random":
            noise = uniform_noise(view.seed, view.age, view.columns)
            score = noise.masked_fill(~view.eligible, -torch.inf)
        rank = ranking(score)
        accept = (rank < self._quota(view, memo["masks"])[:, None]) & (guess.confidence >= view.floor[:, None])
        return Choice(guess.tokens, (accept | (rank == 0)) & view.eligible)

    def _quota(self, view: BlockView, masks: Tensor) -> Tensor:
        if self.tokens_per_step is not None:
            return torch.full_like(masks, self.tokens_per_step)
        assert self.steps_per_block is not None
        share = masks // self.steps_per_block
        return (share + (view.step < masks % self.steps_per_block)).clamp_min(1)
