"""Brings a value out of the sandbox: statements that print it there, marked, and the reading of what was printed.

Only plain Python data comes through unchanged; anything else becomes an `Opaque`, which equals nothing. So a verdict
compares values here, outside, and an object of the program's that lies about equality gains nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_MARK = "\x1evalue "

#: Runs with untouched builtins. Numbers of numpy and the like count as numbers; long integers travel in hexadecimal.
_REPORT = f"""
def _plain(value):
    import numbers
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int or isinstance(value, numbers.Integral):
        number = int(value)
        return number if abs(number) < 2 ** 53 else {{"int": hex(number)}}
    if kind is float or isinstance(value, numbers.Real):
        return float(value)
    if kind is complex:
        return {{"complex": [value.real, value.imag]}}
    if kind is bytes:
        return {{"bytes": value.hex()}}
    if isinstance(value, list):
        return [_plain(item) for item in list.__iter__(value)]
    for base in (tuple, set, frozenset):
        if isinstance(value, base):
            return {{base.__name__: [_plain(item) for item in base.__iter__(value)]}}
    if isinstance(value, dict):
        return {{"dict": [[_plain(key), _plain(item)] for key, item in dict.items(value)]}}
    return {{"opaque": kind.__name__}}


def _report(value):
    import json, os, sys
    text = json.dumps(_plain(value))
    sys.stdout.flush()
    os.write(1, ("\\n{_MARK}" + text + "\\n").encode())


_report(%s)
"""


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A value that is no plain data; `kind` is the name of its type."""

    kind: str

    def __repr__(self) -> str:
        return f"<{self.kind} object>"


def report(name: str) -> str:
    """Statements, for `run_program`'s `tests`, that print the value of `name`."""
    return _REPORT % name


def reported(stdout: str) -> tuple[bool, Any]:
    """Whether a value was printed, and the last one."""
    found = stdout.rpartition(_MARK)
    if not found[1]:
        return False, None
    try:
        return True, _restored(json.loads(found[2].split("\n", 1)[0]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False, None


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "int":
        return int(content, 16)
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "opaque":
        return Opaque(str(content))
    if kind == "dict":
        return {_restored(key): _restored(item) for key, item in content}
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](_restored(item) for item in content)
