"""The command `dinfer-report`: a table and a picture from records alone, and the table at the end of a sweep."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.errors import ConfigError
from experiments.frames import Run, read_runs, row, varying

FORMATS = ("text", "md", "csv")
GROUPS = ("model", "decoding", "iteration", "cache")
ALWAYS = ("decoding", "cache")
NUMBERS = ("n", "accuracy ± s.e.", "tokens/forward", "tokens/s", "forwards")


def main() -> None:
    """Entry point; arguments are those of the process."""
    raise SystemExit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    parser = argparse.ArgumentParser("dinfer-report", description="Table and picture of records, from the records alone.")
    parser.add_argument("runs", nargs="*", default=["runs"], metavar="RUNS", help="folders of records (default: runs)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the table on standard output")
    parser.add_argument("--png", metavar="FILE", help="also draw quality against speed")
    arguments = parser.parse_args(list(words))
    try:
        runs = read_runs(arguments.runs)
        runs.sort(key=lambda r: (r.task, r.name, *(r.choices.get(group, "") for group in GROUPS), sort_key(r)))
        if arguments.png and not any(r.done for r in runs):
            raise ConfigError("--png needs at least one finished record, got none")
        sys.stdout.write(TABLES[arguments.format](runs))
        if arguments.png:
            from experiments.picture import draw

            draw(runs, Path(arguments.png))
    except ConfigError as error:
        sys.stderr.write(f"dinfer-report: {error}\n")
        return 2
    return 0


def sort_key(run: Run) -> list[tuple[str, float, str]]:
    """Settings in their order, numbers by size."""
    return [
        (key, float(value), "") if isinstance(value, (int, float)) else (key, 0.0, str(value))
        for key, value in run.settings.items()
    ]


def print_table(folders: Sequence[Path]) -> None:
    """The text table of these records on standard output."""
    sys.stdout.write(text_table(read_runs(folders)))


def text_table(runs: Sequence[Run]) -> str:
    head, rows = table(runs)
    view = Table(*head, box=None, header_style="bold", pad_edge=False)
    for column in view.columns:
        if column.header in NUMBERS:
            column.justify = "right"
        column.no_wrap = True
    for cells in rows:
        view.add_row(*cells)
    stream = io.StringIO()
    width = max(100, sum(max(map(len, cells)) + 3 for cells in zip(head, *rows, strict=True)))
    Console(file=stream, width=width, force_terminal=False, highlight=False).print(view)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return "\n".join([*lines, *(f"note: {note}" for note in notes(runs))]) + "\n"


def markdown_table(runs: Sequence[Run]) -> str:
    head, rows = table(runs)
    rule = ["---:" if name in NUMBERS else "---" for name in head]
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, rule, *rows]]
    return "\n".join([*lines, *(f"\nNote: {note}" for note in notes(runs))]) + "\n"


def csv_table(runs: Sequence[Run]) -> str:
    """Every setting and number of every record, unrounded; empty where there is none."""
    rows = [row(r) for r in runs]
    columns = list(dict.fromkeys(key for cells in rows for key in cells))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


TABLES = {"text": text_table, "md": markdown_table, "csv": csv_table}


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: what tells the runs apart, then the numbers."""
    several = {group for group in GROUPS if len({r.choices.get(group) for r in runs}) > 1}
    groups = [group for group in GROUPS if group in several or group in ALWAYS]
    axes = varying(runs)
    names = ["name"] if len({r.name for r in runs}) > 1 else []
    asked = list(dict.fromkeys(key for r in runs for key in r.metrics.get("summary") or {}))
    missed = any(unanswered(r) for r in runs)
    head = ["task", *names, *groups, *axes, *NUMBERS, *asked, *(["unanswered"] if missed else [])]
    rows = []
    for r in runs:
        settings = [str(r.settings[axis]) if r.settings.get(axis) is not None else "" for axis in axes]
        shown = [r.task, *([r.name] if names else []), *(r.choices.get(g, "") for g in groups), *settings, *numbers(r)]
        summary = [_number((r.metrics.get("summary") or {}).get(key), 3) for key in asked]
        rows.append([*shown, *summary, *([unanswered(r)] if missed else [])])
    return head, rows


def unanswered(run: Run) -> str:
    """Verdicts that are neither right nor wrong, counted by kind."""
    found = run.metrics.get("outcomes") or {}
    return ", ".join(f"{kind} {n}" for kind, n in found.items() if n and kind not in ("right", "wrong"))


def numbers(run: Run) -> list[str]:
    """The cells of `NUMBERS`; N/A for what is not known."""
    found = run.metrics
    if not found:
        return [f"{run.kept} of {run.samples}", f"N/A ({run.status})", "N/A", "N/A", "N/A"]
    accuracy, error = found["accuracy"], found["accuracy_se"]
    quality = "N/A" if accuracy is None else f"{accuracy:.3f} ± " + ("N/A" if error is None else f"{error:.3f}")
    return [
        str(found["n"]),
        quality,
        _number(found["tokens_per_forward"], 2),
        _number(found["tokens_per_second"], 1),
        str(found["forwards"]),
    ]


def _number(value: float | None, digits: int) -> str:
    return "N/A" if value is None else f"{value:.{digits}f}"


def notes(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before comparing the rows."""
    found: dict[str, None] = {}
    for task in dict.fromkeys(r.task for r in runs):
        same = [r for r in runs if r.task == task and r.done]
        sets = {(r.manifest["identity"]["task"]["sha256"], r.settings.get("max_tokens")) for r in same}
        if len(sets) > 1:
            found[f"{task}: the runs answer {len(sets)} different sets of samples or budgets; do not compare them"] = None
        machines = {_machine(r) for r in same}
        if len(machines) > 1:
            found[f"{task}: tokens/s were measured on different devices: {'; '.join(sorted(machines))}"] = None
        for r in same:
            caveats = r.manifest["task"]["provenance"].get("notes")
            found |= dict.fromkeys(f"{task}: {caveat}" for caveat in caveats or [] if isinstance(caveats, (list, tuple)))
    said: dict[tuple[str, str], list[str]] = {}
    for r in runs:
        for warning in r.manifest.get("warnings") or []:
            said.setdefault((r.task, warning), []).append(r.fingerprint[:8])
    for (task, warning), marks in said.items():
        found[f"{task} ({marks[0] if len(marks) == 1 else f'{len(marks)} runs'}): {warning}"] = None
    return list(found)


def _machine(run: Run) -> str:
    device = str(run.manifest["identity"]["engine"]["device"])
    hosts = {session["host"] for session in run.manifest.get("sessions", [])}
    return f"{device} on {'+'.join(sorted(hosts))}" if device == "cpu" else device


if __name__ == "__main__":
    main()
