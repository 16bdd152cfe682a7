"""Refusals that need no weights: settings that contradict each other, the model, or the request."""

from __future__ import annotations

from dinfer.types import ModelSpec, Recipe


def check_recipe(recipe: Recipe, spec: ModelSpec, max_tokens: int) -> None:
    """ValueError for a combination that cannot decode `max_tokens` columns on a model with `spec`."""
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if max_tokens >= spec.max_length:
        raise ValueError(f"max_tokens must be below the model's {spec.max_length} positions, got {max_tokens}")
    length = getattr(recipe.iteration, "block_length", None)
    if length is not None and length > max_tokens:
        raise ValueError(f"iteration.block_length must be at most max_tokens = {max_tokens}, got {length}")
    decoding = recipe.decoding
    while hasattr(decoding, "inner"):
        decoding = decoding.inner
    steps = getattr(decoding, "steps_per_block", None)
    if steps is not None and length is not None and steps > length:
        raise ValueError(f"decoding.steps_per_block must be at most iteration.block_length = {length}, got {steps}")
    wanted = getattr(decoding, "tokens_per_step", None)
    if wanted is not None and length is not None and wanted > length:
        raise ValueError(f"decoding.tokens_per_step must be at most iteration.block_length = {length}, got {wanted}")
