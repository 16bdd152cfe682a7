"""The one loop: it asks the four parts their questions, moves their answers, and counts. It decides nothing itself.

Letters: B rows, L columns, Q queried columns, K undecided columns of the block, M masked columns to observe, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dinfer.canvas import Canvas, compact
from dinfer.decoding.view import BlockView
from dinfer.guidance import Guided
from dinfer.models.attention import visible_keys
from dinfer.tally import Tally
from dinfer.types import DiffusionModel, Recipe, Request, Trace


@dataclass(frozen=True, slots=True)
class Finished:
    """Row `row` is done: its generated columns as they stand, and how it was decoded."""

    row: int
    tokens: tuple[int, ...]
    trace: Trace
    batch_forwards: int


@dataclass(slots=True)
class _Widths:
    """What the host must know to run the next steps: how many, and how wide. `queried` 0: nothing is left to do."""

    steps: int
    queried: int
    undecided: int
    observed: int


class Decoder:
    """One batch on one model. Holds the batch's canvas, cache and memos; nothing outlives it."""

    def __init__(
        self, model: DiffusionModel, requests: Sequence[Request], recipe: Recipe, device: torch.device, lockstep: bool
    ) -> None:
        self.model: DiffusionModel = Guided(model, recipe.guidance) if recipe.guidance else model
        self.spec = model.spec
        self.recipe = recipe
        self.lockstep = lockstep
        self.canvas = Canvas.build(requests, self.spec, device)
        self.cache = self.model.new_cache(self.canvas)
        self.shown = recipe.iteration.begin(self.canvas, self.model)
        self.chosen = recipe.decoding.begin(self.canvas, self.spec)
        self.tally = Tally.start(self.canvas)

    @torch.inference_mode()
    def run(self, sync_every: int = 1) -> Iterator[Finished]:
        """Decode to the end, yielding rows as they finish. The host waits once per `sync_every` steps at most."""
        open_rows = list(range(self.canvas.rows))
        while open_rows:
            self.recipe.iteration.advance(self.canvas, self.spec, self.lockstep)
            widths, live = self._measure(sync_every)
            for row in [r for r in open_rows if not live[r]]:
                open_rows.remove(row)
                yield self._finished(row)
            for _ in range(widths.steps if open_rows else 0):
                self._step(widths)

    def _finished(self, row: int) -> Finished:
        first, last = self.canvas.prompt[row], self.canvas.end[row]
        tokens = self.canvas.tokens[row, first:last].tolist()
        return Finished(row, tuple(tokens), self.tally.trace(row), self.tally.forwards)

    def _measure(self, most: int) -> tuple[_Widths, list[bool]]:
        """Look `most` steps ahead and hold on as long as the width stays the same, so that results cannot depend on it."""
        ahead, masked = self.canvas.copy(), self.canvas.masked()
        moving = self.recipe.iteration.moving(self.canvas, self.spec)
        undecided = (masked & self.canvas.block() & moving[:, None]).sum(1).amax()
        queried, observed = [], []
        for _ in range(most):
            query, refresh = self._plan(ahead, moving)
            queried.append(query.sum(1).amax())
            observed.append((query & masked).sum(1).amax())
            ahead.tick(moving, refresh)
        numbers = torch.stack([undecided, *queried, *observed])
        undecided, *rest = torch.cat((numbers, self.canvas.live.long())).tolist()
        wide, seen, live = rest[:most], rest[most : 2 * most], rest[2 * most :]
        hold = next((i for i, w in enumerate(wide) if w != wide[0]), most)
        return _Widths(hold, wide[0], undecided, max(seen[:hold])), [bool(flag) for flag in live]

    def _plan(self, canvas: Canvas, moving: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L] bool columns to recompute and [B] bool rows that refresh, of the moving rows only."""
        plan = self.recipe.cache.plan(canvas, self.spec)
        columns = plan.columns | canvas.block()
        if self.spec.shift:
            columns = columns | canvas.between(canvas.start - self.spec.shift, canvas.stop)
        return columns & moving[:, None], plan.refresh & moving

    def _step(self, widths: _Widths) -> None:
        canvas, iteration = self.canvas, self.recipe.iteration
        moving = iteration.moving(canvas, self.spec)
        query, refresh = self._plan(canvas, moving)
        slots, rank = compact(query, widths.queried)
        x = iteration.inputs(self.shown, self.model, canvas.tokens.gather(1, slots), slots)
        visible = visible_keys(slots, canvas.end, canvas.columns, self.spec.block, canvas.uniform)
        eligible = canvas.masked() & canvas.block() & moving[:, None]
        columns, _ = compact(eligible, widths.undecided)
        want = self._places(rank, columns)
        hidden = self.model(x, slots, self.cache, visible, None if iteration.observes else want)
        wanted = torch.take_along_dim(hidden, want[..., None], dim=1) if iteration.observes else hidden
        accepted = self._choose(wanted, columns)
        if iteration.observes:
            self._observe(hidden, query, rank, widths.observed)
        self.tally.count(query, moving, refresh, accepted, canvas)
        canvas.tick(moving, refresh)

    def _places(self, rank: Tensor, columns: Tensor) -> Tensor:
        """Where in the queried columns the logits of `columns` [B, K] are found (padding: anywhere)."""
        at = (columns.clamp_max(self.canvas.columns - 1) - self.spec.shift).clamp_min(0)
        return rank.gather(1, at).clamp_min(0)

    def _choose(self, hidden: Tensor, columns: Tensor) -> Tensor:
        """Ask the strategy about the hidden states [B, K, D] of `columns`, commit its answer; [B] tokens taken."""
        canvas = self.canvas
        if columns.shape[1] == 0:
            return torch.zeros_like(canvas.step)
        logits = self.model.logits(hidden)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        mask_logit = logits[..., self.spec.mask_id].clone()
        logits[..., self.spec.mask_id] = -torch.inf
        view = BlockView(
            logits=logits,
            mask_logit=mask_logit,
            columns=columns,
            offset=columns - canvas.start[:, None],
            eligible=columns < canvas.columns,
            step=canvas.step,
            age=canvas.age,
            floor=self.recipe.iteration.floor(canvas),
            seed=canvas.seed,
            spec=self.spec,
        )
        choice = self.recipe.decoding.select(view, self.chosen)
        accept = choice.accept & view.eligible
        canvas.commit(columns, choice.tokens, accept)
        return accept.sum(1)

    def _observe(self, hidden: Tensor, query: Tensor, rank: Tensor, width: int) -> None:
        """Show the manager the hidden states of the queried columns that are still masked."""
        columns, _ = compact(query & self.canvas.masked(), width)
        at = rank.gather(1, columns.clamp_max(self.canvas.columns - 1)).clamp_min(0)
        seen = torch.take_along_dim(hidden, at[..., None], dim=1)
        self.recipe.iteration.observe(self.shown, self.model, seen, self.canvas, columns)


def decode(
    model: DiffusionModel,
    requests: Sequence[Request],
    recipe: Recipe,
    *,
    device: torch.device | str = "cpu",
    lockstep: bool = True,
    sync_every: int = 1,
) -> Iterator[Finished]:
    """Decode one batch; rows come out as they finish. `lockstep` and `sync_every` change cost, never tokens."""
    if sync_every < 1:
        raise ValueError(f"sync_every must be at least 1, got {sync_every}")
    return Decoder(model, requests, recipe, torch.device(device), lockstep).run(sync_every)


__all__ = ["Decoder", "Finished", "decode"]
