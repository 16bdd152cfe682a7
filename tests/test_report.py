"""Tables and pictures come from records alone, show what varies, and never invent a number."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments import report
from experiments.frames import load_runs, read_runs, varying
from experiments.metrics import metrics
from experiments.picture import pareto
from experiments.record import CONFIG, METRICS, RunRecord, write_json
from tests.test_metrics import line, verdict


def record(root: Path, mark: str, *, decoding: str = "threshold", cache: str = "none", done: bool = True, **more: Any) -> Path:
    """A record of four answers, `more["right"]` of them right; `threshold`, `n`, `notes`, `warnings`, `host` as given."""
    folder = root / "demo" / "toy" / mark
    config = {
        "model": {"_target_": "m", "path": str(root)},
        "decoding": {"_target_": "d", **({"threshold": more.get("threshold", 0.9)} if decoding != "steps" else {})},
        "cache": {"_target_": "c", "before": None if cache == "none" else 0},
        "name": more.get("name", "demo"),
        "limit": None,
        "max_tokens": None,
    }
    right = more.get("right", 2)
    lines = [line(str(i), 10, batch=f"a-{i}", seconds=0.5, forwards=more.get("forwards", 5)) for i in range(more.get("n", 4))]
    scores = [verdict(one["id"], float(i < right), "right" if i < right else "wrong") for i, one in enumerate(lines)]
    with RunRecord(folder, mark) as opened:
        (folder / CONFIG).write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
        opened.note(
            status="running",
            choices={"model": "tiny", "decoding": decoding, "cache": cache, "hydra/launcher": "basic"},
            identity={"task": {"sha256": str(more.get("n", 4))}, "engine": {"device": "cpu"}},
            task={"name": "toy", "version": "1", "provenance": {"notes": more.get("notes", [])}},
            samples=4,
            sessions=[{"host": more.get("host", "here")}],
            warnings=more.get("warnings", []),
        )
        opened.generations.add(lines if done else lines[:1])
        if done:
            opened.finish(metrics(lines, scores))
    return folder


def shown(words: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    assert report.run([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_the_text_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "a", decoding="steps", right=3)
    record(tmp_path, "b", cache="dual", threshold=0.8)
    record(tmp_path, "c", cache="dual", threshold=0.9, forwards=20)
    rows = [" ".join(row.split()) for row in shown([tmp_path], capsys).splitlines()]
    assert rows[:4] == [
        "task decoding cache decoding.threshold n accuracy ± s.e. tokens/forward tokens/s forwards",
        "toy steps none 4 0.750 ± 0.250 2.00 20.0 20",
        "toy threshold dual 0.8 4 0.500 ± 0.289 2.00 20.0 20",
        "toy threshold dual 0.9 4 0.500 ± 0.289 0.50 20.0 80",
    ]


def test_markdown_and_csv_have_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "a")
    record(tmp_path, "b", cache="dual")
    markdown = shown([tmp_path, "--format", "md"], capsys).splitlines()
    assert markdown[0] == "| task | decoding | cache | n | accuracy ± s.e. | tokens/forward | tokens/s | forwards |"
    assert markdown[2] == "| toy | threshold | dual | 4 | 0.500 ± 0.289 | 2.00 | 20.0 | 20 |"
    rows = list(csv.DictReader(io.StringIO(shown([tmp_path, "--format", "csv"], capsys))))
    assert [(r["cache"], r["accuracy"], r["tokens_per_second"], r["n"]) for r in rows] == [
        ("dual", "0.5", "20.0", "4"),
        ("none", "0.5", "20.0", "4"),
    ]


def test_an_unfinished_record_is_not_available_rather_than_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "a", done=False)
    table = shown([tmp_path], capsys)
    assert "1 of 4" in table
    assert "N/A (running)" in table
    assert "0.0" not in table
    assert report.run([str(tmp_path), "--png", str(tmp_path / "x.png")]) == 2
    assert "at least one finished record" in capsys.readouterr().err


def test_different_samples_and_notes_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "a", n=4, notes=["public tests only"], warnings=["w"])
    record(tmp_path, "b", n=3, notes=["public tests only"], warnings=["w"], host="there")
    table = shown([tmp_path], capsys)
    assert "the runs answer 2 different sets of samples" in table
    assert table.count("public tests only") == 1
    assert "toy (2 runs): w" in table
    assert "different devices: cpu on here; cpu on there" in table


def test_a_torn_record_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    folder = record(tmp_path, "a", done=False)
    with (folder / "generations.jsonl").open("ab") as stream:
        stream.write(b'{"id": "2", "te')
    assert read_runs([tmp_path])[0].kept == 1
    assert (folder / "generations.jsonl").read_bytes().endswith(b'"te')


def test_what_varies_is_found_within_an_option(tmp_path: Path) -> None:
    record(tmp_path, "a", cache="none")
    record(tmp_path, "b", cache="dual", name="other")
    assert varying(read_runs([tmp_path])) == []
    record(tmp_path, "c", cache="dual", threshold=0.5)
    assert varying(read_runs([tmp_path])) == ["decoding.threshold"]


def test_a_wrapped_strategy_is_named_with_its_wrapper(tmp_path: Path) -> None:
    folder = record(tmp_path, "a", decoding="credit")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["choices"]["decoding@decoding.inner"] = "hierarchy"
    write_json(folder / "manifest.json", manifest)
    assert read_runs([folder])[0].choices["decoding"] == "credit(hierarchy)"


def test_the_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i, (decoding, cache) in enumerate([("steps", "none"), ("threshold", "none"), ("threshold", "dual")]):
        record(tmp_path, str(i), decoding=decoding, cache=cache, right=i + 1, forwards=20 - 6 * i)
    shown([tmp_path, "--png", tmp_path / "new" / "a.png"], capsys)
    from matplotlib.image import imread

    pixels = imread(tmp_path / "new" / "a.png")
    assert pixels.shape[0] > 400
    assert len({tuple(p) for p in pixels.reshape(-1, pixels.shape[-1])[::7].round(2)}) > 10


def test_a_name_that_is_no_picture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "a")
    assert report.run([str(tmp_path), "--png", str(tmp_path / "x.doc")]) == 2
    assert "must end in one of .png" in capsys.readouterr().err


def test_the_pareto_front() -> None:
    points = [(1.0, 0.9), (2.0, 0.8), (3.0, 0.85), (4.0, 0.1), (0.5, 0.2), (4.0, 0.05)]
    assert pareto(points) == [0, 2, 3]
    assert pareto([]) == []
    assert pareto([(1.0, 1.0), (1.0, 1.0)]) == [0]


def test_nothing_to_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.run([str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert report.run([str(tmp_path)]) == 2
    assert "holds no records" in capsys.readouterr().err


def test_records_as_a_data_frame(tmp_path: Path) -> None:
    record(tmp_path, "a")
    folder = record(tmp_path, "b", done=False)
    frame = load_runs(tmp_path)
    assert list(frame["n"]) == [4, 1]
    assert frame["accuracy"].isna().tolist() == [False, True]
    assert frame["outcomes.right"].iloc[0] == 2
    assert not (folder / METRICS).exists()
