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
        ]


def panel(axis: Any, runs: Sequence[Run], metric: str, label: str, style: Style) -> None:
    """One task's quality against one kind of speed."""
    shown = [run for run in runs if run.metrics[metric] is not None]
    points = [(float(run.metrics[metric]), float(run.metrics["accuracy"])) for run in shown]
    front = pareto(points)
    axis.plot(*zip(*(points[i] for i in front), strict=True), color="#999999", linestyle="--", linewidth=1.2, zorder=1)
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
    label_points(axis, points, [style.words(run) for run in shown])
    spread = [x for x, _ in points]
    if spread and min(spread) > 0 and max(spread) / min(spread) > 4:
        log_scale(axis)
    title = f"{runs[0].task}, n = {' / '.join(map(str, sorted({r.metrics['n'] for r in runs})))}" if runs else ""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(label)
    axis.grid(alpha=0.25)
    axis.margins(x=0.08, y=0.12)
    axis.spines[["top", "right"]].set_visible(False)


def log_scale(axis: Any) -> None:
    """A logarithmic x axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def label_points(axis: Any, points: Sequence[tuple[float, float]], words: Sequence[str]) -> None:
    """Write each point's words beside it, alternately above and below so that neighbours stay readable."""
    order = sorted(range(len(points)), key=lambda i: points[i])
    for rank, i in enumerate(order):
        if words[i]:
            above = rank % 2 == 0
            axis.annotate(
                words[i],
                points[i],
                textcoords="offset points",
                xytext=(6, 6 if above else -6),
                va="bottom" if above else "top",
                fontsize=7,
                color="#444444",
            )


def _rgb(colour: str) -> tuple[float, float, float]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]
