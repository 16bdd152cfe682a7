"""Which run this is: a fingerprint over everything that can change its answers or its clock.

In it: the checkpoint's content, decoding, iteration, cache, guidance, the task's fields and version, the samples themselves,
budget, seed, and the engine (batch size, dtype, device and the like: they move the timing, some of them the answers). Not in
it: paths, names, folders, the logger, the number of scoring processes, the machine's other properties.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from evals.task import Sample, Task

FORMAT = 1
#: Endings of fields that say where data lies; the data itself is hashed instead.
PLACE = "path"


def plain(value: Any) -> Any:
    """A component as plain data: its class and fields, nested ones too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        found = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": f"{kind.__module__}.{kind.__qualname__}", **found}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def digest(value: Any) -> str:
    """sha256 of plain data, independent of key order."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def task_identity(task: Task, samples: Sequence[Sample]) -> dict[str, Any]:
    """The task's class, fields, version and the content of the samples that are decoded."""
    fields: dict[str, Any] = plain(task) if dataclasses.is_dataclass(task) else {}
    fields = {key: value for key, value in fields.items() if not key.endswith(PLACE)}
    return {"name": task.name, **fields, "version": task.version, "samples": len(samples), "sha256": digest(list(samples))}


def fingerprint(identity: Mapping[str, Any]) -> str:
    """16 hex digits."""
    return digest({"format": FORMAT, **identity})[:16]


def sample_seed(seed: int, sample: str) -> int:
    """A sample's own seed, the same whatever else is decoded with it."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{sample}".encode()).digest()[:4], "big") >> 1
