"""Reads a file of rows: JSON lines or a JSON array, plain or gzipped, or parquet, told apart by content.

Tolerant of what editors and transfers leave behind (byte order mark, carriage returns, empty lines, null bytes); a torn
or invalid line is an error that names the file and the line.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from pathlib import Path
from typing import Any

#: Names that count as data files when a folder is given.
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".parquet")


def data_file(task: str, path: Path) -> Path:
    """The file to read: `path` itself, or the single data file of a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"{task}: path {str(path)!r} does not exist")
    found = sorted(p for p in path.iterdir() if p.is_file() and p.name.endswith(SUFFIXES))
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise ValueError(
            f"{task}: folder {str(path)!r} must hold one data file ({' '.join(SUFFIXES)}), found {names}; give the file itself"
        )
    return found[0]


def read_rows(raw: bytes, where: str) -> tuple[list[dict[str, Any]], str]:
    """Rows of a file's bytes, recognised by content rather than by name, and the sha256 of the decompressed bytes."""
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{where}: broken gzip file ({error})") from error
    digest = hashlib.sha256(raw).hexdigest()
    if raw[:4] == b"PAR1":
        return _read_parquet(raw, where), digest
    body = raw.removeprefix(b"\xef\xbb\xbf")
    if body.lstrip(b" \t\r\n\x00")[:1] == b"[":
        return _read_array(body, where), digest
    return _read_lines(body, where), digest


def _read_lines(body: bytes, where: str) -> list[dict[str, Any]]:
    """JSON lines. Split at line feeds only, since other separators may stand inside a string; lines of nothing but
    white space or null bytes are skipped."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(io.BytesIO(body), start=1):
        text = line.strip(b" \t\r\n\x00")
        if not text:
            continue
        try:
            row = json.loads(text.decode("utf-8"), strict=False)
        except ValueError as error:
            raise ValueError(f"{where}, line {number}: not a JSON object in UTF-8 ({error})") from error
        rows.append(_object(row, f"{where}, line {number}"))
    if not rows:
        raise ValueError(f"{where}: no rows")
    return rows


def _read_array(body: bytes, where: str) -> list[dict[str, Any]]:
    try:
        data = json.loads(body.strip(b" \t\r\n\x00").decode("utf-8"), strict=False)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}, line {error.lineno}: not a JSON array ({error.msg})") from error
    except ValueError as error:
        raise ValueError(f"{where}: not UTF-8 ({error})") from error
    if not data:
        raise ValueError(f"{where}: no rows")
    return [_object(row, f"{where}, element {i}") for i, row in enumerate(data)]


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(row).__name__}")
    return row


def _read_parquet(raw: bytes, where: str) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(raw)).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{where}: broken parquet file ({error})") from error
    if not rows:
        raise ValueError(f"{where}: no rows")
    return rows
