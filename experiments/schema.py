"""The closed root of the configuration and the engine's settings. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Optional

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from experiments.errors import ConfigError, choices, suggestion

#: Groups whose option is a component, in the order of `dinfer --help`. `experiment` holds overrides only.
GROUPS = ("model", "decoding", "iteration", "cache", "task", "engine", "logger")
DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@dataclass
class RunSchema:
    """Keys of one run. Their meanings stand next to their defaults in `conf/run.yaml`."""

    model: Any = MISSING
    decoding: Any = MISSING
    iteration: Any = MISSING
    cache: Any = MISSING
    task: Any = MISSING
    engine: Any = MISSING
    logger: Any = MISSING
    guidance: float = 0.0
    max_tokens: Optional[int] = None  # noqa: UP045 (OmegaConf resolves this at run time on Python 3.10)
    limit: Optional[int] = None  # noqa: UP045
    seed: int = 0
    name: str = "default"
    runs: str = "runs"
    workers: int = 2


ConfigStore.instance().store(name="run_schema", node=RunSchema)


def check_root(config: Mapping[str, Any]) -> None:
    """Refuse unknown root keys, missing groups and values out of range. ConfigError."""
    known = [f.name for f in fields(RunSchema)]
    for key in config:
        if key not in known:
            raise ConfigError(f"{key} is not a key{suggestion(key, known)}; allowed: {choices(known)}")
    for group in GROUPS:
        value = config.get(group)
        if not isinstance(value, Mapping):
            what = "nothing" if value in (None, MISSING) else repr(value)
            raise ConfigError(f"{group} must name one of its options (see dinfer --help), got {what}")
    for key, low in (("limit", 1), ("max_tokens", 1), ("workers", 1), ("guidance", 0), ("seed", 0)):
        value = config.get(key)
        if value is not None and not value >= low:
            raise ConfigError(f"{key} must be at least {low}, got {value}")
    if not re.fullmatch(r"\w[\w.+=-]*", str(config["name"])):
        raise ConfigError(f"name must be one folder name of letters, digits and _ . + = -, got {config['name']!r}")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a loaded model is driven. Only `device` and `dtype` can change an answer; the others change its cost."""

    batch_size: int = 8
    lockstep: bool = True
    sync_every: int = 1
    device: str = "auto"
    dtype: str = "auto"
    device_name: str = field(default="", init=False)

    def __post_init__(self) -> None:
        for name in ("batch_size", "sync_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not DEVICES.fullmatch(self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:<index>, got {self.device!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {choices(DTYPES)}, got {self.dtype!r}")

    def resolved(self) -> EngineSettings:
        """The same with "auto" settled on this machine and the GPU's name filled in. ConfigError without that device."""
        import torch

        found = torch.cuda.is_available()
        device = self.device if self.device != "auto" else ("cuda" if found else "cpu")
        if device.startswith("cuda"):
            index = int(device.partition(":")[2] or 0)
            if not found or index >= torch.cuda.device_count():
                here = ["auto", "cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count() if found else 0))]
                raise ConfigError(f"engine.device must be on this machine, got {device!r}; here: {', '.join(here)}")
        dtype = self.dtype if self.dtype != "auto" else ("bfloat16" if device.startswith("cuda") else "float32")
        settled = replace(self, device=device, dtype=dtype)
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
        object.__setattr__(settled, "device_name", name)
        return settled

    def identity(self) -> dict[str, Any]:
        """What of these settings belongs to a run's fingerprint: all of it, with the device by its name."""
        return {
            "batch_size": self.batch_size,
            "lockstep": self.lockstep,
            "sync_every": self.sync_every,
            "dtype": self.dtype,
            "device": self.device_name,
        }
