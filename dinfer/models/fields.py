"""JSON files of a checkpoint and the numbers in them; complaints name the file or the field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in `file`. ValueError when it holds anything else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object, got {type(content).__name__}")
    return content


def whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """The whole number at `name`, `default` where it is absent or null. ValueError when it is neither."""
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise ValueError(f"config.json has no {name!r}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"config.json {name} must be a whole number, got {value!r}")
    return value


def number(config: Mapping[str, Any], name: str, default: float) -> float:
    """The finite number at `name`, `default` where it is absent or null. ValueError when it is neither."""
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"config.json {name} must be a number, got {value!r}")
    return float(value)
