"""Models, views and canvases that tests write by hand: what a column answers is data, not the outcome of a network.

Letters: B rows, K undecided columns, Q queried columns, T columns of a script, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.decoding import BlockView
from dinfer.types import ModelSpec, Request

#: Tokens 0 to 9, end of text 10, end of turn 11, mask 12.
SPEC = ModelSpec(vocab=13, hidden=4, mask_id=12, eos_ids=(10, 11), max_length=4096)
EOS, EOT, MASK = 10, 11, 12


def sure(tokens: Sequence[int], chances: Sequence[float] | float = 0.95, spec: ModelSpec = SPEC) -> Tensor:
    """Logits [T, V] in float64: column i gives `tokens[i]` its chance and shares the rest among the other plain tokens."""
    chances = [chances] * len(tokens) if isinstance(chances, float) else chances
    plain = spec.vocab - 1 - len(spec.eos_ids)
    rows = torch.full((len(tokens), spec.vocab), -torch.inf, dtype=torch.float64)
    for row, token, chance in zip(rows, tokens, chances, strict=True):
        others = [t for t in range(plain) if t != token]
        row[others] = math.log((1 - chance) / len(others))
        row[token] = math.log(chance)
    return rows


def view_of(
    logits: Tensor,
    *,
    columns: Sequence[Sequence[int]] | None = None,
    eligible: Tensor | None = None,
    step: Sequence[int] | int = 0,
    age: Sequence[int] | int = 0,
    floor: float = -math.inf,
    seed: Sequence[int] | int = 0,
    spec: ModelSpec = SPEC,
) -> BlockView:
    """A view of logits [B, K, V] as the loop makes it: a copy, the mask token's value taken out."""
    rows, count = logits.shape[:2]
    own = logits.clone()
    mask_logit = own[..., spec.mask_id].clone()
    own[..., spec.mask_id] = -torch.inf
    at = torch.tensor(columns) if columns is not None else torch.arange(count).expand(rows, count)

    def per_row(value: Sequence[int] | int) -> Tensor:
        return torch.tensor([value] * rows if isinstance(value, int) else value)

    return BlockView(
        logits=own,
        mask_logit=mask_logit,
        columns=at,
        offset=at - at[:, :1],
        eligible=torch.ones(rows, count, dtype=torch.bool) if eligible is None else eligible,
        step=per_row(step),
        age=per_row(age),
        floor=torch.full((rows,), floor, dtype=torch.float64),
        seed=per_row(seed),
        spec=spec,
    )


def canvas_of(*rows: tuple[int, int], spec: ModelSpec = SPEC) -> Canvas:
    """A canvas of rows given as (prompt length, max_tokens)."""
    return Canvas.build([Request(str(i), (1,) * p, n, seed=i) for i, (p, n) in enumerate(rows)], spec, "cpu")


def chosen(accept: Tensor) -> list[set[int]]:
    """The accepted places of every row of a bool [B, K]."""
    return [set(row.nonzero().flatten().tolist()) for row in accept]


@dataclass(slots=True)
class _Page:
    """Which script each row follows [B], where its answer starts [B], and the canvas' length."""

    script: Tensor
    prompt: Tensor
    length: int


class Scripted:
    """A model whose answers are written down: `scripts[key]` are the logits [T, V] of a row whose prompt begins with `key`.

    Tokens are embedded as one-hot vectors. Per call, `asked` keeps the columns queried in each row and `shown` what stood
    there as {column: [V]}; `widths` keeps how many columns' logits were made at a time.
    """

    def __init__(self, scripts: Mapping[int, Tensor], spec: ModelSpec = SPEC) -> None:
        self.scripts = scripts
        self.spec = spec
        self.asked: list[list[list[int]]] = []
        self.shown: list[list[dict[int, Tensor]]] = []
        self.widths: list[int] = []

    def new_cache(self, canvas: Canvas) -> _Page:
        return _Page(canvas.tokens[:, 0].clone(), canvas.prompt.clone(), canvas.columns)

    def embed(self, tokens: Tensor) -> Tensor:
        return F.one_hot(tokens, self.spec.vocab).double()

    def blend(self, probs: Tensor) -> Tensor:
        return probs.double()

    def __call__(self, x: Tensor, slots: Tensor, cache: _Page, visible: Any, want: Tensor | None = None) -> Tensor:
        real = [[(i, s) for i, s in enumerate(row) if s < cache.length] for row in slots.tolist()]
        self.asked.append([[s for _, s in row] for row in real])
        self.shown.append([{s: x[b, i].clone() for i, s in row} for b, row in enumerate(real)])
        place = slots - cache.prompt[:, None]
        hidden = torch.stack((cache.script[:, None].expand_as(place), place), -1).double()
        return hidden if want is None else torch.take_along_dim(hidden, want[..., None], 1)

    def logits(self, hidden: Tensor) -> Tensor:
        self.widths.append(hidden.shape[:-1].numel())
        flat = hidden.reshape(-1, 2).long().tolist()
        nothing = torch.zeros(self.spec.vocab, dtype=torch.float64)
        rows = [self.scripts[key][at] if 0 <= at < len(self.scripts[key]) else nothing for key, at in flat]
        return torch.stack(rows).view(*hidden.shape[:-1], -1)
