"""Runs over the benchmarks' sample rows: labels, run-level numbers, notes and outcomes reach every place that shows them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from experiments import report
from experiments import run as app

SMALL = ("model=random", "task.source=sample", "max_tokens=16", "iteration.block_length=8", "limit=3")
TASKS = (
    "gsm8k", "humaneval", "humaneval_plus", "mbpp", "mbpp_sanitized", "mbpp_plus", "livecodebench", "cruxeval_input",
    "cruxeval_output", "ifeval",
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def numbers(root: Path) -> dict[str, Any]:
    (file,) = root.glob("runs/*/*/*/metrics.json")
    return dict(json.loads(file.read_text()))


@pytest.mark.parametrize("task", TASKS)
def test_every_benchmark_runs_on_its_sample_rows(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([f"task={task}", *SMALL]) == 0
    found = numbers(tmp_path)
    assert found["n"] == found["scored"] == sum(found["outcomes"].values()) == 3
    shown = capsys.readouterr().out
    assert "note: " in shown
    assert "sample rows of the package, not the published benchmark" in shown
    for kind, count in found["outcomes"].items():
        if count and kind not in ("right", "wrong"):
            assert f"{kind} {count}" in shown


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
def test_a_label_is_shown_with_the_result_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    import wandb

    kept: dict[str, Any] = {}
    finish = wandb.finish

    def spy(*arguments: Any, **more: Any) -> None:
        assert wandb.run is not None
        kept.update(dict(wandb.run.summary))
        finish(*arguments, **more)

    monkeypatch.setattr(wandb, "finish", spy)
    assert app.run(["task=livecodebench", "task.tests=public", "logger=wandb", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "livecodebench (public-only)" in shown
    assert "public-only: 3 problems were judged by their public tests alone" in shown
    assert numbers(tmp_path)["label"] == "public-only"
    assert kept["label"] == "public-only"
    for kind in report.FORMATS:
        assert report.run(["runs", "--format", kind]) == 0
        assert "public-only" in capsys.readouterr().out
    assert app.run(["task=livecodebench", *SMALL, "name=all"]) == 0
    files = list(tmp_path.glob("runs/all/*/*/metrics.json"))
    assert json.loads(files[0].read_text())["label"] is None


def test_instruction_level_accuracies_are_numbers_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["task=ifeval", *SMALL]) == 0
    summary = numbers(tmp_path)["summary"]
    assert set(summary) == {"prompt_strict", "prompt_loose", "inst_strict", "inst_loose"}
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert "inst_strict" in head
    assert f"{summary['inst_loose']:.3f}" in row
