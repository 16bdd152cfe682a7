"""The one decoder network of every family; it knows columns and caches, not how tokens are chosen.

Letters: B rows, Q queried columns, K wanted columns, D hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dinfer.models.architecture import Architecture
from dinfer.models.attention import Attention, KVCache, rms_norm, rotary_table, rotate
from dinfer.types import ModelSpec

if TYPE_CHECKING:
    from dinfer.canvas import Canvas


class FeedForward(nn.Module):
    """SwiGLU; gate and up projections are one matrix (gate first)."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.gate_up = nn.Linear(arch.hidden, 2 * arch.ffn, bias=False)
        self.down = nn.Linear(arch.ffn, arch.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.attn_norm = nn.Parameter(torch.ones(arch.hidden))
        self.attn = Attention(arch)
        self.ffn_norm = nn.Parameter(torch.ones(arch.hidden))
        self.ffn = FeedForward(arch)

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + mixed
        return x + self.ffn(rms_norm(x, self.ffn_norm, self.arch))


class Backbone(nn.Module):
    """A transformer decoder over token columns, `DiffusionModel` in the sense of `dinfer.types`.

    Forward passes read and write a `KVCache`; `full` is the same network without one, for training.
    """

    def __init__(self, arch: Architecture, spec: ModelSpec) -> None:
        super().__init__()
        self.arch = arch
        self.spec = spec
        self.embedding = nn.Parameter(torch.empty(arch.vocab, arch.hidden))
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.layers))
        self.norm = nn.Parameter(torch.ones(arch.hidden))
        self.head = self.embedding if arch.tied else nn.Parameter(torch.empty(arch.vocab, arch.hidden))

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def stack(self) -> Iterator[Layer]:
        """The layers, first to last."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def new_cache(self, canvas: Canvas) -> KVCache:
        """Zeroed buffers for the rows and columns of `canvas`."""
        return KVCache.allocate(self.arch, canvas.rows, canvas.columns, self.embedding)

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, Q] ids -> [B, Q, D]."""
        return F.embedding(tokens, self.embedding)

    def blend(self, probs: Tensor) -> Tensor:
        """[..., V] probabilities -> [..., D], the expected embedding."""
        return probs.to(self.dtype) @ self.embedding

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return F.linear(hidden, self.head)

    def forward(self, x: Tensor, slots: Tensor, cache: KVCache, visible: Tensor | None, want: Tensor | None = None) -> Tensor:
        """x [B, Q, D] at `slots` [B, Q] -> normed hidden [B, Q, D]; with `want` [B, K] (places in Q) [B, K, D].

        `visible` is what `attention.visible_keys` gives for these slots. The last layer works on the wanted columns
        only: every queried column still writes its keys and values.
        """
        last = len(self.layers) - 1
        cos, sin = cache.cos[slots][:, :, None], cache.sin[slots][:, :, None]
        for index, layer in enumerate(self.stack):
            h = rms_norm(x, layer.attn_norm, self.arch)
            keys, values = layer.attn.keys_values(h)
            keys, values = cache.write(index, slots, rotate(keys, cos, sin), values)
            if index == last and want is not None:
                place = want[..., None]
                x, h = (torch.take_along_dim(t, place, dim=1) for t in (x, h))
                cos, sin = (torch.take_along_dim(t, place[..., None], dim=1) for t in (cos, sin))
                if visible is not None and visible.shape[2] > 1:
                    visible = torch.take_along_dim(visible, want[:, None, :, None], dim=2)
            q = rotate(layer.attn.queries(h), cos, sin)
            x = layer.finish(x, layer.attn.attend(q, keys, values, visible))
        return rms_norm(x, self.norm, self.arch)

    def full(self, x: Tensor) -> Tensor:
        """x [B, T, D] -> normed hidden [B, T, D]: no cache, every position sees every other; differentiable."""
        cos, sin = rotary_table(self.arch, x.shape[1], x.device)
        cos, sin = cos[None, :, None], sin[None, :, None]
        for layer in self.stack:
            h = rms_norm(x, layer.attn_norm, self.arch)
            keys, values = layer.attn.keys_values(h)
            q, keys = rotate(layer.attn.queries(h), cos, sin), rotate(keys, cos, sin)
            mixed = layer.attn.attend(q, keys.transpose(1, 2), values.transpose(1, 2), None)
            x = layer.finish(x, mixed)
        return rms_norm(x, self.norm, self.arch)
