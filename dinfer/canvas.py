"""The state of a batch: tokens and where each row stands. Decides nothing.

Prompts are left-aligned, column = position = cache slot, and column L is a spare that swallows what has nowhere to go.
Letters: B rows, L columns (the longest row), K columns of a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from dinfer.types import ModelSpec, Request


@dataclass(slots=True)
class Canvas:
    """Everything that changes while a batch is decoded, on the model's device.

    `tokens` [B, L + 1] ids; all others are [B]: `prompt` and `end` are the first generated column and the one after the last;
    `[start, stop)` is the block being decoded and `previous` the start of the one before; `step` counts a row's steps
    within its block, `age` all its steps, `round` its cache rounds (a refresh and the window step after it are one);
    `fresh` says that its last step was a refresh; `live` that it is not finished; `seed` drives its noise.
    `positions` [L + 1] counts columns and `generated` [B, L] marks those between `prompt` and `end`.
    """

    tokens: Tensor
    prompt: Tensor
    end: Tensor
    start: Tensor
    stop: Tensor
    previous: Tensor
    step: Tensor
    age: Tensor
    round: Tensor
    fresh: Tensor
    live: Tensor
    seed: Tensor
    positions: Tensor
    generated: Tensor
    mask_id: int
    uniform: bool

    @classmethod
    def build(cls, requests: Sequence[Request], spec: ModelSpec, device: torch.device | str) -> Canvas:
        """All generated columns masked; no block open yet. ValueError when a row exceeds the model's length."""
        ends = [len(r.prompt) + r.max_tokens for r in requests]
        for request, length in zip(requests, ends, strict=True):
            if length > spec.max_length:
                raise ValueError(
                    f"prompt and max_tokens must fit the model's {spec.max_length} positions, got "
                    f"{len(request.prompt)} + {request.max_tokens} (request {request.id!r})"
                )
        columns = max(ends)
        tokens = torch.full((len(requests), columns + 1), spec.mask_id, dtype=torch.long)
        for row, request in enumerate(requests):
            tokens[row, : len(request.prompt)] = torch.tensor(request.prompt, dtype=torch.long)

        def column(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        prompt, end = column([len(r.prompt) for r in requests]), column(ends)
        positions = torch.arange(columns + 1, device=device)
        generated = (positions[:-1] >= prompt[:, None]) & (positions[:-1] < end[:, None])
        zero = torch.zeros_like(prompt)
        return cls(
            tokens=tokens.to(device),
            prompt=prompt,
            end=end,
            start=prompt.clone(),
            stop=prompt.clone(),
            previous=prompt.clone(),
            step=zero.clone(),
            age=zero.clone(),
            round=zero.clone(),
            fresh=zero.bool(),
            live=torch.ones_like(zero, dtype=torch.bool),
            seed=column([r.seed for r in requests]),
            positions=positions,
            generated=generated,
            mask_id=spec.mask_id,
            uniform=len(set(ends)) == 1,
        )

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    @property
    def columns(self) -> int:
        """L, without the spare column."""
        return self.tokens.shape[1] - 1

    def between(self, first: Tensor, last: Tensor) -> Tensor:
        """[B, L] bool: columns in `[first, last)`, both [B]."""
        at = self.positions[:-1]
        return (at >= first[:, None]) & (at < last[:, None])

    def block(self) -> Tensor:
        """[B, L] bool: the columns of each row's current block, prompt columns included."""
        return self.between(self.start, self.stop)

    def masked(self) -> Tensor:
        """[B, L] bool: generated columns that hold the mask token (a mask id inside a prompt is text)."""
        return (self.tokens[:, :-1] == self.mask_id) & self.generated

    def holds(self, ids: Sequence[int]) -> Tensor:
        """[B] bool: a generated column of the current block holds one of `ids`."""
        found = torch.zeros_like(self.tokens[:, :-1], dtype=torch.bool)
        for token in ids:
            found |= self.tokens[:, :-1] == token
        return (found & self.generated & self.block()).any(1)

    def commit(self, columns: Tensor, tokens: Tensor, accept: Tensor) -> None:
        """Write `tokens` [B, K] at `columns` where `accept`; refused ones fall into the spare column."""
        self.tokens.scatter_(1, torch.where(accept, columns, self.columns), tokens)

    def tick(self, moving: Tensor, refresh: Tensor) -> None:
        """One step is over for the rows in `moving` [B]; `refresh` [B] says which of them renewed their cache."""
        self.step += moving
        self.age += moving
        self.round += moving & ~refresh
        self.fresh = torch.where(moving, refresh, self.fresh)

    def copy(self) -> Canvas:
        """The same state on which one can look ahead; the tokens are shared."""
        twin = replace(self)
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor) and value is not self.tokens:
                setattr(twin, f.name, value.clone())
        return twin


def compact(chosen: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Columns chosen by a bool [B, L], in order: slots [B, width] padded with L, and the rank [B, L] of each column."""
    rows, length = chosen.shape
    rank = chosen.cumsum(1) - 1
    slots = torch.full((rows, width + 1), length, dtype=torch.long, device=chosen.device)
    at = torch.arange(length, device=chosen.device).expand(rows, length)
    slots.scatter_(1, torch.where(chosen, rank, width), at)
    return slots[:, :width], rank
