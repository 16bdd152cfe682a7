"""Tensors between safetensors files and a `Backbone`; knows names and shapes, nothing of decoding.

A family's table says where each public tensor goes; several public tensors may fill row ranges of one fused parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dinfer.models.fields import read_object


@dataclass(frozen=True, slots=True)
class Place:
    """Rows `[first, first + rows)` of parameter `name`; the whole parameter when `rows` is None."""

    name: str
    first: int = 0
    rows: int | None = None

    def of(self, parameter: Tensor) -> Tensor:
        return parameter if self.rows is None else parameter.narrow(0, self.first, self.rows)


def shard_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, by its index when it has one."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = read_object(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ValueError(f"{index}: weight_map must name a shard for every tensor")
        files = [folder / name for name in sorted(set(shards.values()))]
    else:
        files = sorted(folder.glob("*.safetensors"))
        single = folder / "model.safetensors"
        files = [single] if single in files else files
    if not files:
        raise ValueError(f"{folder}: no *.safetensors file; a checkpoint folder holds config.json and its shards")
    for file in files:
        if not file.exists():
            raise ValueError(f"{folder}: shard {file.name} is named by the index but missing")
    return files


def tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Every (name, tensor) of a checkpoint, one tensor in memory at a time."""
    for file in shard_files(folder):
        try:
            with safe_open(file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - not a mapping
                    yield name, shard.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{file}: not a readable safetensors file ({error}); download it again") from error


def load_into(model: nn.Module, folder: Path, table: Mapping[str, Place]) -> None:
    """Fill every parameter of `model` from `folder`, casting on the way.

    ValueError naming the tensors that are missing, unknown, or of the wrong shape or type.
    """
    parameters = dict(model.named_parameters())
    missing, unknown, misfit = set(table), [], []
    with torch.no_grad():
        for name, tensor in tensors(folder):
            place = table.get(name)
            if place is None:
                unknown.append(name)
                continue
            target = place.of(parameters[place.name])
            missing.discard(name)
            if not tensor.is_floating_point():
                misfit.append(f"{name} {tensor.dtype}, expected floating point")
            elif target.shape != tensor.shape:
                misfit.append(f"{name} {tuple(tensor.shape)}, expected {tuple(target.shape)}")
            else:
                target.copy_(tensor)
    problems = [
        f"{label}: {', '.join(sorted(names)[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
        for label, names in (("missing", missing), ("not used by this architecture", unknown), ("wrong shape or type", misfit))
        if names
    ]
    if problems:
        raise ValueError(f"{folder}: tensors {'; '.join(problems)}")


def public_tensors(model: nn.Module, table: Mapping[str, Place]) -> dict[str, Tensor]:
    """The model's parameters under their public names, as contiguous copies on the CPU."""
    parameters = dict(model.named_parameters())
    return {name: place.of(parameters[place.name]).detach().cpu().contiguous().clone() for name, place in table.items()}


def save_checkpoint(
    model: nn.Module, folder: Path, config: Mapping[str, Any], table: Mapping[str, Place], dtype: torch.dtype | None = None
) -> None:
    """Write `config.json` and `model.safetensors` under the public names, so that `load_model` reads them back."""
    folder.mkdir(parents=True, exist_ok=True)
    named = public_tensors(model, table)
    if dtype is not None:
        named = {name: tensor.to(dtype) for name, tensor in named.items()}
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(config), indent=1) + "\n")
