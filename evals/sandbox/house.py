"""The fork server's own surroundings, made once: private namespaces and a read-only root holding nothing of ours.

Every program is forked inside them and confined further (see confine.py). What the kernel does not grant here is
reported by name and reason; whether the rest is enough is decided where a program starts.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping

from evals.sandbox import kernel

_BUILD = "/tmp"
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/nix/store", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")


def readable() -> list[str]:
    """Folders and files a program may read: the system's, the interpreter's, and its installed packages."""
    wanted = [*_SYSTEM, sys.base_prefix, sys.base_exec_prefix, *sys.path]
    kept: list[str] = []
    for path in sorted({os.path.abspath(item) for item in wanted if item and os.path.exists(item)}, key=len):
        if path != "/" and not any(path == parent or path.startswith(parent + "/") for parent in kept):
            kept.append(path)
    return kept


def may_trace(status: Mapping[str, str]) -> bool:
    """Whether this process may look into processes that do not agree to it (CAP_SYS_PTRACE of the machine)."""
    if status["user_namespace"].startswith("active"):
        return False
    with open("/proc/self/status" if os.path.exists("/proc/self/status") else os.devnull) as file:
        held = [line.split()[1] for line in file if line.startswith("CapEff:")]
    return bool(held) and bool(int(held[0], 16) >> 19 & 1)


def others_can_read() -> bool:
    """Whether an ordinary user could load the interpreter's library from where it lies."""
    path = os.path.dirname(os.path.abspath(os.__file__))
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def enter(without: frozenset[str]) -> dict[str, str]:
    """Leave the caller's namespaces; returns layer name → `active…` or why not. Call with one thread."""
    status: dict[str, str] = {}
    status["user_namespace"] = _user_namespace(without)
    status["network_namespace"] = attempt("network_namespace", without, lambda: kernel.unshare(kernel.NEW_NET))
    status["ipc_namespace"] = attempt("ipc_namespace", without, lambda: kernel.unshare(kernel.NEW_IPC))
    status["mount_namespace"] = attempt("mount_namespace", without, _private_root)
    return status


def attempt(layer: str, without: frozenset[str], action: Callable[[], None], detail: str = "") -> str:
    """Run `action`; `active` (with `detail`) or the reason it did not work."""
    if layer in without:
        return "switched off"
    try:
        action()
    except (OSError, ValueError) as error:
        return f"missing: {error}"
    return f"active: {detail}" if detail else "active"


def _user_namespace(without: frozenset[str]) -> str:
    """Ordinary users may make the other namespaces only inside a user namespace of their own; root needs none."""
    if "user_namespace" in without:
        return "switched off"
    if os.geteuid() == 0:
        try:
            kernel.unshare(kernel.NEW_UTS)
            return "not needed: running as root"
        except OSError:
            pass

    def check_then_enter() -> None:
        # A half-made user namespace cannot be left again, so a child tries first.
        child = os.fork()
        if child == 0:
            try:
                own_users(0)
                kernel.unshare(kernel.NEW_MOUNT)
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            raise OSError(code, f"own user numbers: {os.strerror(code)}")
        own_users(0)

    return attempt("user_namespace", without, check_then_enter, "root inside is an ordinary user outside")


def own_users(inside: int) -> None:
    """A user namespace in which the present user and group appear as number `inside`."""
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _private_root() -> None:
    """A small read-only root: the interpreter, its packages, the system's libraries, five devices, `/proc`."""
    kernel.unshare(kernel.NEW_MOUNT)
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    sources = {path: os.open(path, os.O_PATH | os.O_NOFOLLOW) for path in readable()}
    devices = [f"/dev/{name}" for name in DEVICES if os.path.exists(f"/dev/{name}")]
    sources |= {path: os.open(path, os.O_PATH) for path in (*devices, "/proc")}
    kernel.mount("tmpfs", _BUILD, "tmpfs", kernel.NO_SUID, "size=1m,mode=755")
    try:
        for path, descriptor in sources.items():
            show(path, descriptor, _BUILD + path)
        for folder in ("tmp", "dev/shm"):
            os.makedirs(f"{_BUILD}/{folder}", exist_ok=True)
        kernel.change_root(_BUILD)
    except OSError:
        os.chdir("/")
        kernel.unmount(_BUILD)
        raise
    finally:
        for descriptor in sources.values():
            os.close(descriptor)
    kernel.mount("none", "/", None, kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | kernel.NO_SUID)


def show(path: str, descriptor: int, target: str) -> None:
    """Make what `descriptor` names, once found at `path`, appear read-only at `target`."""
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISLNK(kind):
        os.symlink(os.readlink(path), target)
        return
    if stat.S_ISDIR(kind):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    is_open = path == "/proc" or stat.S_ISCHR(kind)
    kernel.bind(f"/proc/self/fd/{descriptor}", target, writable_devices=is_open)
