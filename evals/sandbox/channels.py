"""The wires of one program: messages between caller and supervisor, descriptors between supervisor and program."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any

#: Modules slow to import, loaded once in the fork server when a program mentions them. No others.
ON_REQUEST = ("numpy", "statistics", "datetime", "decimal", "fractions", "json")

#: The program's own numbers: its notes to the supervisor, and the two gates it waits at.
TELL, READY, DONE = 3, 4, 5


def receive(connection: socket.socket) -> dict[str, Any]:
    """One message: four bytes of length, then JSON. EOFError when the other side is gone."""
    (length,) = struct.unpack("<I", _exactly(connection, 4))
    message: dict[str, Any] = json.loads(_exactly(connection, length))
    return message


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """The counterpart of `receive`."""
    body = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(body)) + body)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        piece = connection.recv(min(1 << 20, count - len(parts)))
        if not piece:
            raise EOFError("the other side closed the connection")
        parts += piece
    return bytes(parts)


class Channels:
    """Made before the fork; each side then keeps its own ends."""

    def __init__(self, stdin: str | None) -> None:
        self._stdin = _as_file(stdin)
        self.stdout, self._stdout = os.pipe()
        self.stderr, self._stderr = os.pipe()
        self.notes, self._tell = os.pipe()
        self._end, self.end = os.pipe()
        self._gates = {READY: _gate(), DONE: _gate()}

    def _theirs(self) -> tuple[int, ...]:
        return self._stdin, self._stdout, self._stderr, self._tell, self._gates[READY][0], self._gates[DONE][0]

    def become_program(self) -> None:
        """In the program: standard streams and the three numbers above in place, all other descriptors closed."""
        os.setsid()
        aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 40) for descriptor in self._theirs()]
        for number, descriptor in enumerate(aside):
            os.dup2(descriptor, number)
        os.closerange(len(aside), 4096)

    def become_bystander(self) -> None:
        """In a process that is neither: only the descriptor `end`."""
        kept = os.dup2(self.end, 0)
        os.closerange(1, 4096)
        self.end = kept

    def become_supervisor(self) -> None:
        """In the supervisor: only our ends, and no read that waits."""
        for descriptor in (*self._theirs(), self.end):
            os.close(descriptor)
        for descriptor in (self.stdout, self.stderr, self.notes):
            os.set_blocking(descriptor, False)

    def ended(self) -> int | None:
        """In the supervisor, when all is over: the program's status as its parent learnt it; None without one."""
        told = os.read(self._end, 4)
        return int.from_bytes(told, "little") if len(told) == 4 else None

    def open_gate(self, number: int) -> None:
        """In the supervisor: let the program pass."""
        os.close(self._gates.pop(number)[1])


def _gate() -> tuple[int, int]:
    """A lock, as two descriptors: the program asks for it over the first, we hold it over the second until closed.

    A lock and not a pipe, because waiting for one is the same instruction whether or not other threads exist.
    """
    theirs = _as_file("")
    ours = os.open(f"/proc/self/fd/{theirs}", os.O_RDWR)
    fcntl.flock(ours, fcntl.LOCK_EX)
    return theirs, ours


def _as_file(text: str | None) -> int:
    """A descriptor to read `text` from, which lies nowhere on disk; the null device for None."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stdin")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
