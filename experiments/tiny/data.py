"""The training stream: instances to token rows, rows to batches of few shapes, answers masked. Numbered, so resumable.

Letters: B rows, T columns.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import draw_from, generator
from evals.builtin.mix import PARTS
from experiments.tiny.tokenizer import ROLES

BLOCKS = (4, 8, 16, 32)
COPY_COLUMNS = 48


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens [B, T] unmasked; prompt [B] lengths; answers are columns from there to T, EOS after their end."""

    tokens: Tensor
    prompt: Tensor
    length: Tensor


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each task, and each of its kinds, is drawn; kinds not named weigh 1."""

    tasks: dict[str, float] = field(
        default_factory=lambda: {
            "builtin_math": 0.32,
            "builtin_code": 0.16,
            "builtin_output": 0.2,
            "builtin_instruct": 0.12,
            "builtin_lists": 0.2,
        }
    )
    kinds: dict[str, float] = field(
        default_factory=lambda: {"one": 1.3, "sort": 2.5, "string": 1.3, "string_two": 1.5, "list_two": 1.5, "sentences": 1.5}
    )


class Stream:
    """Batches of about `tokens` tokens; a share `full` of answers is padded to `canvas` tokens."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        buckets: tuple[int, ...],
        tokens: int,
        mixture: Mixture,
        full: float,
        canvas: int,
    ) -> None:
        self.tokenizer, self.seed, self.buckets, self.tokens = tokenizer, seed, buckets, tokens
        self.mixture, self.full, self.canvas = mixture, full, canvas
        self.parts: dict[str, BuiltinTask] = {part().name: part("train") for part in PARTS}
        self.index = 0
        self.waiting: dict[int, list[tuple[list[int], int, int]]] = defaultdict(list)

    def state_dict(self) -> dict[str, Any]:
        return {"index": self.index, "waiting": dict(self.waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.index = state["index"]
        self.waiting = defaultdict(list, state["waiting"])

    def rows(self, columns: int) -> int:
        return max(1, self.tokens // columns)

    def copying(self) -> Batch:
        """Rows of random tokens to copy: what a fresh network must learn before anything else takes off."""
        rng = generator("copy", self.seed, self.index)
        self.index += 1
        columns = COPY_COLUMNS
        ids = [i for i in range(len(self.tokenizer)) if i not in self.tokenizer.all_special_ids]
        rows = []
        for _ in range(self.rows(columns)):
            body = [rng.choice(ids) for _ in range(rng.randint(6, columns // 2 - 2))]
            answer = body if rng.random() < 0.6 else body[::-1]
            marks = self.marks(0 if answer is body else 1)
            rows.append(([*marks[:1], *body, *marks[1:], *answer], len(body) + 2, len(answer)))
        return self._batch(rows, columns)

    def marks(self, mode: int) -> tuple[int, int]:
        system, user, assistant = (self.tokenizer.vocab[role] for role in ROLES)
        return (system if mode else user), assistant

    def next(self) -> Batch:
        """The next full batch; which one depends on the seed and on how many were taken before."""
        while True:
            for columns, rows in self.waiting.items():
                if len(rows) >= self.rows(columns):
                    ready, self.waiting[columns] = rows[: self.rows(columns)], rows[self.rows(columns) :]
                    return self._batch(ready, columns)
            self._draw()

    def _draw(self) -> None:
        rng = generator("train", self.seed, self.index)
        self.index += 1
        names = list(self.mixture.tasks)
        part = self.parts[rng.choices(names, [self.mixture.tasks[name] for name in names])[0]]
        kind = rng.choices(part.kinds, [self.mixture.kinds.get(kind, 1.0) for kind in part.kinds])[0]
        instance = draw_from(part.draw, kind, "train", rng)
        user, assistant = self.marks(0)
        prompt = [user, *self.tokenizer(instance.prompt)["input_ids"], assistant]
        answer = self.tokenizer(instance.target)["input_ids"]
        row = (prompt + answer, len(prompt), len(answer))
        wide = rng.random() < self.full
        columns = self._bucket(len(prompt) + self.canvas if wide else len(row[0]) + 1)
        self.waiting[columns].append(row)

    def _bucket(self, needed: int) -> int:
        fitting = [columns for columns in self.buckets if columns >= needed]
        if not fitting:
            raise ValueError(f"buckets must hold {needed} tokens, got {self.buckets}")
        return fitting[0]

    def _batch(self, rows: list[tuple[list[int], int, int]], columns: int) -> Batch:
        tokens = torch.full((len(rows), columns), self.tokenizer.eos_token_id)
        for tensor, (ids, _, _) in zip(tokens, rows, strict=True):
            tensor[: len(ids)] = torch.tensor(ids)
        return Batch(tokens, torch.tensor([row[1] for row in rows]), torch.tensor([row[2] for row in rows]))


def mask_answers(batch: Batch, blockwise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(hidden [B, T], scored [B, T]): which columns are shown as masks, and which count in the loss.

    Most rows follow LLaDA: a ratio t, spread evenly over the batch, and each answer column masked with probability t.
    A share `blockwise` of rows looks like semi-autoregressive decoding: clean up to a block, the block masked with
    probability t, all masks after it, and only the block scored.
    """
    rows, columns = batch.tokens.shape
    place = torch.arange(columns)
    answer = place >= batch.prompt[:, None]
    t = (torch.rand(1, generator=generator) + torch.randperm(rows, generator=generator) / rows) % 1
    t = t.clamp(min=0.03)[:, None]
    noise = torch.rand(rows, columns, generator=generator)
    masked = answer & (noise < t)
    sizes = torch.tensor(BLOCKS)[torch.randint(len(BLOCKS), (rows,), generator=generator)]
    blocks = (batch.length + 1 + sizes - 1) // sizes
    chosen = (torch.rand(rows, generator=generator) * blocks).long()
    start = (batch.prompt + chosen * sizes)[:, None]
    stop = start + sizes[:, None]
    inside = answer & (place >= start) & (place < stop)
    semi = (torch.rand(rows, generator=generator) < blockwise)[:, None]
    hidden = torch.where(semi, (inside & (noise < t)) | (place >= stop), masked)
    scored = torch.where(semi, inside & hidden, masked)
    return hidden, scored
