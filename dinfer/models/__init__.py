"""Networks and their checkpoints."""

from dinfer.models.backbone import Backbone
from dinfer.models.checkpoint import load_model, read_spec

__all__ = ["Backbone", "load_model", "read_spec"]
