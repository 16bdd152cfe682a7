"""The numbers that fix a decoder network, whatever family it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

QK_NORMS = (None, "full")


@dataclass(frozen=True, slots=True)
class Architecture:
    """Switches of the one decoder class.

    `vocab` counts rows of the embedding. `qk_norm` = "full" normalises queries and keys over their whole width before
    rotation (OLMo, LLaDA with `attention_layer_norm`). `qkv_bias` adds a bias to the three input projections.
    `exact` is the precision of norms and rotations, whatever that of the weights.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_theta: float
    norm_eps: float
    max_length: int
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: str | None = None
    exact: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        for name in ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.rope_theta > 0:
            raise ValueError(f"rope_theta must be above 0, got {self.rope_theta}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary embedding, got {self.head_dim}")
        if self.qk_norm not in QK_NORMS:
            raise ValueError(f"qk_norm must be one of {QK_NORMS}, got {self.qk_norm!r}")

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values for one column."""
        return 2 * self.layers * self.kv_width * itemsize
