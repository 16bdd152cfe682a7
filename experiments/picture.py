"""Quality against speed as a picture: one colour a decoding, one marker a cache, the Pareto front as a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.errors import ConfigError
from experiments.frames import Run, varying

#: Speed on the x axis: metric, label.
PANELS = (("tokens_per_forward", "tokens per forward"), ("tokens_per_second", "tokens per second"))
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#7f3fbf")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Where words may stand beside a point, in typographic points; the nearest first.
OFFSETS = tuple((dx, dy) for dy in (5, -13, -4, 15, -23) for dx in (5, -5))
#: Above so many points only those of the Pareto front are labelled.
CROWD = 20
SUFFIXES = (".png", ".pdf", ".svg")


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of points that no other beats in both coordinates, from the slowest to the fastest."""
    order = sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1]))
    front: list[int] = []
    best = float("-inf")
    for i in order:
        if points[i][1] > best:
            front.append(i)
            best = points[i][1]
    return front[::-1]


def draw(runs: Sequence[Run], file: Path) -> None:
    """Write the picture of all finished runs, one row of panels a task. ConfigError for a name matplotlib cannot write."""
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"the picture's name must end in one of {', '.join(SUFFIXES)}, got {file.name!r}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    done = [run for run in runs if run.done and run.metrics["accuracy"] is not None]
    tasks = list(dict.fromkeys(run.task for run in done))
    style = Style(done)
    figure, axes = pyplot.subplots(
        max(len(tasks), 1), 2, figsize=(11.5, 0.6 + 4.2 * max(len(tasks), 1)), squeeze=False, layout="constrained"
    )
    for row, task in enumerate(tasks):
        for column, (metric, label) in enumerate(PANELS):
            panel(axes[row][column], [r for r in done if r.task == task], metric, label, style)
        axes[row][0].set_ylabel("accuracy ± s.e.")
    figure.legend(handles=style.handles(), loc="outside right upper", frameon=False, fontsize=9)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


class Style:
    """Colours, markers and the words beside a point, the same in every panel."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.decodings = list(dict.fromkeys(run.choices["decoding"] for run in runs))
        self.caches = list(dict.fromkeys(run.choices["cache"] for run in runs))
        self.axes = varying(runs)

    def colour(self, run: Run) -> str:
        return COLOURS[self.decodings.index(run.choices["decoding"]) % len(COLOURS)]

    def marker(self, run: Run) -> str:
        return MARKERS[self.caches.index(run.choices["cache"]) % len(MARKERS)]

    def words(self, run: Run) -> str:
        """The swept settings of a run, short; nothing when only decoding and cache vary."""
        found = [run.settings[axis] for axis in self.axes if run.settings.get(axis) is not None]
        return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in found)

    def handles(self) -> list[Any]:
        from matplotlib.lines import Line2D

        def key(**look: Any) -> Line2D:
            return Line2D([], [], **look)

        title = {"linestyle": "none", "marker": ""}
        return [
            key(label="decoding", **title),
            *(
                key(color=COLOURS[i % len(COLOURS)], marker="o", linestyle="none", label=f"  {name}")
                for i, name in enumerate(self.decodings)
            ),
            key(label="cache", **title),
            *(
                key(color="#555555", marker=MARKERS[i % len(MARKERS)], linestyle="none", label=f"  {name}")
                for i, name in enumerate(self.caches)
            ),
            key(color="#999999", linestyle="--", linewidth=1.2, label="Pareto front"),
            *([key(label=f"beside a point:\n{chr(10).join(self.axes)}", **title)] if self.axes else []),
        ]


def panel(axis: Any, runs: Sequence[Run], metric: str, label: str, style: Style) -> None:
    """One task's quality against one kind of speed."""
    shown = [run for run in runs if run.metrics[metric] is not None]
    points = [(float(run.metrics[metric]), float(run.metrics["accuracy"])) for run in shown]
    front = pareto(points)
    axis.plot(*zip(*(points[i] for i in front), strict=True), color="#999999", linestyle="--", linewidth=1.2, zorder=1)
    curves(axis, shown, points, style)
    for place, (run, (x, y)) in enumerate(zip(shown, points, strict=True)):
        axis.errorbar(
            x,
            y,
            yerr=run.metrics["accuracy_se"] or 0,
            color=style.colour(run),
            marker=style.marker(run),
            markersize=8,
            markeredgecolor="white",
            markeredgewidth=0.8,
            elinewidth=1,
            ecolor=(*_rgb(style.colour(run)), 0.35),
            zorder=3 if place in front else 2,
        )
    spread = [x for x, _ in points]
    if spread and min(spread) > 0 and max(spread) / min(spread) > 4:
        log_scale(axis)
    title = f"{runs[0].task}, n = {' / '.join(map(str, sorted({r.metrics['n'] for r in runs})))}" if runs else ""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(label)
    axis.grid(alpha=0.25)
    axis.margins(x=0.08, y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    low, high = axis.get_ylim()
    axis.set_ylim(max(low, -0.03), min(max(high, low + 0.1), 1.03))
    words = [style.words(run) if len(shown) <= CROWD or place in front else "" for place, run in enumerate(shown)]
    if any(words):
        label_points(axis, points, words)


def curves(axis: Any, runs: Sequence[Run], points: Sequence[tuple[float, float]], style: Style) -> None:
    """Join the points of one decoding and cache: the curve of a sweep over the other settings."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run, point in zip(runs, points, strict=True):
        groups.setdefault((style.colour(run), style.marker(run)), []).append(point)
    for (colour, _), found in groups.items():
        axis.plot(*zip(*sorted(found), strict=True), color=colour, linewidth=1, alpha=0.3, zorder=1)


def log_scale(axis: Any) -> None:
    """A logarithmic x axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def label_points(axis: Any, points: Sequence[tuple[float, float]], words: Sequence[str]) -> None:
    """Write each point's words beside it, at the first of a few places where they cover no point and no other words."""
    axis.figure.canvas.draw()
    scale = axis.figure.dpi / 72
    centres = [tuple(axis.transData.transform(point)) for point in points]
    taken = [(x - 5 * scale, y - 5 * scale, x + 5 * scale, y + 5 * scale) for x, y in centres]
    for (x, y), text in zip(centres, words, strict=True):
        if not text:
            continue
        width, height = 4.2 * len(text) * scale, 8 * scale
        spots = [(x + dx * scale - (width if dx < 0 else 0), y + dy * scale) for dx, dy in OFFSETS]
        boxes = [(left, low, left + width, low + height) for left, low in spots]
        box = min(boxes, key=lambda b: sum(_overlap(b, other) for other in taken))
        taken.append(box)
        place = axis.transData.inverted().transform(box[:2])
        axis.annotate(text, place, fontsize=7, color="#444444", annotation_clip=False)


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Area that two boxes (left, low, right, high) share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(wide, 0) * max(tall, 0)


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]
