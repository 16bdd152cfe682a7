"""Which system calls a confined program may not make, as a classic BPF program for seccomp.

Calls are refused with EPERM rather than answered by a kill, so that a harmless program that merely asks (a library
probing for a feature) goes on. Numbers are those of x86_64 and aarch64; elsewhere there is no filter.
"""

from __future__ import annotations

import struct

_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_CLONE_NAMESPACES = 0x7E020000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: name: (x86_64, aarch64); None where the machine lacks the call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the network: only `socketpair`, which event loops need, remains
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # the view of the file system, and ways round it
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "quotactl": (179, 60), "mknod": (133, None), "mknodat": (259, 33),
    # memory and objects that outlive a process or escape its limits
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "userfaultfd": (323, 282),
    # rings submit calls that no filter sees
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # the machine
    "bpf": (321, 280), "perf_event_open": (298, 241), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "acct": (163, 89), "syslog": (103, 116),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None),
    "personality": (135, 92), "modify_ldt": (154, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
}  # fmt: skip

#: Refused as well where no PID namespace keeps signals at home.
_SIGNALS: dict[str, tuple[int, int]] = {
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
}  # fmt: skip
#: kill, tgkill and prlimit64: their first argument is a process id.
_AIMED = ((62, 129), (234, 131), (302, 261))
_CLONE, _CLONE3, _NUMBER_X32 = (56, 220), 435, 0x40000000


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)


def _refuse(error: int = _EPERM) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def build(machine: str, own_pid: int | None) -> bytes | None:
    """The filter for `machine`, or None where its numbers are unknown.

    With `own_pid` signals may go to that process and its own group only.
    """
    if machine not in _ARCHITECTURES:
        return None
    column = 0 if machine == "x86_64" else 1
    steps = [
        _step(_LOAD, 4), _step(_EQUAL, _ARCHITECTURES[machine], 1, 0), _refuse(),
        _step(_LOAD, 0), _step(_AT_LEAST, _NUMBER_X32, 0, 1), _refuse(),
        _step(_EQUAL, _CLONE3, 0, 1), _refuse(_ENOSYS),
    ]  # fmt: skip
    refused = [pair[column] for pair in _REFUSED.values()]
    if own_pid is not None:
        refused += [pair[column] for pair in _SIGNALS.values()]
    for number in refused:
        if number is not None:
            steps += [_step(_EQUAL, number, 0, 1), _refuse()]
    # The first argument of clone holds its flags; its low half is at offset 16 of the kernel's record.
    steps += [
        _step(_EQUAL, _CLONE[column], 0, 4), _step(_LOAD, 16), _step(_ANY_BIT, _CLONE_NAMESPACES, 0, 1), _refuse(),
        _step(_RETURN, _ALLOW),
    ]  # fmt: skip
    if own_pid is not None:
        for pair in _AIMED:
            steps += [
                _step(_EQUAL, pair[column], 0, 5), _step(_LOAD, 16), _step(_EQUAL, own_pid, 2, 0),
                _step(_EQUAL, 0, 1, 0), _refuse(), _step(_RETURN, _ALLOW),
            ]  # fmt: skip
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def count() -> int:
    """How many calls the filter refuses outright."""
    return len(_REFUSED)
