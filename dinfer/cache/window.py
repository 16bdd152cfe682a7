"""Recompute a window around the block, read the rest from the cache: none, prefix, dual and vicinity are its settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dinfer.cache.policy import Plan
from dinfer.canvas import Canvas
from dinfer.types import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Window:
    """Recompute `before` columns left of the block, the block, and `after` columns right of it; null means all of them.

    The whole row is recomputed when a block opens, in each row's first `warmup` steps and at the step after those, and, with
    `refresh_every` = n, before every n-th window step of an answer. As in dInfer, a warm-up that ends inside a later block
    than the first is followed by a second refresh there, two steps after the first. (null, null) caches nothing; (0, null)
    is Fast-dLLM's prefix cache and (0, 0) its dual cache, arXiv:2505.22618; (16, 16) is dInfer's vicinity refresh,
    arXiv:2510.08666.
    """

    before: int | None = None
    after: int | None = None
    refresh_every: int | None = None
    warmup: int = 0

    def __post_init__(self) -> None:
        for name in ("before", "after", "warmup"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0{'' if name == 'warmup' else ' or null'}, got {value}")
        if self.refresh_every is not None and self.refresh_every < 1:
            raise ValueError(f"refresh_every must be at least 1 or null, got {self.refresh_every}")
        if self.before is None and self.after is None and (self.refresh_every is not None or self.warmup):
            raise ValueError("refresh_every and warmup need a window: before and after are both null, nothing is cached")

    def plan(self, canvas: Canvas, spec: ModelSpec) -> Plan:
        everything = canvas.between(torch.zeros_like(canvas.end), canvas.end)
        if self.before is None and self.after is None:
            return Plan(everything, torch.zeros_like(canvas.live))
        warming = canvas.age < self.warmup
        refresh = ~warming & self._due(canvas)
        first = torch.zeros_like(canvas.start) if self.before is None else canvas.start - self.before
        last = canvas.end if self.after is None else torch.minimum(canvas.stop + self.after, canvas.end)
        window = canvas.between(first, last)
        return Plan(torch.where((warming | refresh)[:, None], everything, window), refresh)

    def _due(self, canvas: Canvas) -> Tensor:
        due = (canvas.step == 0) | (canvas.age == self.warmup)
        due |= (canvas.age == self.warmup + 2) & (canvas.step >= 2) & (canvas.start > canvas.prompt)
        if self.refresh_every is not None:
            due |= ~canvas.fresh & ((canvas.round - self.warmup) % self.refresh_every == 0)
        return due
