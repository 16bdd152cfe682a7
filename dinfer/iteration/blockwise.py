"""Blocks from left to right, the model shown the tokens as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.types import DiffusionModel, ModelSpec


@dataclass(frozen=True, kw_only=True)
class Blockwise:
    """Semi-autoregressive decoding: fill a block of `block_length` columns, then open the next.

    Blocks count from the prompt's end, or with `align` from column 0, so that the first one holds the prompt's tail.
    With `early_stop` a row ends when a finished block holds an end-of-sequence id. Source: LLaDA, arXiv:2502.09992.
    """

    block_length: int = 32
    early_stop: bool = True
    align: bool = False

    #: Whether `observe` needs the hidden states of all queried columns.
    observes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {self.block_length}")

    def begin(self, canvas: Canvas, model: DiffusionModel) -> Any:
        """What is carried from step to step: nothing."""
        return None

    def moving(self, canvas: Canvas, spec: ModelSpec) -> Tensor:
        """[B] bool: rows with work left in their open block."""
        return canvas.live & self._undecided(canvas)

    def advance(self, canvas: Canvas, spec: ModelSpec, lockstep: bool) -> None:
        """Close finished blocks, end finished rows, open next blocks; in `lockstep` no row opens before all can."""
        waiting = canvas.live & ~self.moving(canvas, spec)
        done = waiting & self._finished(canvas, spec)
        canvas.live &= ~done
        opening = waiting & ~done
        if lockstep:
            opening &= (opening | ~canvas.live).all()
        start = canvas.stop
        if self.align:
            start = torch.where(canvas.age == 0, start // self.block_length * self.block_length, start)
        stop = torch.minimum(start + self.block_length, canvas.end)
        canvas.previous = torch.where(opening, canvas.start, canvas.previous)
        canvas.start = torch.where(opening, start, canvas.start)
        canvas.stop = torch.where(opening, stop, canvas.stop)
        canvas.round += opening & canvas.fresh
        canvas.step = torch.where(opening, 0, canvas.step)

    def floor(self, canvas: Canvas) -> Tensor:
        """[B]: the confidence below which only a row's best column may be taken; here none."""
        return torch.full_like(canvas.step, -torch.inf, dtype=torch.float64)

    def inputs(self, memo: Any, model: DiffusionModel, tokens: Tensor, slots: Tensor) -> Tensor:
        """tokens [B, Q] at `slots` [B, Q] -> what the model reads, [B, Q, D]."""
        return model.embed(tokens)

    def observe(self, memo: Any, model: DiffusionModel, hidden: Tensor, canvas: Canvas, slots: Tensor) -> None:
        """Learn from a forward: hidden [B, M, D] of queried columns `slots` [B, M] that are still masked."""

    def _undecided(self, canvas: Canvas) -> Tensor:
        return (canvas.masked() & canvas.block()).any(1)

    def _finished(self, canvas: Canvas, spec: ModelSpec) -> Tensor:
        """[B] bool: rows that need no further block, given that the open one is full."""
        last = canvas.stop >= canvas.end
        return last | canvas.holds(spec.eos_ids) if self.early_stop else last
