"""Everything about a run that can be settled before samples are read and a model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException

from evals.task import Task
from experiments.build import build
from experiments.checkpoint import ModelSource
from experiments.errors import ConfigError, one_line
from experiments.schema import EngineSettings, check_root
from experiments.sinks import Sink

if TYPE_CHECKING:
    from dinfer.types import ModelSpec, Recipe

log = logging.getLogger(__name__)

#: A fixed schedule of at least so many tokens a step is known to cost quality.
HASTY = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """A run whose parts exist and fit together. `config` is the resolved configuration, `choices` the option per group."""

    config: Mapping[str, Any]
    choices: Mapping[str, str]
    recipe: Recipe
    model: ModelSource
    spec: ModelSpec
    engine: EngineSettings
    task: Task
    sink: Sink
    max_tokens: int


def plain_config(config: DictConfig) -> dict[str, Any]:
    """The configuration with every interpolation resolved. ConfigError when one cannot be."""
    try:
        found = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(one_line(error)) from error
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def without_hydra(config: DictConfig) -> DictConfig:
    """A copy of a composed configuration less Hydra's own part."""
    found = config.copy()
    with flag_override(found, ["struct", "readonly"], [False, False]):
        del found["hydra"]
    return found


def make_plan(config: Mapping[str, Any], choices: Mapping[str, str]) -> Plan:
    """Build and check the parts, the cheap ones first. ConfigError naming the field."""
    check_root(config)
    task, engine, sink, model = (build(config[group], group) for group in ("task", "engine", "logger", "model"))
    max_tokens = config["max_tokens"] or task.max_tokens
    decoding, iteration, cache = (build(config[group], group) for group in ("decoding", "iteration", "cache"))
    recipe = make_recipe(decoding, iteration, cache, config["guidance"])
    spec = check_fit(recipe, model, max_tokens)
    return Plan(config, choices, recipe, model, spec, engine.resolved(), task, sink, max_tokens)


def make_recipe(decoding: Any, iteration: Any, cache: Any, guidance: float) -> Recipe:
    from dinfer.types import Recipe

    try:
        return Recipe(decoding, iteration, cache, guidance)
    except ValueError as error:
        raise ConfigError(one_line(error)) from error


def check_fit(recipe: Recipe, model: ModelSource, max_tokens: int) -> ModelSpec:
    """The model's spec, when the recipe can run on it. ConfigError otherwise."""
    from dinfer.check import check_recipe

    try:
        spec = model.spec()
        check_recipe(recipe, spec, max_tokens)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(one_line(error)) from error
    return spec


def warn_hasty(recipe: Recipe) -> None:
    """Warn of a fixed schedule that takes many tokens at once."""
    decoding = getattr(recipe.decoding, "inner", recipe.decoding)
    each = getattr(decoding, "tokens_per_step", None)
    steps, length = getattr(decoding, "steps_per_block", None), getattr(recipe.iteration, "block_length", None)
    if each is None and steps and length:
        each = length / steps
    if each is not None and each >= HASTY:
        log.warning(
            "a fixed schedule of %g tokens a step costs quality on most tasks; decoding=threshold adapts to the model", each
        )
