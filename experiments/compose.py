"""Compose a configuration in Python: for `dinfer-generate`, notebooks and tests. Registers the root schema on import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import experiments.schema  # noqa: F401 (registers the schema that conf/run.yaml names)
from experiments.errors import ConfigError
from experiments.explain import explain
from experiments.options import owners
from experiments.plan import plain_config, without_hydra


def compose(words: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """The resolved configuration for these overrides and the option chosen in each group. ConfigError in one line."""
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_module("conf", version_base="1.3"):
            config = hydra.compose("run", list(words), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error, owners())) from error
    choices = {str(group): str(option) for group, option in config.hydra.runtime.choices.items()}
    return plain_config(without_hydra(config)), choices
