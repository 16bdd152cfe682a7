"""Loaded engines, kept between the runs of one process: a sweep loads each checkpoint once."""

from __future__ import annotations

import atexit
import logging
import time
from typing import Any

from experiments.checkpoint import ModelSource
from experiments.identity import digest
from experiments.schema import EngineSettings

log = logging.getLogger(__name__)

_MODELS: dict[str, Any] = {}
_ENGINES: dict[str, Any] = {}


def engine_for(source: ModelSource, settings: EngineSettings) -> Any:
    """The engine for a model under resolved settings; at most one model is kept loaded."""
    from dinfer.engine import Engine

    where = {"dtype": settings.dtype, "device": settings.device}
    model_key = digest({"model": source.identity(), **where})
    key = digest({"model": model_key, **settings.identity()})
    if key in _ENGINES:
        return _ENGINES[key]
    close_engines()
    if model_key not in _MODELS:
        _MODELS.clear()
        started = time.monotonic()
        _MODELS[model_key] = source.load(**where)
        log.info("loaded the model in %.1f s (%s, %s)", time.monotonic() - started, settings.dtype, settings.device)
    _ENGINES[key] = Engine(
        _MODELS[model_key],
        batch_size=settings.batch_size,
        lockstep=settings.lockstep,
        sync_every=settings.sync_every,
    )
    return _ENGINES[key]


def close_engines() -> None:
    """Close the engine that is open, if any; the model stays loaded."""
    while _ENGINES:
        _, engine = _ENGINES.popitem()
        engine.close()


atexit.register(close_engines)
