"""The tests of LiveCodeBench: reading them, and comparing what a program gave with what was expected.

The comparison follows the official checker (github.com/LiveCodeBench/LiveCodeBench, lcb_runner/evaluation). Nothing
here runs a program.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

KINDS = ("stdin", "functional")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One test. `stdin`: `given` is the standard input, `expected` what must be printed. `functional`: the lines of
    `given` are the arguments in JSON, `expected` is the value in JSON."""

    given: str
    expected: str
    kind: str


def read_cases(text: str) -> list[Case]:
    """The tests of a column `public_test_cases` or `private_test_cases`.

    `text` is JSON, or base64 of zlib of a pickled string of JSON, as the data set has it. The pickle may hold nothing
    but that string. ValueError otherwise.
    """
    try:
        listed = json.loads(text if text.lstrip()[:1] in ("[", "{") else _unpacked(text))
        return [_case(item) for item in listed]
    except (ValueError, TypeError, KeyError, EOFError, zlib.error, pickle.UnpicklingError) as error:
        raise ValueError(f"test cases must be JSON or packed JSON, got {text[:40]!r} ({error})") from error


def _case(item: dict[str, Any]) -> Case:
    kind = item["testtype"]
    if kind not in KINDS:
        raise ValueError(f"testtype must be one of {', '.join(KINDS)}, got {kind!r}")
    return Case(str(item["input"]), str(item["output"]), kind)


class _StringsOnly(pickle.Unpickler):
    """Refuses to load any class or function, so that a pickle can bring data and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}")

    def persistent_load(self, identity: Any) -> Any:
        raise pickle.UnpicklingError("the pickle asks for an object from elsewhere")


def _unpacked(text: str) -> str:
    loaded = _StringsOnly(io.BytesIO(zlib.decompress(base64.b64decode(text, validate=True)))).load()
    if not isinstance(loaded, str):
        raise ValueError(f"expected a string in the pickle, got {type(loaded).__name__}")
    return loaded


def arguments(case: Case) -> list[Any]:
    """The arguments of a functional test. ValueError when a line is no JSON."""
    return [json.loads(line) for line in case.given.split("\n")]


def printing(cases: list[Case], method: str | None) -> str:
    """A program that knows the tests by heart: what it prints or returns for each is what is expected."""
    if method is None:
        table = {case.given: case.expected for case in cases}
        return f"import json\nimport sys\n\nknown = json.loads({json.dumps(table)!r})\nprint(known[sys.stdin.read()])\n"
    table = {json.dumps(arguments(case)): json.loads(case.expected) for case in cases}
    return (
        f"import json\n\n\nclass Solution:\n    known = json.loads({json.dumps(table)!r})\n\n"
        f"    def {method}(self, *arguments):\n        return self.known[json.dumps(list(arguments))]\n"
    )


def difference_of_values(got: Any, expected: str) -> str | None:
    """None when a returned value is the expected one, else what differs. A tuple may stand for a list, at the top."""
    wanted = json.loads(expected)
    value = list(got) if isinstance(got, tuple) else got
    return None if value == wanted else f"expected {_short(wanted)}, got {_short(got)}"


def difference_of_output(got: str, expected: str) -> str | None:
    """None when printed output counts as the expected one, else what differs.

    White space around lines and around the whole does not matter, the number of lines does. A line that is not equal
    may still be: when both are numbers throughout, and equal as decimal numbers (`1.50` and `1.5`, `1e3` and `1000`).
    There is no tolerance.
    """
    ours, theirs = _stripped(got), _stripped(expected)
    if len(ours) != len(theirs):
        return f"expected {len(theirs)} lines, got {len(ours)}: expected {_short(expected)}, got {_short(got)}"
    for number, (line, wanted) in enumerate(zip(ours, theirs, strict=True), start=1):
        if line != wanted and not _same_numbers(line, wanted):
            return f"line {number}: expected {_short(wanted)}, got {_short(line)}"
    return None


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(line: str, wanted: str) -> bool:
    try:
        return [Decimal(word) for word in line.split()] == [Decimal(word) for word in wanted.split()]
    except InvalidOperation:
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
