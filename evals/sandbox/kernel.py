"""The few Linux calls the standard library lacks, as functions that raise OSError.

No policy lives here. Everything is called between fork and the first line of untrusted code, in a process with one
thread.
"""

from __future__ import annotations

import ctypes
import os
import platform

NEW_USER, NEW_PID, NEW_NET = 0x10000000, 0x20000000, 0x40000000
NEW_MOUNT, NEW_IPC, NEW_UTS = 0x00020000, 0x08000000, 0x04000000

READ_ONLY, NO_SUID, NO_DEV, NO_EXEC = 1, 2, 4, 8
REMOUNT, BIND, RECURSIVE, PRIVATE = 32, 4096, 16384, 1 << 18
DETACH = 2

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 24, 36, 38
_CAP_VERSION_3 = 0x20080522

#: Numbers of the calls that have no wrapper, by machine.
_NUMBERS = {
    "x86_64": {"pivot_root": 155, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "seccomp": 277},
}
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446

_libc = ctypes.CDLL(None, use_errno=True)


def machine() -> str:
    """The processor family as the kernel names it (`x86_64`, `aarch64`, …)."""
    return platform.machine()


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _call(name: str, *arguments: object) -> int:
    function = getattr(_libc, name, None)
    if function is None:
        raise OSError(38, f"{name}: not offered by this system")
    return _checked(name, function(*arguments))


def _syscall(name: str, number: int | None, *arguments: object) -> int:
    if number is None:
        raise OSError(38, f"{name}: number unknown on {machine()}")
    return _checked(name, _libc.syscall(ctypes.c_long(number), *arguments))


def unshare(flags: int) -> None:
    """Leave the parent's namespaces named by `flags`."""
    _call("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def bind(source: str, target: str, *, writable_devices: bool = False) -> None:
    """Show `source` at `target`, with everything mounted below it, read-only unless it is a device."""
    mount(source, target, None, BIND | RECURSIVE)
    if writable_devices:
        return
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SUID | NO_DEV, 0, 0, 0)
    try:
        _syscall("mount_setattr", _MOUNT_SETATTR, -100, target.encode(), 0x8000, ctypes.byref(attributes), 32)
    except OSError:
        held = os.statvfs(target).f_flag & (NO_SUID | NO_DEV | NO_EXEC)
        mount("none", target, None, BIND | REMOUNT | READ_ONLY | held)


def change_root(root: str) -> None:
    """Make `root` (a mount point) the root of this mount namespace and forget the old one."""
    os.chdir(root)
    _syscall("pivot_root", _NUMBERS.get(machine(), {}).get("pivot_root"), b".", b".")
    unmount(".")
    os.chdir("/")


def unmount(target: str) -> None:
    """Take away what is mounted at `target`, now or when nobody uses it any more."""
    _call("umount2", target.encode(), DETACH)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that none escapes a later kill."""
    _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_dumpable(value: bool) -> None:
    """Whether processes of the same user may look into this one."""
    _call("prctl", _PR_SET_DUMPABLE, int(value), 0, 0, 0)


def no_new_privileges() -> None:
    """From here on no program started gains rights (set-uid bits and file capabilities are ignored)."""
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_bounding_set() -> None:
    """Give up the possibility to regain a capability, as far as allowed."""
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break


def drop_capabilities() -> None:
    """Give up every capability held."""
    drop_bounding_set()
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION_3, 0)
    _call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def install_filter(program: bytes) -> None:
    """Load a classic BPF program (8 bytes an instruction) as this process's system-call filter, for good."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    loaded = Program(len(program) // 8, program)
    number = _NUMBERS.get(machine(), {}).get("seccomp")
    _syscall("seccomp", number, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.byref(loaded))


def landlock_version() -> int:
    """The Landlock interface version of this kernel; OSError where it is missing or switched off."""
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))


def landlock(handled: int, rules: list[tuple[int, int]]) -> None:
    """Refuse the file operations in `handled` except where a rule (open folder descriptor, allowed) grants them."""
    attributes = (ctypes.c_uint64 * 1)(handled)
    ruleset = _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, ctypes.byref(attributes), ctypes.c_size_t(8), 0)
    try:
        for folder, allowed in rules:
            rule = (ctypes.c_uint8 * 12)(*allowed.to_bytes(8, "little"), *folder.to_bytes(4, "little"))
            _syscall("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0)
        _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
