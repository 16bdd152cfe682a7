"""Looking at, adding up and ending the processes of one program, through `/proc`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class Stand(NamedTuple):
    """Where a blocked thread stands: system call, its first argument, stack and instruction pointer."""

    call: str
    descriptor: int
    stack: str
    instruction: str


def stand(process: int) -> Stand | None:
    """Where the first thread of `process` is blocked; None while it runs. OSError when the kernel does not say."""
    path = f"/proc/{process}/syscall"
    try:
        text = _read(path)
    except PermissionError:
        if os.geteuid() != 0:
            raise
        owner = os.stat(f"/proc/{process}")
        text = _read_as(owner.st_uid, owner.st_gid, path)
    fields = text.split()
    return Stand(fields[0], int(fields[1], 16), fields[7], fields[8]) if len(fields) == 9 else None


def wait_for_stand(process: int, descriptor: int, seconds: float) -> Stand | None:
    """The stand of `process` once it waits on `descriptor`; None when it does not within `seconds`."""
    deadline, pause = time.monotonic() + seconds, 0.0001
    while True:
        found = stand(process)
        if found is not None and found.descriptor == descriptor:
            return found
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(0.005, 2 * pause)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _read_as(user: int, group: int, path: str) -> str:
    """Root without the right to trace may still look as the user that owns the process."""
    before = os.getegid()
    os.setegid(group)
    os.seteuid(user)
    try:
        return _read(path)
    finally:
        os.seteuid(0)
        os.setegid(before)


def tasks_of(user: int) -> int:
    """How many processes and threads `user` has on this machine, as far as they can be seen."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def descendants(process: int) -> list[int]:
    """Children, their children and so on; what ends meanwhile is left out."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        current = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{current}/task"):
                children = [int(word) for word in _read(f"/proc/{current}/task/{thread}/children").split()]
                found += children
                waiting += children
    return found


class Load(NamedTuple):
    """What all processes of a program hold: their number, memory beyond the interpreter's, processor seconds."""

    number: int
    memory: int
    seconds: float


def load(own: int) -> Load:
    """The load of the descendants of `own`, the supervisor, whose memory is the interpreter's share of each."""
    base = _resident(own)
    members = descendants(own)
    memory, ticks = 0, 0
    for process in members:
        with contextlib.suppress(OSError, IndexError, ValueError):
            memory += max(0, _resident(process) - base)
            fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return Load(len(members), memory, ticks / _TICKS)


def _resident(process: int) -> int:
    try:
        return int(_read(f"/proc/{process}/statm").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def end_all(program: int, own: int) -> None:
    """Kill `program` and every descendant of `own`, and collect those that are ours to collect.

    In a PID namespace the first signal ends them all; elsewhere they are hunted until none is left.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(program, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = [process for process in descendants(own) if process != program]
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        for process in left:
            with contextlib.suppress(OSError):
                os.waitpid(process, os.WNOHANG)
        time.sleep(0.001)
