"""Hydra finds sweepers here: a sweep in which one bad cell does not stop the others. Its work is in `experiments.sweep`."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

NODE = {"_target_": "hydra_plugins.dinfer_cells.Cells"}
ConfigStore.instance().store(group="hydra/sweeper", name="cells", node=NODE, provider="dinfer")


class Cells(Sweeper):
    """Checks all cells, launches the possible ones, and fails at the end if any failed."""

    def __init__(self) -> None:
        self.context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from experiments import sweep

        context, config, launcher = self.context, self.config, self.launcher
        assert context is not None
        assert config is not None
        assert launcher is not None
        parser = OverridesParser.create(config_loader=context.config_loader)
        cells = sweep.expand(parser.parse_overrides(arguments))
        good, failed = sweep.possible(cells, lambda words: context.config_loader.load_sweep_config(config, words))
        results = launcher.launch(good, initial_job_idx=0)
        sweep.close(sweep.collect(good, results, failed), failed, len(cells))
        return results
