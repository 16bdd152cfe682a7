"""The samples of a task, read and checked. Imports no torch."""

from __future__ import annotations

from evals.task import Sample, Task
from experiments.errors import ConfigError, one_line


def load_samples(task: Task, limit: int | None) -> list[Sample]:
    """The first `limit` samples, all when None. ConfigError when the data cannot be used."""
    try:
        samples = task.samples()
    except (ValueError, OSError) as error:
        raise ConfigError(f"task: {one_line(error)}") from error
    if not samples:
        raise ConfigError(f"task {task.name} has no samples")
    if len({sample.id for sample in samples}) < len(samples):
        raise ConfigError(f"task {task.name} uses a sample id twice")
    return samples[:limit]
