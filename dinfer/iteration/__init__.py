"""Iteration managers: which block is decoded, and what the model is shown of it."""

from dinfer.iteration.blockwise import Blockwise
from dinfer.iteration.smooth import Smooth

__all__ = ["Blockwise", "Smooth"]
