"""Watching one program: its output, its end, its load; then the verdict.

Nothing the program says is believed. The verdict rests on where the kernel says the program stands (see drive.py), on
limits measured here, and on the exit status; the program's own notes only explain a failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from evals.sandbox import processes
from evals.sandbox.channels import DONE, READY, Channels
from evals.sandbox.confine import missing_protections

_NOTES_LIMIT = 65_536


class Watch:
    """One program under observation. `run` returns when every process of it is gone."""

    def __init__(
        self,
        child: int,
        has_first: bool,
        request: Mapping[str, Any],
        channels: Channels,
        caller: socket.socket,
        began: float,
    ) -> None:
        self.child, self.channels, self.caller, self.began = child, channels, caller, began
        # The program is our child, or the only child of it, the first process of a namespace.
        self.has_first, self.program = has_first, child
        self.limits: Mapping[str, Any] = request["limits"]
        self.unsafe: bool = request["unsafe"]
        self.texts = {channels.stdout: bytearray(), channels.stderr: bytearray(), channels.notes: bytearray()}
        self.layers: dict[str, str] = {}
        self.stand: processes.Stand | None = None
        self.claims_end = self.finished = False
        self.failure: dict[str, str] = {}
        self.ended: tuple[str, str] | None = None

    def run(self) -> dict[str, Any]:
        """Watch until the program ends or must be ended; the answer to the caller, ready for JSON."""
        poll = select.poll()
        for descriptor in (*self.texts, self.caller.fileno()):
            poll.register(descriptor, select.POLLIN)
        exited = _descriptor(self.child)
        if exited is not None:
            poll.register(exited, select.POLLIN)
        next_look, pause = 0.0, 0.01
        while self.ended is None and not (exited is None and _has_ended(self.child)):
            now, deadline = time.monotonic(), self.began + self.limits["wall_s"]
            if now >= deadline:
                what = "still running" if not self.finished else "past its last statement, but threads still running"
                self._end("timeout", f"{what} after {self.limits['wall_s']:g} s of wall time")
                break
            if self.claims_end and not self.finished:
                self._let_finish()
                pause = min(pause, 0.005)
            if now >= next_look:
                self._check_load()
                pause = min(0.1, 1.5 * pause)
                next_look = now + pause
            events = dict(poll.poll(max(1, int(1000 * min(pause if exited is not None else 0.005, deadline - now)))))
            for descriptor in events.keys() & self.texts.keys():
                if not self._collect(descriptor):
                    poll.unregister(descriptor)
            if self.caller.fileno() in events:
                self._end("cancelled", "nobody waits for the result any more")
            if exited in events:
                break
        return self._close(exited)

    def _end(self, reason: str, explanation: str) -> None:
        self.ended = self.ended or (reason, explanation)

    def _collect(self, descriptor: int) -> bool:
        """Take what a pipe holds; False at its end."""
        try:
            piece = os.read(descriptor, 65_536)
        except BlockingIOError:
            return True
        kept = self.texts[descriptor]
        room = _NOTES_LIMIT if descriptor == self.channels.notes else int(self.limits["output_bytes"])
        kept += piece[: max(0, room - len(kept))]
        if descriptor == self.channels.notes:
            self._read_notes()
        elif len(kept) >= room and piece:
            self._end("output", f"wrote more than {room} bytes to one stream")
        return bool(piece)

    def _read_notes(self) -> None:
        kept = self.texts[self.channels.notes]
        while b"\n" in kept:
            line, _, rest = kept.partition(b"\n")
            kept[:] = rest
            if line.startswith(b"ready ") and self.stand is None and not self.layers:
                self._let_start(json.loads(line[6:]))
            elif line == b"done":
                self.claims_end = True
            elif line.startswith(b"failed "):
                with contextlib.suppress(ValueError, AttributeError):
                    self.failure = {key: str(value) for key, value in json.loads(line[7:]).items()}

    def _let_start(self, layers: dict[str, str]) -> None:
        """No line of the program has run yet: note where its thread stands, check the protections, open the gate."""
        self.layers = layers
        if self.has_first:
            self.program = next(iter(processes.descendants(self.child)), self.child)
        try:
            self.stand = processes.wait_for_stand(self.program, READY, 5)
            told = "active: the kernel tells where the program stands" if self.stand else "missing: it does not tell"
        except OSError as error:
            told = f"missing: {error}"
        layers["attestation"] = told
        missing = missing_protections(layers)
        if missing and not self.unsafe:
            self._end("refused", "; ".join(missing))
            return
        self.began = time.monotonic()
        self.channels.open_gate(READY)

    def _let_finish(self) -> None:
        """The program claims to be done: true only once its first thread waits at the last gate, in the same frame."""
        if self.stand is not None:
            with contextlib.suppress(OSError):
                if processes.stand(self.program) == self.stand._replace(descriptor=DONE):
                    self.finished = True
        else:
            self.finished = True
        if self.finished:
            self.channels.open_gate(DONE)

    def _check_load(self) -> None:
        held = processes.load(os.getpid())
        number = held.number - self.has_first
        if number >= self.limits["processes"]:
            self._end("processes", f"ran {number} processes at a time")
        elif held.memory > self.limits["memory_mb"] * 2**20:
            self._end("memory", f"held {held.memory >> 20} MB")
        elif held.seconds > self.limits["cpu_s"]:
            self._end("timeout", f"used {held.seconds:.1f} s of processor time")

    def _close(self, exited: int | None) -> dict[str, Any]:
        seconds = time.monotonic() - self.began
        processes.end_all(self.child, os.getpid())
        _, status, usage = os.wait4(self.child, 0)
        if self.has_first:
            status = self.channels.ended() or status
        if exited is not None:
            os.close(exited)
        for descriptor in self.texts:
            while self.ended is None or self.ended[0] != "output":
                before = len(self.texts[descriptor])
                if not self._collect(descriptor) or len(self.texts[descriptor]) == before:
                    break
        code = os.waitstatus_to_exitcode(status)
        reason, explanation = self.ended or self._reason(code, usage.ru_utime + usage.ru_stime)
        if self.claims_end and not self.finished and reason != "refused":
            reason, explanation = "forged", "claimed to be done without having run to its last statement"
        return {
            "passed": reason == "ok",
            "reason": reason,
            "explanation": explanation,
            "seconds": seconds,
            "code": code if self.ended is None else None,
            "exception": self.failure.get("kind", "") if reason in ("error", "memory") else "",
            "stdout": self.texts[self.channels.stdout].decode("utf-8", "replace"),
            "stderr": self.texts[self.channels.stderr].decode("utf-8", "replace"),
            "layers": self.layers,
        }

    def _reason(self, code: int, processor_seconds: float) -> tuple[str, str]:
        """Why a program that was not ended from here stopped."""
        if self.finished and code == 0:
            return "ok", ""
        used_up = processor_seconds >= 0.9 * self.limits["cpu_s"]
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and used_up):
            return "timeout", f"used {processor_seconds:.1f} s of processor time"
        if code < 0:
            return "killed", f"ended by signal {signal.Signals(-code).name}"
        if not self.layers and not self.failure:
            last = self.texts[self.channels.stderr].decode("utf-8", "replace").strip().splitlines()[-1:]
            return "refused", f"could not be confined: {''.join(last)}"
        if self.failure and not self.finished:
            kind = self.failure.get("kind", "")
            return "memory" if kind == "MemoryError" else "error", self.failure.get("explanation", kind)
        return "exit", f"ended with exit code {code} {'after' if self.finished else 'before'} its last statement"


def _descriptor(process: int) -> int | None:
    """A descriptor that becomes readable when `process` ends, where the system offers one."""
    try:
        return os.pidfd_open(process)
    except (OSError, AttributeError):
        return None


def _has_ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
