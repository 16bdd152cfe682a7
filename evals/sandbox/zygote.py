"""The fork server: one small trusted process per caller, from which every program is forked in milliseconds.

Started by client.py with an empty environment and a path of its own. For each connection it receives it forks a
supervisor (supervise), which forks the program. It keeps nothing between requests.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from evals.sandbox import channels, confine, house, kernel
from evals.sandbox.drive import drive
from evals.sandbox.watch import Watch

#: Ordinary numbers, far above those of accounts: every program running at a time has its own.
_FIRST_USER = 0x6D000000


def serve(descriptor: int, without: frozenset[str]) -> None:
    """Serve connections that arrive over the socket `descriptor` until it is closed.

    No exception handler may enclose the way from here to `drive` (see there), hence the straight lines.
    """
    control = socket.socket(fileno=descriptor)
    sys.executable = os.path.realpath(sys.executable)
    sys.dont_write_bytecode = True
    _preload()
    readable = house.readable()
    status = house.enter(without)
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        wish, received, _, _ = socket.recv_fds(control, 256, 1)
        if not wish:
            os._exit(0)
        _load(wish.decode().strip().split(","))
        if os.fork() == 0:
            control.close()
            _supervise(socket.socket(fileno=received[0]), dict(status), readable, without)
            os._exit(0)
        os.close(received[0])


def _preload() -> None:
    """What nearly every program, and every report, needs anyway; and what `site`, which is not loaded, would add."""
    import _sitebuiltins
    import atexit  # noqa: F401
    import collections  # noqa: F401
    import functools  # noqa: F401
    import heapq  # noqa: F401
    import itertools  # noqa: F401
    import math  # noqa: F401
    import random  # noqa: F401
    import re  # noqa: F401
    import string  # noqa: F401
    import threading  # noqa: F401
    import typing  # noqa: F401

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))


def _load(names: list[str]) -> None:
    for name in names:
        if name in channels.ON_REQUEST and name not in sys.modules:
            with contextlib.suppress(ImportError):
                __import__(name)


def _supervise(connection: socket.socket, status: dict[str, str], readable: list[str], without: frozenset[str]) -> None:
    """In the supervisor: read one request, run it, answer, leave. In the program: do not return.

    In a PID namespace the supervisor's child is the namespace's first process, which only waits: with it everything
    in the namespace ends, and the program, its child, is an ordinary process.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.become_subreaper()
    request = channels.receive(connection)
    status["pid_namespace"] = house.attempt("pid_namespace", without, lambda: kernel.unshare(kernel.NEW_PID))
    own_pids = status["pid_namespace"].startswith("active")
    own_root = status["mount_namespace"].startswith("active")
    folder = "/tmp/box" if own_root else _make_folder()
    user = _FIRST_USER + os.getpid()
    wires = channels.Channels(request["stdin"])
    began = time.monotonic()
    traced = house.may_trace(status)
    child = os.fork()
    if child == 0:
        connection.close()
        if own_pids:
            program = os.fork()
            if program != 0:
                _wait_as_first_process(program, wires)
        wires.become_program()
        report = confine.confine(
            request["limits"], folder, user, readable=readable, inherited=status, traced=traced, without=without
        )
        drive(request, channels.TELL, channels.READY, channels.DONE, report)
    wires.become_supervisor()
    answer = Watch(child, own_pids, request, wires, connection, began).run()
    if not own_root:
        _remove_folder(folder)
    channels.send(connection, answer)


def _wait_as_first_process(program: int, wires: channels.Channels) -> NoReturn:
    """Collect orphans until the program ends; pass its status on and end everything with it."""
    wires.become_bystander()
    ended, status = 0, 0
    while ended != program:
        ended, status = os.wait()
    os.write(wires.end, status.to_bytes(4, "little"))
    os._exit(0)


def _make_folder() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="sandbox-")


def _remove_folder(folder: str) -> None:
    """Remove what a program left, also where it took our permissions away from a folder of its own."""
    import shutil

    def open_up(function: Callable[[str], object], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            function(path)

    shutil.rmtree(folder, onerror=open_up)
    shutil.rmtree(folder, ignore_errors=True)
