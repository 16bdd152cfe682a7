"""Judge the answers that a data set itself holds: a self-test of a scorer on any rows. Keeps nothing, imports no torch."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.task import Score, Task
from experiments.build import build
from experiments.compose import compose
from experiments.errors import ConfigError, one_line
from experiments.samples import load_samples
from experiments.schema import check_root
from experiments.score import judge_all
from experiments.totals import VERDICT

log = logging.getLogger(__name__)

WORD = re.compile(r"(task[.\w]*|limit)=.*", re.DOTALL)
#: How many answers that are not right are shown.
SHOWN = 20


@dataclass
class Memory:
    """Verdicts that are not written down."""

    by_id: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self.by_id |= {line["id"]: dict(line) for line in lines}


def self_test(words: Sequence[str], workers: int) -> int:
    """Judge the reference answers of the task that the overrides name; the last line on standard output is "N of M"."""
    for word in words:
        if not WORD.fullmatch(word):
            raise ConfigError(f"{word!r} plays no part in --reference; it takes task=…, task.key=… and limit=N")
    if not any(word.startswith("task=") for word in words):
        raise ConfigError("--reference needs task=…, for example task=humaneval task.source=sample")
    config, _ = compose(words)
    check_root(config)
    task: Task = build(config["task"], "task")
    samples = load_samples(task, config["limit"])
    give = getattr(task, "reference_answer", None)
    texts = {sample.id: give(sample) if give else None for sample in samples}
    lines = [{"id": name, "text": text, "finish": "eos", "mask": False} for name, text in texts.items() if text is not None]
    if not lines:
        raise ConfigError(f"task {task.name} has no reference answers: its rows hold none, so there is nothing to judge")
    if len(lines) < len(samples):
        log.warning("%d of %d samples have no reference answer", len(samples) - len(lines), len(samples))
    memory = Memory()
    judge_all(task, samples, memory, lines, workers, total=len(lines))
    verdicts = [memory.by_id[line["id"]] for line in lines]
    tell(task, verdicts)
    sys.stdout.write(f"{sum(line['value'] == 1.0 for line in verdicts)} of {len(verdicts)}\n")
    return 0


def tell(task: Task, verdicts: Sequence[Mapping[str, Any]]) -> None:
    """Show which reference answers are not right, and what the task says of the whole."""
    wrong = [line for line in verdicts if line["value"] != 1.0]
    for line in wrong[:SHOWN]:
        sys.stdout.write(f"{line['id']}: {line['outcome']}: {one_line(line['explanation'])[:300]}\n")
    if len(wrong) > SHOWN:
        sys.stdout.write(f"and {len(wrong) - SHOWN} more\n")
    notes = getattr(task, "run_notes", None)
    for note in notes([Score(**{name: line[name] for name in VERDICT}) for line in verdicts]) if notes else []:
        sys.stdout.write(f"note: {note}\n")
