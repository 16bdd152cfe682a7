"""Records survive torn lines, refuse a second writer and a foreign fingerprint, and never double a sample."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.errors import Busy, ConfigError
from experiments.record import Lines, RunRecord, read_lines, write_atomically


def test_lines_are_kept_in_order_and_reopened(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a.jsonl")
    lines.add([{"id": "1", "text": "ä\u2028\n"}])
    lines.add([{"id": "2", "text": ""}])
    lines.close()
    again = Lines(tmp_path / "a.jsonl")
    assert list(again.by_id) == ["1", "2"]
    assert again.by_id["1"]["text"] == "ä\u2028\n"
    again.close()


@pytest.mark.parametrize("torn", [b'{"id": "2", "te', b'{"id": "2"}', b"\x00\x00\x00", b'{"id": "2", "t": tru\n'])
def test_a_torn_last_line_is_dropped_and_overwritten(tmp_path: Path, torn: bytes) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"id": "1"}\n' + torn)
    assert [line["id"] for line in read_lines(file)[0]] == ["1"]
    lines = Lines(file)
    lines.add([{"id": "2", "text": "whole"}])
    lines.close()
    assert [json.loads(x) for x in file.read_text().splitlines()] == [{"id": "1"}, {"id": "2", "text": "whole"}]


def test_every_cut_of_a_file_resumes_to_the_same_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    whole = b"".join(json.dumps({"id": str(i), "text": "x" * i}).encode() + b"\n" for i in range(4))
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        lines = Lines(file)
        lines.add([{"id": str(i), "text": "x" * i} for i in range(4) if str(i) not in lines.by_id])
        lines.close()
        assert file.read_bytes() == whole


def test_damage_before_the_last_line_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"id": "1"\n{"id": "2"}\n')
    with pytest.raises(ConfigError, match="line 1 is damaged"):
        read_lines(file)
    file.write_bytes(b'{"id": "1"}\n{"id": "1"}\n')
    with pytest.raises(ConfigError, match="line 2 repeats the id '1'"):
        read_lines(file)


def test_an_id_cannot_be_added_twice(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a.jsonl")
    lines.add([{"id": "1"}])
    with pytest.raises(AssertionError, match="already recorded"):
        lines.add([{"id": "1"}])
    lines.close()


def test_another_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from experiments.record import RunRecord\n"
        "r = RunRecord(Path(sys.argv[1]), 'f'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(Busy, match=rf"another process writes this record .pid {holder.pid} on "):
        RunRecord(tmp_path, "f")
    holder.kill()
    holder.wait()
    RunRecord(tmp_path, "f").close()


def test_a_record_of_another_run_is_refused(tmp_path: Path) -> None:
    with RunRecord(tmp_path, "one") as record:
        record.note(status="running")
    with pytest.raises(ConfigError, match=r"another run .one., expected two"):
        RunRecord(tmp_path, "two")
    with RunRecord(tmp_path, "one") as record:
        assert record.manifest()["status"] == "running"


def test_metrics_mean_done(tmp_path: Path) -> None:
    with RunRecord(tmp_path, "f") as record:
        assert record.metrics is None
        record.finish({"accuracy": 0.5})
        assert record.metrics == {"accuracy": 0.5}
    assert sorted(f.name for f in tmp_path.iterdir() if not f.name.startswith(".")) == [
        "generations.jsonl",
        "metrics.json",
        "scores.jsonl",
    ]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "x", "old")
    write_atomically(tmp_path / "x", "new")
    assert [f.read_text() for f in tmp_path.iterdir()] == ["new"]
