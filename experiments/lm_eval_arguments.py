"""What lm-eval's model arguments and a task's generation arguments mean for the parts of a run. Knows nothing of lm-eval."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from experiments.errors import ConfigError, one_line
from experiments.generate import GROUPS, quoted

if TYPE_CHECKING:
    from dinfer.types import ModelSpec, Recipe

WORD = re.compile(rf"({'|'.join(GROUPS)})([.@]\w+)*|guidance")


def words(path: str | None, given: Mapping[str, Any]) -> list[str]:
    """Model arguments as overrides. ConfigError for a key that is none, or when no model is named."""
    for key in given:
        if not WORD.fullmatch(key):
            allowed = f"path, {', '.join(GROUPS)} and their keys, guidance, max_gen_toks, mc_num, check_greedy, seed"
            raise ConfigError(f"{key} is no model argument of dinfer; allowed: {allowed}")
    if path is None and not any(key == "model" or key.startswith("model.") for key in given):
        raise ConfigError("path must name a checkpoint: --model_args path=FOLDER (or model=random to try)")
    found = [f"{key}={word(key, value)}" for key, value in sorted(given.items(), key=lambda pair: "." in pair[0])]
    return found if path is None else [*found, f"model.path={quoted(str(path))}"]


def word(key: str, value: Any) -> str:
    """A value as Hydra reads it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quoted(value) if isinstance(value, str) and "." in key else str(value)


def heated(decoding: Any, temperature: float) -> Any:
    """The strategy, and any it wraps, at another temperature. ConfigError when it has none."""
    if not hasattr(decoding, "temperature"):
        raise ConfigError(f"{type(decoding).__name__} has no temperature; the task asks for {temperature}")
    wrapped = {"inner": heated(decoding.inner, temperature)} if hasattr(decoding, "inner") else {}
    return replace(decoding, temperature=temperature, **wrapped)


def checked(recipe: Recipe, spec: ModelSpec, budgets: set[int]) -> None:
    """ConfigError for the first budget that the recipe cannot decode."""
    from dinfer.check import check_recipe

    for budget in sorted(budgets):
        try:
            check_recipe(recipe, spec, budget)
        except ValueError as error:
            raise ConfigError(f"{one_line(error)} (the task's max_gen_toks is {budget})") from error
