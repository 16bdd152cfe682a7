"""Where a model comes from: a folder, the hub, this package or a seed; its ids, tokenizer and content hash.

Anything with the methods of `ModelSource` can stand in a `conf/model` file. Nothing here runs the network.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from experiments.errors import ConfigError, one_line

if TYPE_CHECKING:
    from dinfer.types import DiffusionModel, ModelSpec

#: Files of a checkpoint folder that decide its answers.
CONTENT = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
CHUNK = 1 << 22


class ModelSource(Protocol):
    """What a `conf/model` option must offer."""

    def spec(self) -> ModelSpec: ...

    def load(self, dtype: str, device: str) -> DiffusionModel: ...

    def read_tokenizer(self) -> Any:
        """A tokenizer with the interface of `transformers`."""
        ...

    def identity(self) -> dict[str, Any]:
        """What tells this model from another, as plain data."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder, or a name from which one is made: `path` is a folder with config.json and *.safetensors, a hub
    id (fetched at `revision`), `pkg:<package>/<folder>` or `random:<seed>`; `tokenizer` is such a name for its files alone."""

    path: str
    revision: str | None = None
    tokenizer: str | None = None

    def folder(self) -> Path:
        """The folder on this machine; fetched or made when it is not there yet. ConfigError when there is none."""
        return _folder(self.path, self.revision)

    def spec(self) -> ModelSpec:
        from dinfer.models import read_spec

        return read_spec(str(self.folder()))

    def load(self, dtype: str, device: str) -> DiffusionModel:
        from dinfer.models import load_model

        return load_model(str(self.folder()), dtype=dtype, device=device)

    def read_tokenizer(self) -> Any:
        return _tokenizer(_folder(self.tokenizer, None) if self.tokenizer else self.folder())

    def identity(self) -> dict[str, Any]:
        found = {"sha256": content_hash(self.folder())}
        if self.tokenizer:
            found["tokenizer"] = content_hash(_folder(self.tokenizer, None))
        return found


@lru_cache(maxsize=8)
def _folder(path: str, revision: str | None) -> Path:
    if path.startswith("random:"):
        return _random(path)
    if path.startswith("pkg:"):
        package, _, rest = path[4:].partition("/")
        try:
            return Path(str(importlib.resources.files(package).joinpath(rest)))
        except (ModuleNotFoundError, ValueError) as error:
            raise ConfigError(f"model.path must name a folder of an installed package, got {path!r}") from error
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if HUB_ID.fullmatch(path) and not folder.parent.exists():
        return _from_hub(path, revision)
    raise ConfigError(
        f"model.path must be a folder with config.json and *.safetensors, a hub id, pkg:<package>/<folder> or "
        f"random:<seed>; nothing is at {path!r}"
    )


def _from_hub(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*CONTENT]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=True))
    except Exception:
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
        except Exception as error:  # the hub's errors have no common base that covers the network's
            raise ConfigError(
                f"model.path {name!r} is no folder here and could not be fetched from the hub ({one_line(error)[:160]})"
            ) from error


def cache_folder() -> Path:
    """Where this user's derived files may lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dinfer"


def _random(path: str) -> Path:
    """Write the seeded random checkpoint once; concurrent writers end with the same folder."""
    import dinfer.models.random as maker

    seed = path.partition(":")[2]
    if not seed.isdigit():
        raise ConfigError(f"model.path random:<seed> needs a whole number, got {path!r}")
    source = hashlib.sha256(Path(maker.__file__).read_bytes()).hexdigest()[:8]
    target = cache_folder() / f"random-{seed}-{source}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=target.parent))
    maker.write_checkpoint(draft, seed=int(seed))
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
    return target


@lru_cache(maxsize=4)
def _tokenizer(where: Path) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if not any((where / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        raise ConfigError(f"model.tokenizer: {where} has no tokenizer.json; give a folder that has one")
    try:
        if (where / "tokenizer.json").is_file():
            return PreTrainedTokenizerFast.from_pretrained(where)
        return AutoTokenizer.from_pretrained(where)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"model.tokenizer: {where} could not be read ({one_line(error)[:160]})") from error


def content_hash(folder: Path) -> str:
    """sha256 over names and contents of the files that decide answers. Large files are hashed once and remembered by size
    and modification time in the user's cache folder."""
    files = sorted({f for pattern in CONTENT for f in folder.glob(pattern)})
    if not files:
        raise ConfigError(f"model.path: {folder} holds no checkpoint files")
    known = _Remembered(cache_folder() / "hashes.json")
    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(known.digest, files))
    known.save()
    total = hashlib.sha256()
    for file, digest in zip(files, digests, strict=True):
        total.update(f"{file.name}\0{digest}\n".encode())
    return total.hexdigest()


class _Remembered:
    """File hashes kept between processes; losing them costs time only."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.fresh: dict[str, str] = {}
        try:
            self.known: dict[str, str] = json.loads(store.read_text())
        except (OSError, ValueError):
            self.known = {}

    def digest(self, file: Path) -> str:
        stat = file.stat()
        key = f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
        if stat.st_size > CHUNK and key in self.known:
            return self.known[key]
        sha = hashlib.sha256()
        with file.open("rb") as stream:
            while part := stream.read(CHUNK):
                sha.update(part)
        if stat.st_size > CHUNK:
            self.fresh[key] = sha.hexdigest()
        return sha.hexdigest()

    def save(self) -> None:
        if not self.fresh:
            return
        try:
            self.store.parent.mkdir(parents=True, exist_ok=True)
            draft = self.store.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({**self.known, **self.fresh}))
            draft.replace(self.store)
        except OSError:
            return
