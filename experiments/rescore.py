"""The command `dinfer-score`: judge kept answers, again or for the first time, and test a scorer on its data's own answers.

Runs no model, needs no GPU and imports no torch. Answers are read and never written. Verdicts of another version of the task
are replaced together, once all new ones are there: until then they wait in a draft, so that a kill loses nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from evals.task import Sample, Task
from experiments import identity, manifest
from experiments.build import build
from experiments.errors import Busy, ConfigError
from experiments.frames import find_records
from experiments.record import CONFIG, GENERATIONS, LOCK, MANIFEST, METRICS, SCORES, Lines, read_json, read_lines, write_json
from experiments.samples import load_samples
from experiments.score import ScoringFailed, judge_all, shutdown
from experiments.totals import totals

log = logging.getLogger(__name__)

#: New verdicts while the old ones are still valid.
DRAFT = "scores.next.jsonl"
#: What a mirror leaves in a record to say that it has seen the final numbers.
MIRRORED = Path("wandb", ".mirrored")
PLACE = re.compile(r"task\.(\w*path)=(.+)")
USAGE = """\
dinfer-score RUNS… [task.path=FILE] [--again] [--workers N]
       dinfer-score --reference task=… [task.path=FILE] [limit=N] [--workers N]"""
ABOUT = """\
Judge the answers of records with the present version of their task, in parallel and without a model. What has a verdict
of this version keeps it; a killed command is continued by the same command. An unfinished record is judged as far as
it goes and stays unfinished.

