"""Rows of a benchmark, from a file, the Hugging Face hub or the package's own samples, with a record of what was read.

Everything the loaders notice (a row count or columns other than the published ones, a moving revision) is logged as a
warning and kept in the provenance, so that a number can be traced to the rows behind it. Nothing here knows what a row
means.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from evals.rowfiles import data_file, read_rows

logger = logging.getLogger(__name__)

#: Where rows come from when no path is given.
SOURCES = ("hub", "sample")


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set on the hub: `id`, `config` (None: the only one), `split` (as `datasets` spells it, `a+b` joins) and
    `revision`, a commit sha or tag. `files`, when set, are data files of the repository that are read directly, for
    repositories whose own loading script current versions of `datasets` refuse to run."""

    id: str
    config: str | None
    split: str
    revision: str
    files: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit sha, which cannot move."""
        return re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in file order and their provenance: `source` (path, hub or sample), `revision`, `path` (base name), `rows`,
    `sha256` (of the rows as canonical JSON with nulls dropped: equal content gives an equal hash whichever way it
    came), `file_sha256` (of the decompressed file, where there is one) and `notes`."""

    rows: list[dict[str, Any]]
    provenance: dict[str, Any] = field(default_factory=dict)


def load_rows(
    task: str,
    *,
    source: str,
    path: str | None,
    hub: HubSource,
    columns: Sequence[str],
    known_rows: int | None,
) -> Rows:
    """Rows of `task`: from `path` when given (jsonl, a JSON array, either gzipped, parquet, or a folder holding one
    such file), else from the hub (`source="hub"`) or the package's own samples (`source="sample"`).

    `columns` are the published columns and all required; `known_rows` is the published count, None when any count is
    fine. ValueError naming path, line and field when the rows cannot be read; a count or columns beyond the published
    ones only warn. Asking twice for an unchanged source reads it once.
    """
    if path is None and source not in SOURCES:
        raise ValueError(f"{task}: source must be one of {', '.join(SOURCES)}, got {source!r}")
    file = None if path is None else data_file(task, Path(path).expanduser())
    stamp = None if file is None else (file.stat().st_mtime_ns, file.stat().st_size)
    loaded = _load(task, source=source, file=file, stamp=stamp, hub=hub, columns=tuple(columns), known_rows=known_rows)
    return Rows([dict(row) for row in loaded.rows], {**loaded.provenance, "notes": list(loaded.provenance["notes"])})


@lru_cache(maxsize=4)
def _load(
    task: str,
    *,
    source: str,
    file: Path | None,
    stamp: tuple[int, int] | None,  # part of the cache key: a file that changed is read again
    hub: HubSource,
    columns: tuple[str, ...],
    known_rows: int | None,
) -> Rows:
    notes: list[str] = []
    digest: str | None = None
    if file is not None:
        where, kind, revision = str(file), "path", None
        rows, digest = read_rows(file.read_bytes(), where)
    elif source == "hub":
        where, kind, revision = f"{hub.id}@{hub.revision}", "hub", hub.revision
        rows = _from_hub(task, hub)
        if not hub.pinned:
            notes.append(f"revision {hub.revision!r} of {hub.id} is a name that can move, not a commit")
    else:
        where, kind, revision = f"the package's samples for {task}", "sample", None
        rows, digest = read_rows(_sample_bytes(task), where)
        notes.append(f"{len(rows)} sample rows of the package, not the published benchmark")
    _check_columns(task, rows, columns, where, notes)
    if kind != "sample" and known_rows is not None and len(rows) != known_rows:
        notes.append(f"{len(rows)} rows in {where}, the published set has {known_rows}")
    for note in notes:
        logger.warning("%s: %s", task, note)
    provenance: dict[str, Any] = {
        "source": kind,
        "hub": hub.id if kind == "hub" else None,
        "config": hub.config if kind == "hub" else None,
        "split": hub.split if kind == "hub" else None,
        "revision": revision,
        "path": file.name if file is not None else None,
        "rows": len(rows),
        "sha256": _rows_hash(rows),
        "file_sha256": digest,
        "notes": notes,
    }
    return Rows(rows, provenance)


def _from_hub(task: str, hub: HubSource) -> list[dict[str, Any]]:
    """Rows through `datasets`, from its cache where it has them; one line that says what to do when it cannot."""
    import datasets

    try:
        with _cache_only_if_unreachable():
            if hub.files:
                urls = [f"hf://datasets/{hub.id}@{hub.revision}/{name}" for name in hub.files]
                kind = "parquet" if hub.files[0].endswith(".parquet") else "json"
                data = datasets.load_dataset(kind, data_files=urls, split="train")
            else:
                data = datasets.load_dataset(hub.id, hub.config, split=hub.split, revision=hub.revision)
        return [dict(row) for row in data]
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ValueError(
            f"{task}: cannot read {hub.id}@{hub.revision} from the hub ({type(error).__name__}: {reason}); "
            "give task.path=FILE with the same columns, or task.source=sample for the package's own rows"
        ) from error


@contextmanager
def _cache_only_if_unreachable() -> Iterator[None]:
    """Without a network the hub client would retry for half a minute; inside this it asks only its cache, at once."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    if _unreachable():
        config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before


def _unreachable() -> bool:
    """Whether the hub's name cannot even be looked up; with a proxy only the proxy could tell."""
    from huggingface_hub import constants

    if getproxies():
        return False
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return True
    return False


def _sample_bytes(task: str) -> bytes:
    file = resources.files("evals").joinpath("samples", f"{task}.jsonl")
    if not file.is_file():
        raise ValueError(f"{task}: the package has no sample rows for it; give task.path=FILE or task.source=hub")
    return file.read_bytes()


def _check_columns(task: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], where: str, notes: list[str]) -> None:
    for number, row in enumerate(rows, start=1):
        for column in columns:
            if column not in row:
                raise ValueError(
                    f"{task}: {where}, row {number}: column {column!r} is missing, there are {', '.join(row) or 'none'}"
                )
    extra = sorted({column for row in rows for column in row} - set(columns))
    if extra:
        notes.append(f"columns beyond the published ones in {where}: {', '.join(extra)}")


def _rows_hash(rows: Sequence[Mapping[str, Any]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        text = json.dumps(_without_nulls(row), sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
        digest.update(text.encode("ascii") + b"\n")
    return digest.hexdigest()


def _without_nulls(value: Any) -> Any:
    """`value` without null members: some loaders fill absent members of a struct with null."""
    if isinstance(value, Mapping):
        return {str(k): _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(v) for v in value]
    return value
