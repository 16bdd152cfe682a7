"""A sweep: its cells, which of them are possible, and how they ended. Launching them is Hydra's job."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import Busy, CellsFailed, ConfigError, one_line
from experiments.explain import explain
from experiments.options import owners
from experiments.plan import make_plan, plain_config, without_hydra

log = logging.getLogger(__name__)

Words = list[str]


def expand(overrides: Sequence[Override]) -> list[Words]:
    """The cells of a sweep, each as a list of overrides: the product of all values given."""
    values: dict[str, Words] = {}
    for override in overrides:
        key = override.get_key_element()
        if override.is_sweep_override():
            if not override.is_discrete_sweep():
                raise ConfigError(f"{override.input_line} is a range without values to try; list them: {key}=1,2,4")
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
            if not values[key]:
                raise ConfigError(f"{override.input_line} matches nothing; see dinfer --help")
        elif override.is_delete():
            values[key] = [override.input_line or f"~{key}"]
        else:
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
    return [list(cell) for cell in itertools.product(*values.values())]


def possible(cells: Sequence[Words], compose: Callable[[Words], DictConfig]) -> tuple[list[Words], dict[str, str]]:
    """Cells whose configuration is sound, those that share a model side by side, and why each other one is not."""
    good: list[tuple[str, Words]] = []
    failed: dict[str, str] = {}
    order: dict[str, int] = {}
    for words in cells:
        try:
            config = compose(words)
            choices = config.hydra.runtime.choices
            plain = plain_config(without_hydra(config))
            make_plan(plain, dict(choices))
        except Exception as error:
            failed[label(words)] = reason(error)
            continue
        engine = str((plain["model"], plain["engine"]))
        order.setdefault(engine, len(order))
        good.append((engine, words))
    if failed and not good:
        causes = sorted(set(failed.values()))
        raise ConfigError(causes[0] if len(causes) == 1 else f"no cell of the sweep is possible: {'; '.join(causes[:3])}")
    return [words for _, words in sorted(good, key=lambda pair: order[pair[0]])], failed


def reason(error: BaseException) -> str:
    """Why a cell failed, in one line."""
    if isinstance(error, (ConfigError, Busy)):
        return str(error)
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return explain(error, owners())
    return f"{type(error).__name__}: {one_line(error)}"


def label(words: Sequence[str]) -> str:
    return " ".join(words) or "the defaults"


def collect(cells: Sequence[Words], results: Sequence[Any], failed: dict[str, str]) -> list[Path]:
    """Folders of the cells that ended well; adds the others to `failed`."""
    folders = []
    for words, result in zip(cells, results, strict=True):
        try:
            ended = result.return_value
        except Exception as error:
            ended = {"error": reason(error)}
        if ended.get("error"):
            failed[label(words)] = ended["error"]
        else:
            folders.append(Path(ended["folder"]))
    return folders


def close(folders: Sequence[Path], failed: dict[str, str], total: int) -> None:
    """Print the table of what there is. CellsFailed when some cells did not end well."""
    from experiments.report import print_table

    if folders:
        print_table(folders)
    if failed:
        lines = [f"  {cell}: {why}" for cell, why in failed.items()]
        raise CellsFailed("\n".join([f"{len(failed)} of {total} cells failed:", *lines]))
