"""How far a run is: a bar with samples/s and the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import Task as Bar
from rich.text import Text

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds between two lines where there is no terminal.
INTERVAL = 30.0


class RateColumn(TextColumn):
    """Samples per second since the bar started."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Bar) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- samples/s" if not speed else f"{speed:.2f} samples/s", style="progress.data.speed")


def tracked(items: Iterable[T], *, total: int, done: int, what: str) -> Iterator[T]:
    """Yield `items`, showing progress on standard error; `done` of `total` were there before."""
    console = Console(stderr=True)
    return _bar(items, total, done, what, console) if console.is_terminal else _lines(items, total, done, what)


def _bar(items: Iterable[T], total: int, done: int, what: str, console: Console) -> Iterator[T]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=2, speed_estimate_period=300) as progress:
        bar = progress.add_task(what, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(bar)


def _lines(items: Iterable[T], total: int, done: int, what: str) -> Iterator[T]:
    start = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= INTERVAL:
            last = now
            rate = count / (now - start)
            left = (total - done - count) / rate
            log.info("%s: %d of %d, %.2f samples/s, %s left", what, done + count, total, rate, clock(left))


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
