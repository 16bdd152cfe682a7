"""From a checkpoint folder to a model: which family, which ids, which numbers. Loads no remote code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dinfer.models import llada
from dinfer.models.architecture import Architecture
from dinfer.models.backbone import Backbone
from dinfer.models.fields import read_object, whole
from dinfer.models.weights import load_into
from dinfer.types import ModelSpec

FAMILIES: tuple[ModuleType, ...] = (llada,)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
#: End-of-turn tokens by their text, looked up in the checkpoint's own tokenizer files.
END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|role_end|>")


def read_config(path: str | Path) -> dict[str, Any]:
    """`config.json` of a checkpoint folder. ValueError saying what is wrong with the folder."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(f"model.path: no folder at {str(path)!r}; give a folder with config.json and *.safetensors")
    file = folder / "config.json"
    if not file.is_file():
        raise ValueError(f"model.path: {folder} has no config.json")
    return _located(read_object, file)


def family_of(config: Mapping[str, Any]) -> ModuleType:
    """The family module that reads this config. ValueError listing the known ones."""
    named = config.get("architectures") or []
    names = [named] if isinstance(named, str) else list(named)
    for family in FAMILIES:
        if any(name in family.ARCHITECTURES for name in names):
            return family
    for family in FAMILIES:
        if not names and config.get("model_type") in family.MODEL_TYPES:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.ARCHITECTURES)
    what = ", ".join(map(str, names)) or config.get("model_type") or "no architecture"
    raise ValueError(f"model.path: config.json names {what}, which is not a diffusion model known here; known: {known}")


def added_tokens(folder: Path) -> dict[str, int]:
    """Special tokens by text, from tokenizer.json or tokenizer_config.json; empty when the folder has neither."""
    found: dict[str, int] = {}
    config = folder / "tokenizer_config.json"
    if config.is_file():
        for index, token in _located(read_object, config).get("added_tokens_decoder", {}).items():
            found[token["content"] if isinstance(token, dict) else token] = int(index)
    file = folder / "tokenizer.json"
    if file.is_file():
        for token in _located(read_object, file).get("added_tokens", []):
            found[token["content"]] = int(token["id"])
    return found


def _ids(config: Mapping[str, Any], name: str) -> list[int]:
    """The token ids at `name`, one or more. ValueError when there is none."""
    value = config.get(name)
    several = value if isinstance(value, list) else [value]
    return [whole({name: one}, name) for one in several or [None]]


def read_spec(path: str | Path) -> ModelSpec:
    """Ids and sizes from config.json and the tokenizer files alone; no weights are touched.

    ValueError when the mask or end-of-sequence id is missing, out of range, or contradicted by the tokenizer.
    """
    config = read_config(path)
    arch = _architecture(config)
    mask_id, eos = _located(whole, config, "mask_token_id"), _located(_ids, config, "eos_token_id")
    tokens = added_tokens(Path(path).expanduser())
    _check_tokenizer(Path(path).expanduser(), tokens, mask_id, eos)
    ends = [*eos, *(tokens[text] for text in END_OF_TURN if text in tokens and tokens[text] not in eos)]
    return ModelSpec(
        vocab=arch.vocab,
        hidden=arch.hidden,
        mask_id=mask_id,
        eos_ids=tuple(ends),
        max_length=arch.max_length,
    )


def _check_tokenizer(folder: Path, tokens: Mapping[str, int], mask_id: int, eos: list[int]) -> None:
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return
    named = _located(read_object, file)
    for field, allowed in (("mask_token", [mask_id]), ("eos_token", eos)):
        token = named.get(field)
        text = str(token.get("content") if isinstance(token, dict) else token)
        if text in tokens and tokens[text] not in allowed:
            raise ValueError(
                f"model.path: {folder} disagrees with itself: tokenizer_config.json {field} {text!r} has id "
                f"{tokens[text]}, config.json {field}_id is {allowed[0] if len(allowed) == 1 else allowed}"
            )


def _architecture(config: Mapping[str, Any]) -> Architecture:
    return _located(family_of(config).architecture, config)


def _located(read: Callable[..., Any], *arguments: Any) -> Any:
    """What `read` returns; its complaints name the setting they are about."""
    try:
        return read(*arguments)
    except ValueError as error:
        raise ValueError(f"model.path: {error}") from error


def load_model(path: str | Path, *, dtype: str = "float32", device: str = "cpu", exact: str | None = None) -> Backbone:
    """Build the network of a checkpoint folder on `device` in `dtype` and fill it. ValueError for any misfit.

    Norms and rotations are computed in `exact`: by default float32, as the public classes do, or float64 for a float64 model.
    """
    exact = exact or ("float64" if dtype == "float64" else "float32")
    for field, value in (("dtype", dtype), ("exact", exact)):
        if value not in DTYPES:
            raise ValueError(f"{field} must be one of {', '.join(DTYPES)}, got {value!r}")
    spec = read_spec(path)
    config = read_config(path)
    arch = replace(_architecture(config), exact=DTYPES[exact])
    with torch.device("meta"):
        model = Backbone(arch, spec).to(DTYPES[dtype])
    model = model.to_empty(device=device).requires_grad_(False).eval()
    if arch.tied:
        model.head = model.embedding
    load_into(model, Path(path).expanduser(), family_of(config).places(arch))
    return model
