"""Why a program failed, in one line a person can act on: which statement, with which values.

Runs inside the program's process, so everything it says is a hint, never evidence. Assertions that compare two things
are compiled so that both sides are remembered.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import reprlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LEFT, _RIGHT = "@left", "@right"
_FILES = ("solution.py", "tests.py", "program.py")
_REWRITE_BELOW = 200_000

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 120
_repr.maxlist = _repr.maxtuple = _repr.maxdict = _repr.maxset = 12
_repr.maxlevel = 4


def compile_program(text: str, name: str, remember: bool) -> types.CodeType:
    """Compile `text`; with `remember`, its comparing assertions keep their two sides for the report."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    if not remember or "assert" not in text or len(text) > _REWRITE_BELOW:
        return compile(text, name, "exec", dont_inherit=True)
    tree = ast.parse(text, name)
    for statement in _statements(tree):
        if isinstance(statement, ast.Assert):
            _remember(statement)
    return compile(tree, name, "exec", dont_inherit=True)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements at and below `node`; expressions are not entered."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(current, field, None)
            if isinstance(below, list):
                waiting.extend(below)


def _remember(statement: ast.Assert) -> None:
    test = statement.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return
    left, right = test.left, test.comparators[0]
    test.left = ast.copy_location(ast.NamedExpr(ast.copy_location(ast.Name(_LEFT, ast.Store()), left), left), left)
    stored = ast.copy_location(ast.Name(_RIGHT, ast.Store()), right)
    test.comparators = [ast.copy_location(ast.NamedExpr(stored, right), right)]


def reporter(send: Callable[[Mapping[str, str]], None]) -> Callable[..., None]:
    """An exception hook that prints the program's own traceback and hands `send` the kind and a one-line account."""

    def report(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename not in _FILES:
            trace = trace.tb_next
        try:
            account = _account(error, trace)
        except BaseException as second:
            account = f"{kind.__name__} (no account of it: {type(second).__name__})"
        with contextlib.suppress(BaseException):
            sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
        send({"kind": kind.__name__, "explanation": account})

    return report


def _account(error: BaseException, trace: types.TracebackType | None) -> str:
    """`tests.py line 5: assert f(2) == 4; left 5, right 4`."""
    what = type(error).__name__
    message = str(error).splitlines()[0][:300] if str(error) else ""
    what = f"{what}: {message}" if message else what
    frames = [item for item in _walk(trace) if item[0].f_code.co_filename in _FILES]
    if not frames:
        return what
    frame, line = frames[-1]
    parts = [f"{frame.f_code.co_filename} line {line}: {_text(frame, line)}"]
    if not isinstance(error, AssertionError) or message:
        parts.append(what)
    parts += _values(frame, line)[:4]
    caller = next((item for item in reversed(frames[:-1]) if item[0].f_code.co_filename == "tests.py"), None)
    if caller is not None:
        known = [item for item in _values(*caller) if item not in parts][:4]
        parts.append(f"called from tests.py line {caller[1]}: {_text(*caller)}")
        parts += known
    return "; ".join(parts)


def _walk(trace: types.TracebackType | None) -> Iterator[tuple[types.FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _text(frame: types.FrameType, line: int) -> str:
    return linecache.getline(frame.f_code.co_filename, line).strip()[:200]


def _values(frame: types.FrameType, line: int) -> list[str]:
    """Both sides of a remembered comparison, else the local variables the line names."""
    scope = frame.f_locals
    if _LEFT in scope and _text(frame, line).startswith("assert"):
        sides = [f"left {_repr.repr(scope[_LEFT])}"]
        return [*sides, f"right {_repr.repr(scope[_RIGHT])}"] if _RIGHT in scope else sides
    if frame.f_code.co_name == "<module>":
        return []
    try:
        tree = ast.parse(_text(frame, line).rstrip(":") + (": pass" if _text(frame, line).endswith(":") else ""))
    except (SyntaxError, ValueError):
        return []
    names = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return [f"{name} = {_repr.repr(scope[name])}" for name in names if name in scope and _plain(scope[name])]


def _plain(value: Any) -> bool:
    return not callable(value) and not isinstance(value, types.ModuleType)
