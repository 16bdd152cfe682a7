"""Classifier-free guidance as a model around a model: the strategy never knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.types import DiffusionModel, ModelSpec


@dataclass(slots=True)
class _Pair:
    given: Any
    blank: Any
    prompt: Tensor


@dataclass(slots=True)
class Guided:
    """logits = u + (scale + 1)(c - u): c sees the prompt, u sees it masked. Each branch has a cache of its own.

    Source: LLaDA, arXiv:2502.09992. The hidden states of both branches travel side by side, [B, Q, 2 D].
    """

    model: DiffusionModel
    scale: float
    spec: ModelSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.model.spec

    def new_cache(self, canvas: Canvas) -> _Pair:
        return _Pair(self.model.new_cache(canvas), self.model.new_cache(canvas), canvas.prompt)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.model.embed(tokens)

    def blend(self, probs: Tensor) -> Tensor:
        return self.model.blend(probs)

    def __call__(self, x: Tensor, slots: Tensor, cache: _Pair, visible: Any, want: Tensor | None = None) -> Tensor:
        mask = self.model.embed(torch.full_like(slots[:1, :1], self.spec.mask_id))
        blank = torch.where((slots < cache.prompt[:, None])[..., None], mask, x)
        given = self.model(x, slots, cache.given, visible, want)
        return torch.cat((given, self.model(blank, slots, cache.blank, visible, want)), dim=-1)

    def logits(self, hidden: Tensor) -> Tensor:
        given, blank = (self.model.logits(half) for half in hidden.chunk(2, dim=-1))
        return blank + (self.scale + 1.0) * (given - blank)
