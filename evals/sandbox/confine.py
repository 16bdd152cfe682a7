"""What happens to one program between fork and its first line: own folders, limits, another user, fewer rights.

Runs in the process that is about to become the program and cannot be undone there. It reports each layer by name; the
supervisor compares the report with `missing_protections` before the program may start.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from evals.sandbox import filters, house, kernel, processes

_NOBODY = 65534
#: Landlock rights, as bits: run and read files and folders; read files only; write to a file.
_READ_FOLDER, _READ_FILE, _WRITE_FILE = 0b1101, 0b0101, 0b0010
_MAKE_DEVICES = 1 << 6 | 1 << 11
_RIGHTS_KNOWN = {1: 13, 2: 14, 3: 15, 4: 15}

#: Each protection holds when at least one of its layers is active.
_PROTECTIONS = {
    "files of others are out of reach": ("mount_namespace", "landlock"),
    "no network": ("network_namespace", "seccomp"),
    "other processes are out of reach": ("pid_namespace", "seccomp"),
    "no rights of ours": ("user", "capabilities"),
    "no new rights": ("no_new_privileges",),
    "resource limits": ("limits",),
    "an end that cannot be faked": ("attestation",),
}


def missing_protections(status: Mapping[str, str]) -> list[str]:
    """The protections none of whose layers is active."""
    return [
        f"{promise} (needs {' or '.join(layers)})"
        for promise, layers in _PROTECTIONS.items()
        if not any(status.get(layer, "").startswith("active") for layer in layers)
    ]


def confine(
    limits: Mapping[str, Any],
    folder: str,
    user: int,
    *,
    readable: Sequence[str],
    inherited: Mapping[str, str],
    traced: bool,
    without: frozenset[str],
) -> dict[str, str]:
    """Confine the calling process for good, working in `folder` as `user`; returns layer name → `active…` or why not.

    `inherited` is the state of the layers made earlier (see house.py and zygote.py); `traced` says that the supervisor
    can look into a process that forbids it, so that this one may.
    """
    status = dict(inherited)
    mapped = _mapped()
    own_root = status["mount_namespace"].startswith("active")
    own_pids = status["pid_namespace"].startswith("active")
    if own_root:
        _own_folders(int(limits["file_bytes"]), folder, own_pids, readable)
    kernel.drop_bounding_set()
    status["user"] = _change_user(folder, user, status, without)
    others = 0 if status["user"].startswith("active: a") else processes.tasks_of(os.geteuid())
    status["limits"] = house.attempt("limits", without, lambda: _limits(limits, mapped, others))
    status["capabilities"] = house.attempt("capabilities", without, kernel.drop_capabilities)
    status["no_new_privileges"] = house.attempt("no_new_privileges", without, kernel.no_new_privileges)
    with contextlib.suppress(OSError):
        kernel.set_dumpable(not traced)
    os.chdir(folder)
    os.umask(0o077)
    places = [*readable, "/proc"] if own_root else list(readable)
    writable = ["/tmp", "/dev/shm"] if own_root else [folder]
    status["landlock"] = house.attempt("landlock", without, lambda: _landlock(places, writable))
    status["seccomp"] = house.attempt("seccomp", without, lambda: _seccomp(own_pids), f"{filters.count()} system calls refused")
    return status


def _own_folders(file_bytes: int, folder: str, own_pids: bool, readable: Sequence[str]) -> None:
    """Empty `/tmp` and `/dev/shm` in memory, gone with the last process; a `/proc` that shows only this program.

    An interpreter or package that is installed below `/tmp` stays in sight.
    """
    kernel.unshare(kernel.NEW_MOUNT)
    covered = {path: os.open(path, os.O_PATH | os.O_NOFOLLOW) for path in readable if path.startswith("/tmp/")}
    flags = kernel.NO_SUID | kernel.NO_DEV
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, f"size={4 * file_bytes},nr_inodes=4096,mode=1777")
    for path, descriptor in covered.items():
        house.show(path, descriptor, path)
        os.close(descriptor)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", flags, "size=1m,nr_inodes=64,mode=1777")
    try:
        if not own_pids:
            raise OSError("it would show the processes of others")
        kernel.mount("proc", "/proc", "proc", flags | kernel.NO_EXEC)
    except OSError:
        kernel.mount("tmpfs", "/proc", "tmpfs", flags | kernel.READ_ONLY, "size=4k,mode=555")
    os.mkdir(folder, 0o700)


def _mapped() -> int:
    """Bytes of address space this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _limits(limits: Mapping[str, Any], mapped: int, others: int) -> None:
    """Limits of one process; memory counts from what the interpreter maps, tasks from those the user has already."""
    space = (mapped or 2**30) + int(limits["memory_mb"]) * 2**20
    seconds = max(1, int(limits["cpu_s"] + 0.999))
    wanted = {
        "RLIMIT_AS": (space, space),
        "RLIMIT_CPU": (seconds, seconds + 1),
        "RLIMIT_FSIZE": (int(limits["file_bytes"]),) * 2,
        "RLIMIT_NOFILE": (int(limits["open_files"]),) * 2,
        "RLIMIT_NPROC": (int(limits["processes"]) + others,) * 2,
        "RLIMIT_STACK": (64 * 2**20,) * 2,
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_MSGQUEUE": (0, 0),
        "RLIMIT_MEMLOCK": (0, 0),
    }
    for name, pair in wanted.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        _, allowed = resource.getrlimit(number)
        most = sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
        resource.setrlimit(number, (min(pair[0], most), min(pair[1], most)))


def _change_user(folder: str, user: int, status: Mapping[str, str], without: frozenset[str]) -> str:
    """As root: a user that owns nothing, a different one for every program. Else: a number of a user namespace."""

    def become(number: int) -> None:
        os.chown(folder, number, number)
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)

    if status["user_namespace"].startswith("active"):
        return house.attempt("user", without, lambda: house.own_users(_NOBODY), "alone in a user namespace")
    if os.geteuid() != 0:
        return "missing: the program runs as the caller"
    if not status["mount_namespace"].startswith("active") and not house.others_can_read():
        return "missing: other users cannot read this interpreter"
    result = house.attempt("user", without, lambda: become(user), "a user of its own, who owns nothing")
    if result.startswith("missing"):
        result = house.attempt("user", without, lambda: become(_NOBODY), "shared by all programs")
    return result


def _landlock(readable: Sequence[str], writable: Sequence[str]) -> None:
    known = _RIGHTS_KNOWN.get(kernel.landlock_version(), 16)
    everything = (1 << known) - 1
    write = _WRITE_FILE | (1 << 14 if known > 14 else 0)
    wanted = [(path, _READ_FOLDER if os.path.isdir(path) else _READ_FILE) for path in readable]
    wanted += [(f"/dev/{name}", _READ_FILE | write) for name in house.DEVICES]
    wanted += [(path, everything & ~_MAKE_DEVICES) for path in writable]
    rules = [(os.open(path, os.O_PATH), allowed) for path, allowed in wanted if os.path.exists(path)]
    try:
        kernel.landlock(everything, rules)
    finally:
        for descriptor, _ in rules:
            os.close(descriptor)


def _seccomp(own_pids: bool) -> None:
    program = filters.build(kernel.machine(), None if own_pids else os.getpid())
    if program is None:
        raise OSError(f"no table of system calls for {kernel.machine()}")
    kernel.install_filter(program)
