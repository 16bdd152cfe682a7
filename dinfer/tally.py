"""What was done, counted row by row on the device and read by the host when a row is finished."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.types import Trace


@dataclass(slots=True)
class Tally:
    """`kinds` [B, 3] counts full, refresh and window forwards; `queried` [B] columns; `taken` holds [B] per step (-1: idle)."""

    kinds: Tensor
    queried: Tensor
    taken: list[Tensor] = field(default_factory=list)

    @classmethod
    def start(cls, canvas: Canvas) -> Tally:
        zero = torch.zeros_like(canvas.step)
        return cls(kinds=torch.stack((zero, zero, zero), 1), queried=zero.clone())

    @property
    def forwards(self) -> int:
        """Model calls of the batch so far."""
        return len(self.taken)

    def count(self, query: Tensor, moving: Tensor, refresh: Tensor, taken: Tensor, canvas: Canvas) -> None:
        """One step: columns queried [B, L], rows that moved, rows that refreshed, tokens taken [B]."""
        columns = query.sum(1)
        full = (columns == canvas.end) & ~refresh
        self.kinds += torch.stack((full & moving, refresh & moving, ~full & ~refresh & moving), 1)
        self.queried += columns
        self.taken.append(torch.where(moving, taken, -1))

    def trace(self, row: int) -> Trace:
        """The counts of one row; waits for the device."""
        taken = torch.stack([t[row] for t in self.taken]).tolist() if self.taken else []
        full, refresh, window = self.kinds[row].tolist()
        return Trace(tuple(n for n in taken if n >= 0), int(self.queried[row]), full, refresh, window)
