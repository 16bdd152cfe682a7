"""The caller's side of the sandbox: limits in, result out.

Each process that runs programs has one fork server of its own (see zygote.py), started at the first program and gone
with the process. Safe to use from several threads at a time.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from evals.sandbox import channels
from evals.sandbox.result import Limits, RunResult, SandboxError

#: Set to UNSAFE_VALUE, this allows programs to run although a protection is missing on this machine.
UNSAFE_VARIABLE = "EVALS_SANDBOX"
UNSAFE_VALUE = "run-model-code-without-isolation"

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = """
import sys, types
descriptor, root, without, packages = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
for name in ("evals", "evals.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [root + "/" + name.replace(".", "/")]
from evals.sandbox.zygote import serve
sys.path[:] = [entry for entry in sys.path if entry] + packages
serve(descriptor, frozenset(filter(None, without.split(","))))
"""


#: All the fork server, and so a program, can ever find in its environment: one hash seed, one thread for numpy, one
#: arena of memory for all threads (each further one would take 64 MB of the address space a program may have).
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "LC_ALL": "C.UTF-8",
}


class Sandbox:
    """A fork server and the way to it. Most callers want the module's `run_program`.

    Args:
        without: names of layers not to use, for tests of what the others hold.
        unsafe: run programs although a protection is missing.
    """

    def __init__(self, *, without: frozenset[str] = frozenset(), unsafe: bool | None = None) -> None:
        self._without = without
        self._unsafe = os.environ.get(UNSAFE_VARIABLE) == UNSAFE_VALUE if unsafe is None else unsafe
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def run(
        self,
        source: str,
        *,
        tests: str | None = None,
        provides: Sequence[str] = (),
        stdin: str | None = None,
        limits: Limits | None = None,
    ) -> RunResult:
        """See `run_program`."""
        answer = self._ask(source, tests, provides, stdin, limits or Limits())
        answer.pop("layers")
        return RunResult(**answer)

    def layers(self) -> dict[str, str]:
        """See the module's `layers`."""
        layers: dict[str, str] = self._ask("", None, (), None, Limits())["layers"]
        return layers

    def _ask(
        self, source: str, tests: str | None, provides: Sequence[str], stdin: str | None, limits: Limits
    ) -> dict[str, Any]:
        request = {
            "source": source,
            "tests": tests,
            "provides": list(provides),
            "stdin": stdin,
            "limits": asdict(limits),
            "unsafe": self._unsafe,
        }
        text = source + (tests or "")
        wish = ",".join(name for name in channels.ON_REQUEST if f"import {name}" in text or f"from {name}" in text).encode()
        try:
            answer = self._exchange(request, wish or b".", limits.wall_s + 60)
        except (EOFError, ConnectionError):
            complaint = self._restart()
            try:
                answer = self._exchange(request, wish or b".", limits.wall_s + 60)
            except (EOFError, ConnectionError) as error:
                raise SandboxError(f"the sandbox's fork server ends at once: {complaint or self._restart()}") from error
        if answer["reason"] == "refused":
            raise SandboxError(
                f"no isolation for model-written code here: {answer['explanation']}. Layers: {answer['layers']}. "
                f"To run it all the same, set {UNSAFE_VARIABLE}={UNSAFE_VALUE}"
            )
        return answer

    def _exchange(self, request: dict[str, Any], wish: bytes, seconds: float) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with self._lock:
                socket.send_fds(self._connected(), [wish], [theirs.fileno()])
            theirs.close()
            ours.settimeout(seconds)
            channels.send(ours, request)
            return channels.receive(ours)

    def _connected(self) -> socket.socket:
        if self._control is None:
            self._control, self._server = self._start()
        return self._control

    def _start(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        if not hasattr(os, "fork"):
            raise SandboxError("programs can be run only where processes can fork (Linux)")
        ours, theirs = socket.socketpair()
        packages = [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
        options = ["-S", "-s", "-X", "utf8", "-c", _BOOT]
        values = [str(theirs.fileno()), _ROOT, ",".join(sorted(self._without)), *packages]
        server = subprocess.Popen(
            [sys.executable, *options, *values],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        return ours, server

    def _restart(self) -> str:
        """Forget a fork server that ended; what it complained about."""
        with self._lock:
            server = self._server
            self._drop()
        if server is None or server.stderr is None:
            return ""
        with server.stderr:
            return server.stderr.read().decode("utf-8", "replace").strip()[-2000:]

    def _drop(self) -> subprocess.Popen[bytes] | None:
        control, server, self._control, self._server = self._control, self._server, None, None
        if control is not None:
            control.close()
        if server is not None:
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        return server

    def forget(self) -> None:
        """In a forked child: leave the parent's fork server, and its lock, alone."""
        self._lock = threading.Lock()
        if self._control is not None:
            self._control.close()
        self._control = self._server = None

    def close(self) -> None:
        """End the fork server of this process, if there is one."""
        with self._lock:
            server = self._drop()
        if server is not None and server.stderr is not None:
            server.stderr.close()


_shared = Sandbox()
atexit.register(_shared.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


def run_program(
    source: str,
    *,
    tests: str | None = None,
    provides: Sequence[str] = (),
    stdin: str | None = None,
    limits: Limits | None = None,
) -> RunResult:
    """Run one Python program, confined.

    Args:
        source: the program. Any text; what does not compile fails.
        tests: statements to run after it, in a namespace of their own: they see the names they use that the program
            defined, and builtins and modules as they were before the program ran. With tests the program is not
            `__main__`. The last statement of the whole is then the last one of the tests.
        provides: names that the program is to define even though they are builtins' names.
        stdin: what it can read from standard input; nothing when None.
        limits: what it may use.

    Raises:
        SandboxError: this machine offers too little isolation, and nobody allowed to go without.
    """
    return _shared.run(source, tests=tests, provides=provides, stdin=stdin, limits=limits)


def layers() -> dict[str, str]:
    """The isolation layers, each `active…` or the reason why not, found out by running an empty program.

    Raises:
        SandboxError: as for `run_program`.
    """
    return _shared.layers()
