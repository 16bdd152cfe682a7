"""Attention over a key/value buffer that is written in place, and who may see whom.

Keys are stored rotated, in the slot that is their column. Letters: B rows, Q queried columns, L columns, H heads, d head
width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dinfer.models.architecture import Architecture


def rotary_table(arch: Architecture, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin [columns, d] in `arch.exact`, the two halves alike (rotate-half); the angles are float32 as in training."""
    steps = torch.arange(0, arch.head_dim, 2, device=device, dtype=torch.float32) / arch.head_dim
    angles = torch.outer(torch.arange(columns, device=device, dtype=torch.float32), 1.0 / arch.rope_theta**steps)
    angles = torch.cat((angles, angles), dim=-1).to(arch.exact)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, Q, H, d] turned by cos, sin [B, Q, 1, d], in the precision of the table."""
    exact = x.to(cos.dtype)
    half = x.shape[-1] // 2
    turned = torch.cat((-exact[..., half:], exact[..., :half]), dim=-1)
    return (exact * cos + turned * sin).to(x.dtype)


@dataclass(slots=True)
class KVCache:
    """Keys and values of every layer, `[layers][B, Hkv, L + 1, d]`; the last slot swallows what has nowhere to go."""

    keys: list[Tensor]
    values: list[Tensor]
    cos: Tensor
    sin: Tensor
    rows: Tensor
    length: int

    @classmethod
    def allocate(cls, arch: Architecture, rows: int, columns: int, like: Tensor) -> KVCache:
        shape = (rows, arch.kv_heads, columns + 1, arch.head_dim)
        cos, sin = rotary_table(arch, columns + 1, like.device)
        return cls(
            keys=[like.new_zeros(shape) for _ in range(arch.layers)],
            values=[like.new_zeros(shape) for _ in range(arch.layers)],
            cos=cos,
            sin=sin,
            rows=torch.arange(rows, device=like.device)[:, None],
            length=columns,
        )

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [B, Q, Hkv, d] at `slots` and return views [B, Hkv, L, d] of everything stored."""
        self.keys[layer][self.rows, :, slots] = keys
        self.values[layer][self.rows, :, slots] = values
        return self.keys[layer][:, :, : self.length], self.values[layer][:, :, : self.length]


def visible_keys(slots: Tensor, end: Tensor, length: int, block: int | None, uniform: bool) -> Tensor | None:
    """Boolean mask [B, 1, Q or 1, L] of the columns each query may read; None when that is every column.

    `end` [B] is where a row's columns stop; `uniform` says all rows stop at `length`. With `block` a query sees its own
    block and earlier ones (block-causal attention).
    """
    if block is None and uniform:
        return None
    columns = torch.arange(length, device=slots.device)
    mask = (columns < end[:, None])[:, None, None]
    if block is None:
        return mask
    return mask & (columns // block <= (slots // block)[:, None, :, None])


class Attention(nn.Module):
    """Grouped-query attention with rotary embedding; the three input projections are one matrix (q, then k, then v)."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.qkv = nn.Linear(arch.hidden, arch.q_width + 2 * arch.kv_width, bias=arch.qkv_bias)
        self.out = nn.Linear(arch.q_width, arch.hidden, bias=False)
        if arch.qk_norm == "full":
            self.q_norm = nn.RMSNorm(arch.q_width, eps=arch.norm_eps)
            self.k_norm = nn.RMSNorm(arch.kv_width, eps=arch.norm_eps)

    def _part(self, x: Tensor, first: int, last: int) -> Tensor:
        bias = None if self.qkv.bias is None else self.qkv.bias[first:last]
        return F.linear(x, self.qkv.weight[first:last], bias)

    def queries(self, x: Tensor) -> Tensor:
        """[B, Q, D] -> unrotated [B, Q, H, d]."""
        q = self._part(x, 0, self.arch.q_width)
        if self.arch.qk_norm == "full":
            q = rms_norm(q, self.q_norm.weight, self.arch)
        return q.unflatten(-1, (self.arch.heads, self.arch.head_dim))

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, Q, D] -> unrotated keys and values, each [B, Q, Hkv, d]."""
        first, width = self.arch.q_width, self.arch.kv_width
        k, v = self._part(x, first, first + 2 * width).split(width, dim=-1)
        if self.arch.qk_norm == "full":
            k = rms_norm(k, self.k_norm.weight, self.arch)
        shape = (self.arch.kv_heads, self.arch.head_dim)
        return k.unflatten(-1, shape), v.unflatten(-1, shape)

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """q [B, Q, H, d], keys and values [B, Hkv, L, d] -> [B, Q, D]."""
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=self.arch.heads != self.arch.kv_heads
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


def rms_norm(x: Tensor, weight: Tensor, arch: Architecture) -> Tensor:
    """Root-mean-square norm over the last axis: normalise in `arch.exact`, cast back, then scale."""
    exact = x.to(arch.exact)
    exact = exact * torch.rsqrt(exact.square().mean(dim=-1, keepdim=True) + arch.norm_eps)
    return exact.to(x.dtype) * weight
