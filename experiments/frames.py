"""Records as rows: what a report, a notebook or a script reads instead of folders. Reads only; a running record is fine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from experiments.errors import ConfigError
from experiments.record import CONFIG, GENERATIONS, MANIFEST, METRICS, read_json, read_lines

if TYPE_CHECKING:
    import pandas

#: Configuration that tells no run from another, or that another column shows.
ASIDE = ("name", "runs", "workers", "logger", "limit", "model.path")


@dataclass(frozen=True, slots=True)
class Run:
    """One record. `settings` is the flat configuration, `metrics` is empty while the run is not done."""

    folder: Path
    fingerprint: str
    task: str
    name: str
    status: str
    kept: int
    samples: int
    choices: Mapping[str, str]
    settings: Mapping[str, Any]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return bool(self.metrics)


def read_run(folder: Path) -> Run:
    manifest, metrics = read_json(folder / MANIFEST), read_json(folder / METRICS)
    stored = OmegaConf.to_container(OmegaConf.load(folder / CONFIG))
    assert isinstance(stored, dict)
    config = {str(key): value for key, value in stored.items()}
    kept = metrics["n"] if metrics else len(read_lines(folder / GENERATIONS)[0])
    return Run(
        folder=folder,
        fingerprint=manifest["fingerprint"],
        task=labelled(manifest["task"]),
        name=config["name"],
        status="done" if metrics else manifest["status"],
        kept=kept,
        samples=manifest["samples"],
        choices=folded(manifest["choices"]),
        settings=flat_settings(config),
        metrics=metrics,
        manifest=manifest,
    )


def labelled(task: Mapping[str, Any]) -> str:
    """The task's name with what its data must be called by, such as public-only."""
    label = task["provenance"].get("label")
    return f"{task['name']} ({label})" if label else str(task["name"])


def folded(choices: Mapping[str, str]) -> dict[str, str]:
    """The option of each group, a wrapped option named with its wrapper: credit(hierarchy); its usual one is left out."""
    found = {group: option for group, option in choices.items() if "@" not in group and "/" not in group}
    for place, option in choices.items():
        group, at, _ = place.partition("@")
        if at and group in found and option != "threshold":
            found[group] = f"{found[group]}({option})"
    return found


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """Record folders at or below `paths`, in the order given, those below one path sorted. ConfigError for a path that
    does not exist or holds none."""
    found: dict[Path, None] = {}
    for path in paths:
        root = Path(path).expanduser()
        if not root.exists():
            raise ConfigError(f"{root} does not exist; give a folder of records")
        manifests = [root / MANIFEST] if (root / MANIFEST).is_file() else sorted(root.rglob(MANIFEST))
        folders = [file.parent for file in manifests if (file.parent / CONFIG).is_file()]
        if not folders:
            raise ConfigError(f"{root} holds no records ({MANIFEST} with {CONFIG}); give a folder of records")
        found.update(dict.fromkeys(folders))
    return list(found)


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """The records at or below `paths`."""
    return [read_run(folder) for folder in find_records(paths)]


def load_runs(*paths: str | Path) -> pandas.DataFrame:
    """One row a record: choices, settings and metrics as columns, for notebooks. Default: the folder `runs`."""
    import pandas

    return pandas.DataFrame([row(run) for run in read_runs(paths or ["runs"])])


def row(run: Run) -> dict[str, Any]:
    """A record as one flat row."""
    facts = {"task": run.task, "name": run.name, "fingerprint": run.fingerprint, "status": run.status}
    counts = {"n": run.kept, "samples": run.samples, "folder": str(run.folder)}
    groups = {key: value for key, value in run.choices.items() if key != "task"}
    numbers = {key: value for key, value in flat_settings(run.metrics).items() if key not in ("n", "fingerprint")}
    return {**facts, **groups, **counts, **run.settings, **numbers}


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, class names left out."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key == "_target_":
            continue
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def varying(runs: Sequence[Run]) -> list[str]:
    """Settings that differ between runs which chose the same option: the axes of a sweep."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    found = []
    for key in keys:
        group = key.split(".")[0]
        if key in ASIDE or group in ASIDE:
            continue
        values: dict[str | None, set[str]] = {}
        for run in runs:
            if key in run.settings:
                values.setdefault(run.choices.get(group), set()).add(repr(run.settings[key]))
        if any(len(seen) > 1 for seen in values.values()):
            found.append(key)
    return found
