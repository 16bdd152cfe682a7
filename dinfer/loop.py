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
    """What the host must know of the next steps: how many, how wide; `live` per row, `idle`: a live row has no block."""

    idle: bool
    steps: int
    queried: int
    undecided: int
    observed: int
    live: list[int]


@dataclass(slots=True)
class _Turn:
    """One step: `masked` [B, L] columns, rows that are `moving` [B], columns to `query` [B, L], rows that `refresh` [B]."""

    masked: Tensor
    moving: Tensor
    query: Tensor
    refresh: Tensor


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
        self.tally = Tally(self.canvas.end)

    @torch.inference_mode()
    def run(self, sync_every: int = 1) -> Iterator[Finished]:
        """Decode to the end, yielding rows as they finish. The host waits once per `sync_every` steps at most."""
        open_rows = list(range(self.canvas.rows))
        while open_rows:
            turn, widths = self._measure(sync_every)
            if widths.idle:
                self.recipe.iteration.advance(self.canvas, self.spec, self.lockstep)
                turn, widths = self._measure(sync_every)
            for row in [r for r in open_rows if not widths.live[r]]:
                open_rows.remove(row)
                yield self._finished(row)
            for i in range(widths.steps if open_rows else 0):
                self._step(turn if i == 0 else self._turn(self.canvas), widths)

    def _finished(self, row: int) -> Finished:
        first, last = self.canvas.prompt[row], self.canvas.end[row]
        tokens = self.canvas.tokens[row, first:last].tolist()
        return Finished(row, tuple(tokens), self.tally.trace(row), self.tally.forwards)

    def _measure(self, most: int) -> tuple[_Turn, _Widths]:
        """Look `most` steps ahead and hold on as long as the width stays the same, so that results cannot depend on it."""
        first = turn = self._turn(self.canvas)
        ahead = self.canvas.copy() if most > 1 else self.canvas
        undecided = (first.masked & self.canvas.block() & first.moving[:, None]).sum(1).amax()
        queried, observed = [], []
        for i in range(most):
            if i:
                ahead.tick(turn.moving, turn.refresh)
                turn = self._plan(ahead, first.masked, first.moving)
            queried.append(turn.query.sum(1).amax())
            observed.append((turn.query & turn.masked).sum(1).amax())
        idle = (self.canvas.live & ~first.moving).sum()
        numbers = torch.stack([idle, undecided, *queried, *observed])
        idle, undecided, *rest = torch.cat((numbers, self.canvas.live.long())).tolist()
        wide, seen, live = rest[:most], rest[most : 2 * most], rest[2 * most :]
        hold = next((i for i, w in enumerate(wide) if w != wide[0]), most)
        return first, _Widths(bool(idle), hold, wide[0], undecided, max(seen[:hold]), live)

    def _turn(self, canvas: Canvas) -> _Turn:
        """What is to be done now."""
        masked = canvas.masked()
        return self._plan(canvas, masked, self.recipe.iteration.moving(canvas, self.spec))

    def _plan(self, canvas: Canvas, masked: Tensor, moving: Tensor) -> _Turn:
        plan = self.recipe.cache.plan(canvas, self.spec)
        columns = plan.columns | canvas.block()
        if self.spec.shift:
            columns = columns | canvas.between(canvas.start - self.spec.shift, canvas.stop)
        return _Turn(masked, moving, columns & moving[:, None], plan.refresh & moving)

    def _step(self, turn: _Turn, widths: _Widths) -> None:
        canvas, iteration = self.canvas, self.recipe.iteration
        slots, rank = compact(turn.query, widths.queried)
        x = iteration.inputs(self.shown, self.model, canvas.tokens.gather(1, slots), slots)
        visible = visible_keys(slots, canvas.end, canvas.columns, self.spec.block, canvas.uniform)
        columns, _ = compact(turn.masked & canvas.block() & turn.moving[:, None], widths.undecided)
        want = self._places(rank, columns)
        hidden = self.model(x, slots, self.cache, visible, None if iteration.observes else want)
        wanted = torch.take_along_dim(hidden, want[..., None], dim=1) if iteration.observes else hidden
        accepted = self._choose(wanted, columns)
        if iteration.observes:
            self._observe(hidden, turn.query, rank, widths.observed)
        self.tally.count(turn.moving, turn.refresh, turn.query.sum(1), accepted)
        canvas.tick(turn.moving, turn.refresh)

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
        seen = torch.take_along_dim(hidden, self._places(rank, columns)[..., None], dim=1)
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
