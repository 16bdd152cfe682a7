"""Iteration smoothing: masks carry what the model believed of them at the last step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.iteration.blockwise import Blockwise
from dinfer.types import DiffusionModel, ModelSpec

#: Columns of each row whose full distribution is held at once while beliefs are formed.
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class Smooth(Blockwise):
    """Blockwise, with e_mask + w * sum_v p(v) e_v in place of the mask embedding e_mask.

    p is the model's last distribution at that column, w = min(`weight_init` + `weight_growth` * age, `weight`) at the step
    that formed it. No confidence below 1 - `threshold_decay` * age is taken (except a row's best), until that falls below the
    strategy's own threshold; age counts a row's steps over all blocks. Source: dInfer, arXiv:2510.08666.

    A cache refresh is always followed by one window step, even when the refresh filled the block, for the beliefs around
    the block must have seen it filled.
    """

    weight: float = 0.3
    weight_init: float = 0.15
    weight_growth: float = 0.02
    threshold_decay: float = 0.02

    observes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight", "weight_init", "weight_growth", "threshold_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, got {getattr(self, name)}")

    def begin(self, canvas: Canvas, model: DiffusionModel) -> Any:
        """The weighted belief of every column, [B, L + 1, D], nothing at first; and the mask's id."""
        empty = model.embed(canvas.tokens[:, :1])
        return {"belief": empty.new_zeros(*canvas.tokens.shape, empty.shape[-1]), "mask": canvas.mask_id}

    def moving(self, canvas: Canvas, spec: ModelSpec) -> Tensor:
        settling = canvas.fresh & (canvas.step > 0) & ~self._finished(canvas, spec)
        return canvas.live & (self._undecided(canvas) | settling)

    def floor(self, canvas: Canvas) -> Tensor:
        return 1.0 - canvas.age.double() * self.threshold_decay

    def inputs(self, memo: Any, model: DiffusionModel, tokens: Tensor, slots: Tensor) -> Tensor:
        place = slots[..., None]
        belief = torch.take_along_dim(memo["belief"], place, dim=1)
        return model.embed(tokens) + belief * (tokens == memo["mask"])[..., None]

    def observe(self, memo: Any, model: DiffusionModel, hidden: Tensor, canvas: Canvas, slots: Tensor) -> None:
        weight = (self.weight_init + self.weight_growth * canvas.age.double()).clamp_max(self.weight)[:, None, None]
        for first in range(0, slots.shape[1], CHUNK):
            some = slice(first, first + CHUNK)
            belief = model.blend(torch.softmax(model.logits(hidden[:, some]), dim=-1))
            place = slots[:, some, None].expand_as(belief)
            memo["belief"].scatter_(1, place, belief * weight.to(belief.dtype))
