"""Rows from files of every kind, from the package and from a hub that cannot be reached, and what is noted of them."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from evals import data
from evals.data import HubSource, Rows, load_rows

HUB = HubSource("openai/gsm8k", "main", "test", "740312add88f781978c0658806c59bc2815b9866")
ROWS = [{"question": "a\u2028b\x00c", "answer": "1"}, {"question": "ü", "answer": "2"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def load(path: Path | str | None, known: int | None = None, **changes: Any) -> Rows:
    given: dict[str, Any] = {"source": "hub", "hub": HUB, "columns": ("question", "answer"), "known_rows": known, **changes}
    return load_rows("gsm8k", path=None if path is None else str(path), **given)


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.jsonl", LINES),
        ("bom.jsonl", b"\xef\xbb\xbf" + LINES),
        ("crlf.jsonl", LINES.replace(b"\n", b"\r\n")),
        ("empty_lines.jsonl", b"\n\n" + LINES.replace(b"\n", b"\n \t\n\n")),
        ("null_padding.jsonl", LINES + b"\x00" * 50 + b"\n"),
        ("no_last_newline.jsonl", LINES.rstrip()),
        ("unescaped.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()),
        ("raw_null.jsonl", LINES.replace(b"\\u0000", b"\x00")),
        ("array.json", json.dumps(ROWS, indent=1).encode()),
        ("lines.jsonl.gz", gzip.compress(LINES)),
        ("array.json.gz", gzip.compress(json.dumps(ROWS).encode())),
        ("no_suffix", gzip.compress(LINES)),
    ],
)
def test_every_kind_of_file_gives_the_same_rows_and_hash(tmp_path: Path, name: str, content: bytes) -> None:
    loaded = load(written(tmp_path, name, content))
    assert loaded.rows == ROWS
    reference = load(written(tmp_path, "reference.jsonl", LINES))
    assert loaded.provenance["sha256"] == reference.provenance["sha256"]
    assert loaded.provenance["path"] == name
    assert loaded.provenance["rows"] == 2
    assert loaded.provenance["notes"] == []


def test_parquet_gives_the_same_rows_and_hash(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [{**row, "extra": {"a": None, "b": 1}} for row in ROWS]
    pq.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    columns = ("question", "answer", "extra")
    loaded = load(tmp_path / "t.parquet", columns=columns)
    assert loaded.rows == rows
    lines = "".join(json.dumps({**row, "extra": {"b": 1}}) + "\n" for row in ROWS).encode()
    same = load(written(tmp_path, "t.jsonl", lines), columns=columns)
    assert loaded.provenance["sha256"] == same.provenance["sha256"]
    broken = written(tmp_path, "torn.parquet", (tmp_path / "t.parquet").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"torn\.parquet: broken parquet"):
        load(broken)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LINES + b'{"question": "torn', r"bad\.jsonl, line 3: not a JSON object"),
        (LINES + b"\xff\xfe\n", r"bad\.jsonl, line 3: not a JSON object in UTF-8"),
        (b"5\n", r"bad\.jsonl, line 1: expected a JSON object, got int"),
        (b'[{"question": 1},\n{]', r"bad\.jsonl, line 2: not a JSON array"),
        (b"[5]", r"bad\.jsonl, element 0: expected a JSON object"),
        (b"[]", r"bad\.jsonl: no rows"),
        (b"\n\n", r"bad\.jsonl: no rows"),
        (gzip.compress(LINES)[:-12], r"bad\.jsonl: broken gzip"),
        (
            b'{"question": "q", "solution": "s"}\n',
            r"bad\.jsonl, row 1: column 'answer' is missing, there are question, solution",
        ),
    ],
)
def test_broken_files_name_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(written(tmp_path, "bad.jsonl", content))


def test_a_folder_must_hold_one_data_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold one data file .* found none"):
        load(tmp_path)
    written(tmp_path, "README.md", b"about")
    written(tmp_path, "test.jsonl", LINES)
    assert load(tmp_path).provenance["path"] == "test.jsonl"
    written(tmp_path, "train.jsonl.gz", gzip.compress(LINES))
    with pytest.raises(ValueError, match=r"found test\.jsonl, train\.jsonl\.gz; give the file itself"):
        load(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        load(tmp_path / "absent.jsonl")


def test_differences_from_the_published_set_are_said_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "odd.jsonl", b'{"question": "q", "answer": "1", "level": 3}\n')
    with caplog.at_level(logging.WARNING):
        notes = load(path, known=1319).provenance["notes"]
    assert any("columns beyond the published ones" in note and "level" in note for note in notes)
    assert any("1 rows" in note and "1319" in note for note in notes)
    assert [record.getMessage() for record in caplog.records] == [f"gsm8k: {note}" for note in notes]


def test_a_changed_file_is_read_again_and_callers_cannot_change_each_other(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", LINES)
    first = load(path)
    first.rows[0]["question"] = "changed"
    first.provenance["notes"].append("changed")
    again = load(path)
    assert again.rows == ROWS
    assert again.provenance["notes"] == []
    written(tmp_path, "a.jsonl", LINES + b'{"question": "q", "answer": "3"}\n')
    assert len(load(path).rows) == 3


def test_samples_come_from_the_package() -> None:
    loaded = load(None, known=1319, source="sample")
    assert len(loaded.rows) >= 4
    assert loaded.provenance["source"] == "sample"
    assert "not the published benchmark" in loaded.provenance["notes"][0]
    with pytest.raises(ValueError, match="no sample rows"):
        load_rows("absent", source="sample", path=None, hub=HUB, columns=(), known_rows=None)
    with pytest.raises(ValueError, match="source must be one of hub, sample, got 'web'"):
        load(None, source="web")


def test_an_unreachable_hub_says_in_one_line_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")

    def refuse(*_: Any, **__: Any) -> None:
        raise socket.gaierror("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(data, "getproxies", dict)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    offline = datasets.config.HF_HUB_OFFLINE
    for hub in (HUB, HubSource("a/b", None, "test", HUB.revision, files=("test.jsonl",))):
        with pytest.raises(ValueError, match=r"task\.path=FILE .* or task\.source=sample") as error:
            load(None, hub=hub)
        assert "\n" not in str(error.value)
        assert f"{hub.id}@{hub.revision}" in str(error.value)
    assert datasets.config.HF_HUB_OFFLINE is offline


def test_the_hub_is_asked_for_the_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[Any, ...]] = []

    def answer(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        asked.append((args, kwargs))
        return [dict(row) for row in ROWS]

    monkeypatch.setattr(datasets, "load_dataset", answer)
    monkeypatch.setattr(data, "_unreachable", lambda: False)
    data._load.cache_clear()
    pinned = load(None, known=2)
    assert asked[-1] == (("openai/gsm8k", "main"), {"split": "test", "revision": HUB.revision})
    assert pinned.rows == ROWS
    assert pinned.provenance["revision"] == HUB.revision
    assert pinned.provenance["notes"] == []
    moving = load(None, known=2, hub=HubSource("openai/gsm8k", "main", "test", "main"))
    assert "can move" in moving.provenance["notes"][0]
    load(None, known=2, hub=HubSource("a/b", None, "test", HUB.revision, files=("x.jsonl", "y.jsonl")))
    urls = [f"hf://datasets/a/b@{HUB.revision}/{name}" for name in ("x.jsonl", "y.jsonl")]
    assert asked[-1] == (("json",), {"data_files": urls, "split": "train"})
    data._load.cache_clear()