With --reference, judge the answers that the data itself holds: the last line on standard output is "N of M", N of M
reference answers being right. The exit code is 0 however many they are: HumanEval+ has one that cannot be right."""


def main() -> None:
    """Entry point; arguments are those of the process."""
    raise SystemExit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 done, 1 something could not be judged, 2 the command is wrong."""
    from experiments.run import set_up_logging

    set_up_logging()
    parser = argparse.ArgumentParser(
        "dinfer-score", usage=USAGE, description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="RUNS", help="folders of records; task.path=FILE where data has moved")
    parser.add_argument("--reference", action="store_true", help="judge the data's own answers instead of records")
    parser.add_argument("--again", action="store_true", help="judge anew also what has a verdict of this version")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: CPUs)")
    arguments = parser.parse_intermixed_args(list(words))
    try:
        if arguments.workers < 1:
            raise ConfigError(f"--workers must be at least 1, got {arguments.workers}")
        if arguments.reference:
            from experiments.reference import self_test

            if arguments.again:
                raise ConfigError("--again concerns records, --reference judges none")
            return self_test(arguments.words, arguments.workers)
        return score_records(arguments.words, arguments.workers, again=arguments.again)
    except ConfigError as error:
        sys.stderr.write(f"dinfer-score: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("dinfer-score: interrupted; the same command continues\n")
        return 130
    finally:
        shutdown()


def score_records(words: Sequence[str], workers: int, *, again: bool = False) -> int:
    """Judge every record at or below the given folders and print their table; what fails does not stop the others."""
    from experiments.report import print_table

    places = {m[1]: m[2] for word in words if (m := PLACE.fullmatch(word))}
    paths = [word for word in words if not PLACE.fullmatch(word)]
    if not paths:
        raise ConfigError(f"give at least one folder of records; usage: {USAGE.splitlines()[0]}")
    for path in paths:
        if "=" in path and not Path(path).exists():
            raise ConfigError(f"{path!r} is no folder; of a record's configuration only task.path=FILE can be told")
    folders = find_records(paths)
    failed: list[str] = []
    for folder in folders:
        try:
            with held(folder):
                score_record(folder, places, workers, again=again)
        except (Busy, ScoringFailed) as error:
            failed.append(f"{folder}: {error}")
    print_table(folders)
    for line in failed:
        sys.stderr.write(f"dinfer-score: {line}\n")
    return 1 if failed else 0


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other writers out of a record. Busy when there is one."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise Busy("another process writes this record") from error
    try:
        yield
    finally:
        lock.release()


def score_record(folder: Path, places: Mapping[str, str], workers: int, *, again: bool = False) -> None:
    """Judge what one record lacks and write its numbers. ScoringFailed once everything else is on disk."""
    known = read_json(folder / MANIFEST)
    task, samples = read_task(folder, known, places)
    answers, _ = read_lines(folder / GENERATIONS)
    before = {line["id"]: line for line in read_lines(folder / SCORES)[0]}
    store, drafted = open_store(folder, task.version, again=again)
    try:
        missing = [line for line in answers if line["id"] not in store.by_id]
        judge_all(task, samples, store, missing, workers, total=len(answers))
    finally:
        store.close()
    if drafted:
        (folder / DRAFT).replace(folder / SCORES)
    changed = sum(verdict(line) != verdict(store.by_id[name]) for name, line in before.items())
    log.info("%s: %d of %d answers judged, %d verdicts changed", folder, len(missing), len(answers), changed)
    close_record(folder, task, answers, store.by_id, {"judged": len(missing), "changed": changed})


def read_task(folder: Path, known: Mapping[str, Any], places: Mapping[str, str]) -> tuple[Task, list[Sample]]:
    """A record's task and samples. ConfigError when its data is gone or other data than the answers were made for."""
    config = OmegaConf.to_container(OmegaConf.load(folder / CONFIG))
    assert isinstance(config, dict)
    unknown = sorted(set(places) - set(config["task"]))
    if unknown:
        raise ConfigError(f"task.{unknown[0]} is not a key of the task of {folder}")
    task: Task = build({**config["task"], **places}, "task")
    samples = load_samples(task, config["limit"])
    same = identity.digest(samples) == known["identity"]["task"]["sha256"]
    if not same and task.version == known["task"]["version"]:
        raise ConfigError(f"{folder}: these are not the rows that its answers were made for; give them by task.path=FILE")
    lost = {line["id"] for line in read_lines(folder / GENERATIONS)[0]} - {sample.id for sample in samples}
    if lost:
        raise ConfigError(f"{folder}: the task has no sample {min(lost)!r}, which its record answers")
    return task, samples


def open_store(folder: Path, version: str, *, again: bool) -> tuple[Lines, bool]:
    """Where verdicts of `version` are kept: the record's file, or a draft (True) while that holds ones to be replaced."""
    kept, _ = read_lines(folder / SCORES)
    current = [] if again else [line for line in kept if line["version"] == version]
    draft = folder / DRAFT
    if len(current) == len(kept):
        draft.unlink(missing_ok=True)
        return Lines(folder / SCORES), False
    if any(line["version"] != version for line in read_lines(draft)[0]):
        draft.unlink()
    store = Lines(draft)
    store.add(line for line in current if line["id"] not in store.by_id)
    return store, True


def verdict(line: Mapping[str, Any]) -> tuple[float, str]:
    return float(line["value"]), str(line["outcome"])


def close_record(
    folder: Path, task: Task, answers: Sequence[dict[str, Any]], scores: Mapping[str, dict[str, Any]], done: Mapping[str, int]
) -> None:
    """Write the numbers of a record that has all its answers, and say in its manifest that it was judged here."""
    known = read_json(folder / MANIFEST)
    note: dict[str, Any] = {"task": {**known["task"], "version": task.version}}
    if done["judged"]:
        entry = {**manifest.session(), "version": task.version, **done}
        note["scorings"] = [*known.get("scorings", []), entry]
    if len(answers) == known["samples"]:
        order = [scores[line["id"]] for line in answers]
        numbers, said = totals(task, answers, order)
        numbers = {"fingerprint": known["fingerprint"], **numbers}
        if numbers != read_json(folder / METRICS):
            (folder / MIRRORED).unlink(missing_ok=True)
        write_json(folder / METRICS, numbers)
        note |= {"status": "done", "error": None, "warnings": said}
    write_json(folder / MANIFEST, {**known, **note})


if __name__ == "__main__":
    main()
