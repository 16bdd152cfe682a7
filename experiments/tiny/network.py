"""The pass of a `Backbone` that training uses: plain matrix attention, and the last feed-forward on scored columns only.

On a CPU this is about a third faster than `Backbone.full`, and gives the same states.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dinfer.models.attention import rms_norm, rotary_table, rotate
from dinfer.models.backbone import Backbone


def scored_states(model: Backbone, tokens: Tensor, scored: Tensor) -> Tensor:
    """tokens [B, T], scored [B, T] bool -> normed hidden states [N, D] of the scored columns, row by row."""
    x = model.embed(tokens)
    table = rotary_table(model.arch, tokens.shape[1], tokens.device)
    cos, sin = (part[None, :, None] for part in table)
    for index, layer in enumerate(model.stack):
        h = rms_norm(x, layer.attn_norm, model.arch)
        keys, values = layer.attn.keys_values(h)
        q, keys = rotate(layer.attn.queries(h), cos, sin), rotate(keys, cos, sin)
        mixed = layer.attn.out(_attention(q, keys, values))
        if index == model.arch.layers - 1:
            x, mixed = x[scored], mixed[scored]
        x = layer.finish(x, mixed)
    return rms_norm(x, model.norm, model.arch)


def _attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """q [B, T, H, d], keys and values [B, T, Hkv, d] -> [B, T, H * d]; every column sees every other."""
    groups = q.shape[2] // keys.shape[2]
    if groups > 1:
        keys, values = (t.repeat_interleave(groups, dim=2) for t in (keys, values))
    q, keys, values = (t.transpose(1, 2) for t in (q * q.shape[-1] ** -0.5, keys, values))
    weights = torch.softmax(q @ keys.mT, dim=-1)
    return (weights @ values).transpose(1, 2).flatten(2)
