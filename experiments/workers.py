"""A pool of processes that call functions: each has one call at a time, can be killed, and cannot hurt its caller.

Workers are started from this package alone, so neither the caller's script nor its threads nor its devices come along.
"""

from __future__ import annotations

import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

HEADER = 8


class WorkerLost(RuntimeError):
    """The worker died, or was killed because its call took too long."""


class Worker:
    """One process that answers calls."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from experiments.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
        """`function(*arguments)`, run by the worker. Raises what it raised, or WorkerLost; then this worker is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            send(self.process.stdin, (function, arguments))
            ended, value = receive(self.process.stdout, time.monotonic() + seconds)
        except TimeoutError as error:
            self.kill()
            raise WorkerLost(f"no answer within {seconds:.0f} s") from error
        except (OSError, EOFError) as error:
            self.kill()
            raise WorkerLost(f"its process ended with code {self.process.returncode}") from error
        if not ended:
            raise value
        return value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue


class Workers:
    """At most `count` workers, started when needed and kept."""

    def __init__(self, count: int) -> None:
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self.idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self.all: set[Worker] = set()

    def submit(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Future[Any]:
        """Call `function` in a worker; both it and its arguments must pickle."""
        return self.threads.submit(self._call, function, arguments, seconds)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
        try:
            worker = self.idle.get_nowait()
        except queue.Empty:
            worker = Worker()
            self.all.add(worker)
        try:
            return worker.call(function, arguments, seconds)
        finally:
            if worker.process.poll() is None:
                self.idle.put(worker)
            else:
                self.all.discard(worker)

    def close(self) -> None:
        """Forget what has not begun and kill the workers."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self.all):
            worker.kill()


def send(stream: IO[bytes], value: Any) -> None:
    body = pickle.dumps(value)
    stream.write(len(body).to_bytes(HEADER, "big") + body)
    stream.flush()


def receive(stream: IO[bytes], until: float | None = None) -> Any:
    """The next value. EOFError when the other side is gone, TimeoutError at the monotonic time `until`."""
    size = int.from_bytes(_exactly(stream, HEADER, until), "big")
    return pickle.loads(_exactly(stream, size, until))


def _exactly(stream: IO[bytes], size: int, until: float | None) -> bytes:
    found = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(found) < size:
            if not selector.select(None if until is None else max(0.0, until - time.monotonic())):
                raise TimeoutError
            part = os.read(stream.fileno(), size - len(found))
            if not part:
                raise EOFError
            found += part
    return bytes(found)


def serve() -> None:
    """Answer calls from standard input until it closes. What a call prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = receive(source)
        except EOFError:
            return
        try:
            answer = (True, function(*arguments))
        except Exception as error:
            answer = (False, error)
        send(target, answer)
