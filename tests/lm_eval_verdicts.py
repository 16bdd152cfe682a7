"""Verdicts and prompts of an installed lm-eval, by its own code, for tests that compare ours with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

TASKS = Path(lm_eval.__file__).parent / "tasks"


@cache
def gsm8k_task(file: str, test: str, train: str | None) -> ConfigurableTask:
    """lm-eval's task of a file in its gsm8k folder, on local rows."""
    config = yaml.safe_load((TASKS / "gsm8k" / file).read_text(encoding="utf-8"))
    files = {"test": test, "train": train or test}
    config |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    return ConfigurableTask(config=config)


def gsm8k(task: ConfigurableTask, row: dict[str, str], text: str) -> dict[str, float]:
    """exact_match of both filters on one answer."""
    out = {}
    for ensemble, ours in zip(task._filters, ("strict", "flexible"), strict=True):
        instance = Instance("generate_until", row, ("", {}), 0)
        instance.resps = [text]
        ensemble.apply([instance])
        got = instance.filtered_resps[ensemble.name]
        out[ours] = float(task.process_results(row, [got])["exact_match"])
    return out


def gsm8k_prompts(task: ConfigurableTask, shots: int, layout: str, count: int) -> list[Any]:
    """The first prompts as plain text (layout `text`) or as lists of messages."""
    task.set_fewshot_seed(1234)
    rows = list(task.test_docs())[:count]
    if layout == "text":
        return [task.fewshot_context(row, shots) for row in rows]
    keep: Any = lambda messages, **_: messages  # noqa: E731
    return [
        task.fewshot_context(row, shots, apply_chat_template=True, fewshot_as_multiturn=layout == "turns", chat_template=keep)
        for row in rows
    ]
