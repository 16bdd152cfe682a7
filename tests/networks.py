"""Small random networks for tests, and one forward of everything through them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dinfer.models import Backbone
from dinfer.models.architecture import Architecture
from dinfer.models.attention import KVCache, visible_keys
from dinfer.types import ModelSpec, Request

SPEC = ModelSpec(vocab=97, hidden=48, mask_id=96, eos_ids=(95,), max_length=256)


def architecture(**changes: Any) -> Architecture:
    values: dict[str, Any] = {
        "vocab": 97,
        "hidden": 48,
        "layers": 2,
        "heads": 4,
        "kv_heads": 4,
        "ffn": 80,
        "rope_theta": 10000.0,
        "norm_eps": 1e-5,
        "max_length": 256,
    } | changes
    return Architecture(head_dim=values["hidden"] // values["heads"], **values)


def network(dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Backbone:
    """Random weights, norms and biases away from one and zero."""
    arch = architecture(exact=torch.float64 if dtype is torch.float64 else torch.float32, **changes)
    model = Backbone(arch, replace(SPEC, hidden=arch.hidden)).to(dtype).requires_grad_(False)
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=draw)
        parameter.copy_(noise * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 1 + 0.2 * noise)
    model.embedding.mul_(3)
    return model


def ids(rows: int, columns: int) -> Tensor:
    return torch.randint(0, 97, (rows, columns), generator=torch.Generator().manual_seed(columns))


def hidden_of(model: Backbone, tokens: Tensor, lengths: list[int] | None = None, want: Tensor | None = None) -> Tensor:
    """One forward of everything through a fresh cache."""
    rows, columns = tokens.shape
    slots = torch.arange(columns).expand(rows, columns)
    cache = KVCache.allocate(model.arch, rows, columns, model.embedding)
    end = torch.tensor(lengths or [columns] * rows)
    visible = visible_keys(slots, end, columns, model.spec.block, lengths is None)
    return model(model.embed(tokens), slots, cache, visible, want)


def by_hand(model: Backbone, request: Request, block: int, scale: float) -> tuple[int, ...]:
    """The generated tokens, one a step, the surest of the block, both branches of guidance from scratch every time."""
    mask = model.spec.mask_id
    tokens = torch.tensor([[*request.prompt, *[mask] * request.max_tokens]])
    first = len(request.prompt)
    for start in range(first, tokens.shape[1], block):
        stop = min(start + block, tokens.shape[1])
        while (tokens[0, start:stop] == mask).any():
            blank = tokens.clone()
            blank[:, :first] = mask
            given, without = (model.logits(model.full(model.embed(t)))[0] for t in (tokens, blank))
            chances = (without + (scale + 1) * (given - without)).softmax(-1)
            chances[:, mask] = 0
            best, token = chances.max(-1)
            best[tokens[0] != mask] = -1
            best[:start], best[stop:] = -1, -1
            tokens[0, best.argmax()] = token[best.argmax()]
    return tuple(tokens[0, first:].tolist())
