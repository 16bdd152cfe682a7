"""The answer of a cache policy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)
class Plan:
    """`columns` [B, L] bool are recomputed; `refresh` [B] bool marks rows whose cache is renewed as a whole."""

    columns: Tensor
    refresh: Tensor
