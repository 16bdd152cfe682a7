"""Runs one program inside its own process, and makes its end visible from outside.

The supervisor must learn that the program ran to its last statement from something the program cannot imitate. So
nothing is sent that proves it: `drive` stops at a gate (a lock the supervisor holds) before the program and at another
after it, and the supervisor asks the kernel where the process's first thread stands. Both gates are passed from the
same frame, so instruction and stack pointers agree; code of the program runs below `exec`, on a deeper stack, and can
write what it likes to any descriptor without ever standing there. No frame under the program has an exception handler:
a failure unwinds everything and cannot be turned into a return.

What is left: code that overwrites machine memory (for instance through numpy's array interface) can take over the
process as a whole, and a program whose objects lie about equality passes any test written in its own process.
"""

from __future__ import annotations

import builtins
import fcntl
import json
import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from evals.sandbox import explain

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
    ours = frozenset(request["provides"])
    exec(tests, _furnish(checks, ours, space, _snapshot(tests), exec(source, space)))  # type: ignore[func-returns-value]
    write(tell, b"done\n")
    wait(done, lock)
    _leave()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: no debugger (it could jump over statements), no raw memory, no rewriting of functions."""
    if (
        event in ("sys.settrace", "sys.setprofile", "gc.get_objects", "gc.get_referrers", "gc.get_referents")
        or event.startswith(("ctypes.", "sys.monitoring."))
        or (event == "object.__setattr__" and arguments[1] == "__code__")
    ):
        raise RuntimeError(f"{event} is not available to a confined program")


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
    sys.argv = ["program.py"]
    sys.path.insert(0, os.getcwd())
    os.environ.clear()
    os.environ.update(HOME=os.getcwd(), TMPDIR=os.getcwd(), LANG="C.UTF-8", PATH="/usr/bin:/bin")


def _send(tell: int, note: Mapping[str, str]) -> None:
    os.write(tell, b"failed " + json.dumps(dict(note)).encode() + b"\n")
    _leave(1)


def _snapshot(tests: types.CodeType) -> tuple[dict[str, Any], set[str], dict[str, tuple[types.ModuleType, dict]]]:
    """The builtins, the names `tests` uses, and the modules among them, all as they are before the program ran."""
    names = _names(tests)
    modules = {
        key: (module, dict(vars(module)))
        for key, module in sys.modules.items()
        if key.split(".")[0] in names and isinstance(module, types.ModuleType)
    }
    return dict(vars(builtins)), names, modules


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _furnish(
    checks: dict[str, Any],
    provided: frozenset[str],
    space: Mapping[str, Any],
    before: tuple[dict[str, Any], set[str], dict[str, tuple[types.ModuleType, dict]]],
    _ran: None,
) -> dict[str, Any]:
    """The tests' own namespace: untouched builtins and modules, and those names of the program that the tests use.

    A builtin's name means the builtin, unless the program is to provide it.
    """
    originals, names, modules = before
    for key, (module, attributes) in modules.items():
        sys.modules[key] = module
        vars(module).update(attributes)
    known = originals.keys() - provided
    checks.update({name: space[name] for name in names if name in space and name not in known})
    checks.update(__builtins__=originals, __name__="tests")
    return checks


def _leave(code: int = 0) -> None:
    """End as an interpreter does: wait for threads, run exit handlers, flush; then without further ado."""
    steps: list[Callable[[], Any]] = [sys.stdout.flush, sys.stderr.flush]
    if code == 0:
        import atexit
        import threading

        steps = [threading._shutdown, atexit._run_exitfuncs, *steps]  # type: ignore[attr-defined]
    for step in steps:
        try:
            step()
        except BaseException:
            code = code or 1
    os._exit(code)
