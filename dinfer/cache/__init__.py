"""Cache policies: which columns are recomputed at a step."""

from dinfer.cache.policy import Plan
from dinfer.cache.window import Window

__all__ = ["Plan", "Window"]
