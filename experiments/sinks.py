"""Where a run is mirrored besides its record. A sink that fails is a warning: the record is the truth."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from experiments.errors import one_line

log = logging.getLogger(__name__)

#: Numbers of a line that are drawn while a run goes on.
COLUMNS = ("id", "text", "n_tokens", "finish", "steps", "value", "outcome", "answer", "explanation")
DRAWN = ("n_tokens", "steps", "seconds")


class Sink(Protocol):
    """A mirror of one run: opened with its record, told of each line, closed with the final numbers."""

    def open(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """`facts`: fingerprint, name, task, config, choices."""
        ...

    def line(self, line: Mapping[str, Any]) -> None: ...

    def close(self, metrics: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> None:
        """`metrics` is None when the run failed; `rows` are the samples' lines, scores merged in."""
        ...

    def mirrored(self, folder: Path) -> bool:
        """Whether this record has been mirrored to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Nothing:
    """No mirror."""

    def open(self, folder: Path, facts: Mapping[str, Any]) -> None:
        return None

    def line(self, line: Mapping[str, Any]) -> None:
        return None

    def close(self, metrics: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> None:
        return None

    def mirrored(self, folder: Path) -> bool:
        return True


@dataclass(frozen=True)
class Wandb:
    """Weights & Biases. The run's id is the fingerprint, its group the experiment's name; files lie in the record."""

    mode: Literal["offline", "online"] = "offline"
    project: str = "dinfer"
    entity: str | None = None
    rows: int = 1000

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError(f"rows must be at least 0, got {self.rows}")
        if importlib.util.find_spec("wandb") is None:
            raise ValueError("logger=wandb needs the package wandb: pip install 'dinfer[wandb]', or use logger=none")

    def open(self, folder: Path, facts: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        wandb.init(
            dir=str(folder),
            mode=self.mode,
            project=self.project,
            entity=self.entity,
            id=facts["fingerprint"],
            name=f"{facts['task']} {facts['fingerprint'][:8]}",
            group=facts["name"],
            resume="allow",
            config={**facts["config"], "choices": facts["choices"]},
            tags=[f"{k}={v}" for k, v in facts["choices"].items() if k in ("model", "decoding", "iteration", "cache")],
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )

    def line(self, line: Mapping[str, Any]) -> None:
        import wandb

        if wandb.run is not None:
            wandb.log({f"sample/{key}": line[key] for key in DRAWN})

    def close(self, metrics: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> None:
        import wandb

        if wandb.run is None:
            return
        folder = Path(wandb.run.dir).parents[2]
        if metrics is not None:
            wandb.run.summary.update(flat(metrics))
            columns: list[str | int] = [*COLUMNS]
            data = [[row.get(str(column)) for column in columns] for row in rows[: self.rows]]
            wandb.log({"samples": wandb.Table(columns=columns, data=data)})
        wandb.finish(exit_code=0 if metrics is not None else 1)
        if metrics is not None:
            (folder / "wandb" / ".mirrored").write_text(self.mode)

    def mirrored(self, folder: Path) -> bool:
        done = folder / "wandb" / ".mirrored"
        return done.is_file() and (self.mode == "offline" or done.read_text() == self.mode)


class Safe:
    """A sink whose failures are logged once and then left alone."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.working = True

    def call(self, method: str, *arguments: Any) -> None:
        if not self.working:
            return
        try:
            getattr(self.sink, method)(*arguments)
        except Exception as error:
            self.working = False
            log.warning("%s stopped mirroring this run: %s", type(self.sink).__name__, one_line(error)[:200])


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by "/"."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}/")
        else:
            found[f"{prefix}{key}"] = value
    return found
