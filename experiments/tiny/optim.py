"""Muon (Jordan et al., 2024) for hidden matrices, equal shapes orthogonalised together; everything else goes to AdamW.

The update is that of `torch.optim.Muon` with its default rate adjustment; batching the small matrices of a tiny network
makes it several times cheaper on a CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalise(g: Tensor, steps: int = 5) -> Tensor:
    """[N, r, c] -> the same shape with all singular values near 1 (quintic Newton-Schulz iteration)."""
    a, b, c = COEFFICIENTS
    wide = g.shape[-2] <= g.shape[-1]
    x = g if wide else g.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled by sqrt(max(1, rows / columns)); decoupled weight decay.

    A group's `pieces` is the number of equal row blocks that its fused matrices consist of, each a matrix of its own.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.95, weight_decay: float = 0.05) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "pieces": 1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    direction = self._direction(p, group["momentum"])
                    for piece, part in zip(p.chunk(group["pieces"]), direction.chunk(group["pieces"]), strict=True):
                        shapes[tuple(piece.shape)].append((piece, part))
            for (rows, columns), same in shapes.items():
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                updates = orthogonalise(torch.stack([part for _, part in same]))
                for (piece, _), update in zip(same, updates, strict=True):
                    piece.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)

    def _direction(self, p: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        assert p.grad is not None
        state["momentum"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(state["momentum"], momentum)
