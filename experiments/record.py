"""One run on disk: its folder, its lock, its lines. Safe against a kill at any moment; it knows nothing of models.

A line counts once its newline is on disk. `metrics.json` is written last and atomically: its presence means done.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from filelock import FileLock, Timeout

from experiments.errors import Busy, ConfigError

GENERATIONS, SCORES, METRICS, MANIFEST, CONFIG = (
    "generations.jsonl",
    "scores.jsonl",
    "metrics.json",
    "manifest.json",
    "config.yaml",
)
LOCK, WRITER = ".lock", ".writer.json"


def write_atomically(file: Path, text: str) -> None:
    """Replace `file` by `text` in one step: a reader sees the old or the new content, also after a power cut."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)


def write_json(file: Path, value: Any) -> None:
    write_atomically(file, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def read_json(file: Path) -> dict[str, Any]:
    """The object in `file`, empty when there is no such file. ConfigError when it is damaged."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is not valid JSON ({error}); remove it or its folder") from error
    return dict(value)


def read_lines(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Complete lines of a JSONL file and the bytes they take; a torn last line is left out. ConfigError when an earlier
    line is damaged or an id occurs twice."""
    if not file.is_file():
        return [], 0
    raw = file.read_bytes()
    chunks = raw.split(b"\n")[:-1]
    lines: list[dict[str, Any]] = []
    size, seen = 0, set()
    for number, chunk in enumerate(chunks, 1):
        try:
            value = json.loads(chunk)
        except ValueError as error:
            if number == len(chunks):
                break
            raise ConfigError(f"{file} line {number} is damaged ({error}); remove the folder to start again") from error
        if value["id"] in seen:
            raise ConfigError(f"{file} line {number} repeats the id {value['id']!r}; remove the folder to start again")
        seen.add(value["id"])
        lines.append(value)
        size += len(chunk) + 1
    return lines, size


class Lines:
    """An append-only JSONL file with one line an id, each on disk before `add` returns."""

    def __init__(self, file: Path) -> None:
        kept, size = read_lines(file)
        self.by_id: dict[str, dict[str, Any]] = {line["id"]: line for line in kept}
        self._stream: IO[bytes] = file.open("ab")
        self._stream.truncate(size)
        self._stream.seek(size)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines and wait until they are on disk. An id that is already there is a mistake of the caller."""
        fresh = [dict(line) for line in lines]
        for line in fresh:
            assert line["id"] not in self.by_id, f"{line['id']!r} is already recorded"
            self.by_id[line["id"]] = line
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in fresh)
        self._stream.write(text.encode("utf-8", "surrogatepass"))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        self._stream.close()


class RunRecord:
    """An open record. Use as a context manager; only one process can hold it.

    `generations` and `scores` hold what earlier processes left, and take more.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(folder / LOCK, timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise Busy(f"another process writes this record{_writer(folder)}: {folder}") from error
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> None:
        stored = read_json(self.folder / MANIFEST).get("fingerprint", self.fingerprint)
        if stored != self.fingerprint:
            raise ConfigError(f"{self.folder} holds the record of another run ({stored}), expected {self.fingerprint}")
        write_json(self.folder / WRITER, {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        self.generations = Lines(self.folder / GENERATIONS)
        self.scores = Lines(self.folder / SCORES)

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The final numbers, or None while the run is not done."""
        return read_json(self.folder / METRICS) or None

    def manifest(self) -> dict[str, Any]:
        return read_json(self.folder / MANIFEST)

    def note(self, **facts: Any) -> None:
        """Merge facts into the manifest."""
        write_json(self.folder / MANIFEST, {**self.manifest(), "fingerprint": self.fingerprint, **facts})

    def finish(self, metrics: Mapping[str, Any]) -> None:
        write_json(self.folder / METRICS, dict(metrics))

    def close(self) -> None:
        self.generations.close()
        self.scores.close()
        (self.folder / WRITER).unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> RunRecord:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _writer(folder: Path) -> str:
    """Who holds the lock, as far as it said."""
    try:
        who = json.loads((folder / WRITER).read_text())
        return f" (pid {who['pid']} on {who['host']})"
    except (OSError, ValueError, KeyError):
        return ""
