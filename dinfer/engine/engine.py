"""Serve many requests with one loaded model: batch them, decode, time, and hand results out as rows finish."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dinfer.loop import Finished, decode
from dinfer.models import Backbone
from dinfer.types import DiffusionModel, GenerationResult, Recipe, Request


class Engine:
    """One model in this process. `batch_size` rows at a time; `lockstep` and `sync_every` change cost, never tokens.

    In `lockstep` all rows of a batch open blocks together, so that their cache refreshes fall into the same forwards.
    """

    def __init__(self, model: DiffusionModel, *, batch_size: int = 1, lockstep: bool = True, sync_every: int = 1) -> None:
        for name, value in (("batch_size", batch_size), ("sync_every", sync_every)):
            if value < 1:
                raise ValueError(f"engine.{name} must be at least 1, got {value}")
        self.model = model
        self.batch_size = batch_size
        self.lockstep = lockstep
        self.sync_every = sync_every
        self.device = getattr(model, "device", torch.device("cpu"))
        self._batches = 0

    def warm_up(self, requests: Sequence[Request], recipe: Recipe) -> int:
        """Run the widest and the narrowest batch once, untimed and thrown away; returns how many batches that was."""
        batches = self._batched(requests)
        chosen = batches if len(batches) < 2 else [batches[0], batches[-1]]
        for batch in chosen:
            for _ in self._decode(batch, recipe):
                pass
        self._synchronise()
        return len(chosen)

    def generate(self, requests: Sequence[Request], recipe: Recipe) -> Iterator[GenerationResult]:
        """Decode every request, longest rows first; each result comes as soon as its row is done.

        ValueError, before anything runs, for duplicate ids or a row that exceeds the model's length.
        """
        self._check(requests)
        for batch in self._batched(requests):
            self._batches += 1
            self._synchronise()
            start = time.perf_counter()
            for finished in self._decode(batch, recipe):
                self._synchronise()
                now = time.perf_counter()
                yield self._result(batch, finished, now - start)
                start += time.perf_counter() - now  # what the caller did meanwhile is not decoding

    def info(self) -> dict[str, Any]:
        """Device, precision, size and versions: what a record must state."""
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.processor()
        facts: dict[str, Any] = {
            "device": str(self.device),
            "device_name": device or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        if isinstance(self.model, Backbone):
            facts["dtype"] = str(self.model.dtype).removeprefix("torch.")
            facts["parameters"] = sum(p.numel() for p in self.model.parameters())
            facts["kv_bytes_per_column"] = self.model.arch.kv_bytes(self.model.embedding.element_size())
        return facts

    def close(self) -> None:
        """Let go of the model."""
        del self.model

    def _check(self, requests: Sequence[Request]) -> None:
        seen: set[str] = set()
        longest = self.model.spec.max_length
        for request in requests:
            if request.id in seen:
                raise ValueError(f"request ids must be unique, {request.id!r} occurs twice")
            seen.add(request.id)
            if len(request.prompt) + request.max_tokens > longest:
                raise ValueError(
                    f"prompt and max_tokens must fit the model's {longest} positions, got {len(request.prompt)} + "
                    f"{request.max_tokens} (request {request.id!r})"
                )

    def _batched(self, requests: Sequence[Request]) -> list[list[Request]]:
        """Batches of similar length, the longest first so that running out of memory shows at once."""
        ordered = sorted(requests, key=lambda r: (-len(r.prompt) - r.max_tokens, r.id))
        return [ordered[i : i + self.batch_size] for i in range(0, len(ordered), self.batch_size)]

    def _decode(self, batch: Sequence[Request], recipe: Recipe) -> Iterator[Finished]:
        return decode(self.model, batch, recipe, device=self.device, lockstep=self.lockstep, sync_every=self.sync_every)

    def _result(self, batch: Sequence[Request], finished: Finished, seconds: float) -> GenerationResult:
        spec = self.model.spec
        ends = [i for i, token in enumerate(finished.tokens) if token in spec.eos_ids]
        visible = finished.tokens[: ends[0]] if ends else finished.tokens
        filled = sum(token != spec.mask_id for token in finished.tokens)
        return GenerationResult(
            id=batch[finished.row].id,
            tokens=visible,
            finish="eos" if ends else "length",
            canvas=len(finished.tokens),
            filled=filled,
            eos=len(ends),
            trace=finished.trace,
            batch=self._batches,
            rows=len(batch),
            seconds=seconds,
            batch_forwards=finished.batch_forwards,
        )

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
