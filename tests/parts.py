"""Components as the configuration files describe them, for tests that run over every file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from experiments.build import build
from experiments.compose import compose


def compose_part(group: str, option: str, changes: Mapping[str, Any]) -> Any:
    """The object that `conf/<group>/<option>.yaml` names, with some fields changed."""
    return _part(group, option, json.dumps(dict(changes), sort_keys=True))


@cache
def _part(group: str, option: str, changes: str) -> Any:
    words = [f"{group}.{key}={json.dumps(value)}" for key, value in json.loads(changes).items()]
    config, _ = compose([f"{group}={option}", *words])
    return build(config[group], group)
