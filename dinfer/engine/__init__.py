"""Engines: a loaded model that serves requests."""

from dinfer.engine.engine import Engine

__all__ = ["Engine"]
