"""Runs one program inside its own process, and makes its end visible from outside.

The supervisor must learn that the program ran to its last statement from something the program cannot imitate. So
nothing is sent that proves it: `drive` stops at a gate (a lock the supervisor holds) before the program and at another
after it, and the supervisor asks the kernel where the process's first thread stands. Both gates are passed from the
same frame, so instruction and stack pointers agree; code of the program runs below `exec`, on a deeper stack, and can
write what it likes to any descriptor without ever standing there. No frame under the program has an exception handler:
a failure unwinds everything and cannot be turned into a return.

What is left. Code that overwrites machine memory (for instance through numpy's array interface) can take over the
process as a whole. And tests that call a program in its own process trust what it returns: objects that claim to equal
anything, or a function that reaches through its caller's frame into the tests while they call it, can make tests pass
that should not. Where values can be brought out and compared outside, values.py does so.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import json
import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from evals.sandbox import explain

#: Builtins, names the tests take from the program, `sys.modules`, and of modules: name, module, attributes, a copy.
_Before = tuple[
    dict[str, Any],
    frozenset[str],
    dict[str, types.ModuleType],
    list[tuple[str, types.ModuleType, dict[str, Any], dict[str, Any]]],
]

_SOURCE, _TESTS, _PROGRAM = "solution.py", "tests.py", "program.py"


def drive(request: Mapping[str, Any], tell: int, ready: int, done: int, status: Mapping[str, str]) -> None:
    """Run `source`, then `tests`, and leave the process. Descriptors: `tell` for notes, two gates to wait at."""
    wait, write, lock = fcntl.flock, os.write, fcntl.LOCK_EX
    has_tests = request["tests"] is not None
    space = _fresh_main("solution" if has_tests else "__main__")
    checks: dict[str, Any] = {}
    write(tell, b"ready " + json.dumps(dict(status)).encode() + b"\n")
    wait(ready, lock)
    _prepare(tell)
    source = explain.compile_program(request["source"], _SOURCE if has_tests else _PROGRAM, not has_tests)
    tests = explain.compile_program(request["tests"] or "", _TESTS, True)
    sys.addaudithook(_refuse)
    # What the tests need is on the evaluation stack while `source` runs; no frame object shows it there.
    before = _snapshot(tests, request["provides"])
    exec(tests, _furnish(checks, space, before, type, str, exec(source, space)))  # type: ignore[func-returns-value]
    write(tell, b"done\n")
    wait(done, lock)
    _leave()


def _refuse(event: str, arguments: tuple[Any, ...], own: str = __file__) -> None:
    """Audit hook: no debugger (it could jump over statements), no raw memory, no rewriting of this file's functions."""
    if event in ("sys.settrace", "sys.setprofile", "gc.get_objects", "gc.get_referrers", "gc.get_referents"):
        raise RuntimeError(f"{event} is not available to a confined program")
    if event.startswith(("ctypes.", "sys.monitoring.")):
        raise RuntimeError(f"{event} is not available to a confined program")
    if event == "object.__setattr__" and arguments[1] in ("__code__", "__defaults__", "__kwdefaults__"):
        code = arguments[0].__code__
        if code.co_filename == own:
            raise RuntimeError("this function cannot be changed")


def _no_debugger(function: object) -> None:
    """In place of `sys.settrace` and `sys.setprofile`: there is nothing to switch off, and no switching on."""
    if function is not None:
        raise RuntimeError("debuggers are not available to a confined program")


def _fresh_main(name: str) -> dict[str, Any]:
    """The namespace of an empty module that the program sees as its own; ours are out of sight."""
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    for key in [key for key in sys.modules if key == "__main__" or key.split(".")[0] == "evals"]:
        del sys.modules[key]
    sys.modules[name] = module
    sys.modules.setdefault("__main__", module)
    return module.__dict__


def _prepare(tell: int) -> None:
    """The same pseudo-random numbers in every run, our report of exceptions, a clean view of the command line."""
    import random

    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    sys.excepthook = explain.reporter(lambda note: _send(tell, note))
    sys.settrace = sys.setprofile = _no_debugger
    sys.argv = ["program.py"]
    sys.path.insert(0, os.getcwd())
    os.environ.clear()
    os.environ.update(HOME=os.getcwd(), TMPDIR=os.getcwd(), LANG="C.UTF-8", PATH="/usr/bin:/bin")


def _send(tell: int, note: Mapping[str, str]) -> None:
    os.write(tell, b"failed " + json.dumps(dict(note)).encode() + b"\n")
    _leave(1)


def _snapshot(tests: types.CodeType, provided: list[str]) -> _Before:
    """What the tests use, as it is before the program runs. A builtin's name means the builtin, unless provided."""
    names = _names(tests)
    modules = [
        (name, module, vars(module), dict(vars(module)))
        for name, module in sys.modules.items()
        if name.split(".")[0] in names and isinstance(module, types.ModuleType)
    ]
    originals = dict(vars(builtins))
    return originals, frozenset(names - originals.keys() | set(provided)), sys.modules, modules


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _furnish(
    checks: dict[str, Any], space: dict[str, Any], before: _Before, kind: type, text: type, _ran: None
) -> dict[str, Any]:
    """The tests' own namespace: untouched builtins and modules, and those names of the program that the tests use.

    Uses no global name and calls nothing that the program could have replaced.
    """
    originals, names, loaded, modules = before
    for name, module, attributes, copy in modules:
        loaded[name] = module
        attributes.update(copy)
    plain = {name: value for name, value in space.items() if kind(name) is text}
    checks.update({name: plain[name] for name in names if name in plain})
    checks["__builtins__"], checks["__name__"] = originals, "tests"
    return checks


def _leave(code: int = 0) -> None:
    """End as an interpreter does: wait for threads, run exit handlers, flush; then without further ado."""
    steps: list[Callable[[], Any]] = [sys.stdout.flush, sys.stderr.flush]
    if code == 0:
        import atexit
        import threading

        steps = [threading._shutdown, atexit._run_exitfuncs, *steps]  # type: ignore[attr-defined]
    for step in steps:
        with contextlib.suppress(BaseException):
            step()
    os._exit(code)
