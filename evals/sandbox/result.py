"""What goes into the sandbox besides a program, and what comes out: limits, the result, the error."""

from __future__ import annotations

from dataclasses import asdict, dataclass


class SandboxError(RuntimeError):
    """Programs cannot be run here as asked; the message says what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use.

    Args:
        wall_s: seconds from start to end.
        cpu_s: seconds of processor time, all processes together.
        memory_mb: megabytes beyond what the interpreter itself takes, all processes together.
        output_bytes: bytes on standard output, and as many on standard error.
        file_bytes: size of one file; all files together may take four times that.
        processes: processes and threads at a time.
        open_files: open descriptors at a time, per process.

    Raises:
        ValueError: a limit is not positive.
    """

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 1024
    output_bytes: int = 1 << 20
    file_bytes: int = 16 << 20
    processes: int = 32
    open_files: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"Limits.{name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True)
class RunResult:
    """How one program ended.

    Args:
        passed: it ran to its last statement and then ended by itself.
        reason: `ok`; `error` (an exception, assertions included); `exit` (it left before its last statement, or with
            a code other than 0 after it); `timeout`, `memory`, `output`, `processes` (a limit); `killed` (a signal);
            `forged` (it claimed an end it had not reached).
        seconds: wall time.
        stdout: what it wrote, cut at the limit.
        stderr: likewise.
        explanation: one line: which statement failed, with which values, or which limit was hit.
        code: exit code, negative for a signal; None when it was ended from outside.
        exception: name of the exception that ended it, by its own account.
    """

    passed: bool
    reason: str
    seconds: float
    stdout: str
    stderr: str
    explanation: str = ""
    code: int | None = None
    exception: str = ""
