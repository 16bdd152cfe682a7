"""Instruments for benchmarks: time spent inside the network, and the most tensor memory alive at once."""

from __future__ import annotations

import time
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dinfer.types import DiffusionModel, ModelSpec


class TimedModel:
    """A model whose calls are timed; `seconds` and `forwards` add up until `reset`."""

    def __init__(self, model: DiffusionModel) -> None:
        self.model = model
        self.spec: ModelSpec = model.spec
        self.device: torch.device = getattr(model, "device", torch.device("cpu"))
        self.reset()

    def reset(self) -> None:
        self.seconds = 0.0
        self.forwards = 0

    def _timed(self, call: Any, *arguments: Any) -> Any:
        self._wait()
        start = time.perf_counter()
        result = call(*arguments)
        self._wait()
        self.seconds += time.perf_counter() - start
        return result

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def new_cache(self, canvas: Any) -> Any:
        return self.model.new_cache(canvas)

    def embed(self, tokens: Tensor) -> Tensor:
        return self._timed(self.model.embed, tokens)

    def blend(self, probs: Tensor) -> Tensor:
        return self._timed(self.model.blend, probs)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._timed(self.model.logits, hidden)

    def __call__(self, x: Tensor, slots: Tensor, cache: Any, visible: Any, want: Tensor | None = None) -> Tensor:
        self.forwards += 1
        return self._timed(self.model, x, slots, cache, visible, want)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors made while it is active: `peak` is the most that were alive at once.

    Buffers that live and die inside one operator are not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size
