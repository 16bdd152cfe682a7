"""The command that trains the embedded tiny model from scratch: `python -m experiments.train_tiny [key=value …]`.

It trains a tokenizer, then a LLaDA on the built-in tasks, validates by decoding, and writes a checkpoint folder with a
card. Interrupted, the same command continues.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

log = logging.getLogger("experiments.train_tiny")


@dataclass
class NetworkSchema:
    """The network: `conf/train/model`."""

    name: str = "llada"
    hidden: int = 192
    layers: int = 6
    heads: int = 6
    ffn: int = 512
    experts: int = 0
    experts_per_token: int = 0


@dataclass
class TrainSchema:
    """Keys of a training run; their meanings stand next to their defaults in `conf/train/tiny.yaml`."""

    folder: str = "runs/tiny"
    model: NetworkSchema = field(default_factory=NetworkSchema)
    smoke: bool = False
    seed: int = 0
    threads: int = 1
    seconds: float = 4400
    max_steps: Optional[int] = None  # noqa: UP045 (OmegaConf resolves this at run time on Python 3.10)
    vocab: int = 1280
    tokens_per_batch: int = 2048
    full: float = 0.15
    blockwise: float = 0.45
    copy_share: float = 0.12
    constant_share: float = 0.4
    muon_lr: float = 0.014
    adam_lr: float = 0.0025
    save_every: float = 180.0
    log_every: int = 50
    validate_every: float = 0.1
    validation_size: int = 50
    final_size: int = 300


ConfigStore.instance().store(name="train_tiny_schema", node=TrainSchema)


def check(config: TrainSchema) -> TrainSchema:
    """The same configuration, shrunk when it is a smoke run. ValueError for what cannot be trained."""
    if config.model.experts:
        raise ValueError("model.experts must be 0, dinfer.models has no network with experts; use model=llada")
    for name in ("hidden", "layers", "heads", "ffn"):
        if getattr(config.model, name) < 1:
            raise ValueError(f"model.{name} must be at least 1, got {getattr(config.model, name)}")
    for name in ("threads", "seconds", "tokens_per_batch", "log_every"):
        if not getattr(config, name) > 0:
            raise ValueError(f"{name} must be above 0, got {getattr(config, name)}")
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"max_steps must be at least 1 or null, got {config.max_steps}")
    for name in ("full", "blockwise", "copy_share", "constant_share"):
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {getattr(config, name)}")
    if not 0 < config.validate_every <= 1:
        raise ValueError(f"validate_every must lie in (0, 1], got {config.validate_every}")
    if config.model.hidden % (2 * config.model.heads):
        raise ValueError(f"model.hidden must be a multiple of twice heads, got {config.model.hidden} and {config.model.heads}")
    if not config.smoke:
        return config
    network = replace(config.model, hidden=32, layers=2, heads=2, ffn=64)
    small: dict[str, Any] = {"model": network, "tokens_per_batch": 512, "max_steps": config.max_steps or 12}
    return replace(config, **small, log_every=4, validation_size=5, final_size=10, validate_every=0.5)


def run(config: TrainSchema) -> int:
    """Train, evaluate and write; everything heavy is imported here, after the configuration was found good."""
    config = check(config)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from experiments.tiny.pipeline import train_and_publish

    train_and_publish(asdict(config))
    return 0


@hydra.main(version_base="1.3", config_path="pkg://conf.train", config_name="tiny")
def _application(node: DictConfig) -> int:
    config = OmegaConf.to_object(node)
    assert isinstance(config, TrainSchema)
    try:
        return run(config)
    except ValueError as error:
        raise SystemExit(f"train_tiny: {error}") from error


def main(words: Sequence[str] | None = None) -> None:
    """Entry point. `--smoke` is another way to write `smoke=true`."""
    given = list(sys.argv[1:] if words is None else words)
    sys.argv[1:] = ["smoke=true" if word == "--smoke" else word for word in given]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("experiments").setLevel(logging.INFO)
    try:
        _application()
    except (HydraException, OmegaConfBaseException) as error:
        raise SystemExit(f"train_tiny: {error}") from error


if __name__ == "__main__":
    main()
