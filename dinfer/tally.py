"""What was done, noted on the device at every step and read by the host when a row is finished."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dinfer.types import Trace


@dataclass(slots=True)
class Tally:
    """Per step the rows that moved, those that refreshed, columns queried, tokens taken, each [B]; `end` [B] is full width."""

    end: Tensor
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)
    _read: list[list[list[int]]] = field(default_factory=list)

    @property
    def forwards(self) -> int:
        """Model calls of the batch so far."""
        return len(self.steps)

    def count(self, moving: Tensor, refresh: Tensor, queried: Tensor, taken: Tensor) -> None:
        """Note one step; nothing is computed yet."""
        self.steps.append((moving, refresh, queried, taken))

    def trace(self, row: int) -> Trace:
        """The counts of one row; waits for the device."""
        new = self.steps[len(self._read) :]
        if new:
            self._read += torch.stack([torch.stack([part.long() for part in step], 1) for step in new]).tolist()
        width = int(self.end[row])
        mine = [step[row] for step in self._read if step[row][0]]
        refresh = sum(refreshed for _, refreshed, _, _ in mine)
        full = sum(not refreshed and queried == width for _, refreshed, queried, _ in mine)
        return Trace(
            committed=tuple(taken for *_, taken in mine),
            queried=sum(queried for _, _, queried, _ in mine),
            full=full,
            refresh=refresh,
            window=len(mine) - full - refresh,
        )
