"""One run, from a checked plan to its numbers: decode what the record lacks, judge it, write metrics.json."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dinfer.types import Request
from evals.task import Sample
from experiments import answers, identity, manifest
from experiments.engines import engine_for
from experiments.errors import one_line
from experiments.plan import Plan, warn_hasty
from experiments.progress import tracked
from experiments.prompts import Prompt, Prompter, check_template
from experiments.record import CONFIG, METRICS, RunRecord, read_lines, write_atomically
from experiments.samples import load_samples
from experiments.score import Scorer
from experiments.sinks import Safe
from experiments.totals import totals

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that ended well: its folder, and whether this process had anything to do."""

    folder: Path
    fresh: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A plan with its samples and its place on disk."""

    plan: Plan
    samples: Sequence[Sample]
    prompts: Sequence[Prompt]
    prompter: Prompter
    identity: dict[str, Any]
    fingerprint: str
    folder: Path


def prepare(plan: Plan) -> Cell:
    """Read and encode the samples and compute the fingerprint. ConfigError when something does not fit."""
    samples = load_samples(plan.task, plan.config["limit"])
    prompter = Prompter(plan.model.read_tokenizer(), plan.spec)
    check_template(prompter, samples)
    prompts = prompter.encode_all(samples, plan.max_tokens)
    who = {
        "model": plan.model.identity(),
        "recipe": identity.plain(plan.recipe),
        "task": identity.task_identity(plan.task, samples),
        "max_tokens": plan.max_tokens,
        "seed": plan.config["seed"],
        "engine": plan.engine.identity(),
    }
    mark = identity.fingerprint(who)
    folder = Path(plan.config["runs"]).expanduser() / plan.config["name"] / plan.task.name / mark
    return Cell(plan, samples, prompts, prompter, who, mark, folder)


def run_cell(plan: Plan) -> Outcome:
    """Do a run, or what is left of it."""
    cell = prepare(plan)
    if (cell.folder / METRICS).is_file():
        mirror_later(cell)
        return Outcome(cell.folder, fresh=False)
    with RunRecord(cell.folder, cell.fingerprint) as record, run_log(cell.folder):
        if record.metrics is None:
            execute(cell, record)
            return Outcome(cell.folder, fresh=True)
    return Outcome(cell.folder, fresh=False)


def execute(cell: Cell, record: RunRecord) -> None:
    """Generate, score and count, telling the manifest and the sink how it goes."""
    begin(cell, record)
    sink = Safe(cell.plan.sink)
    sink.call("open", cell.folder, facts(cell))
    scorer = Scorer(cell.plan.task, cell.samples, record.scores, cell.plan.config["workers"])
    try:
        generate(cell, record, scorer, sink)
        scorer.submit(list(record.generations.by_id.values()))
        scorer.finish()
        numbers, said = totals(cell.plan.task, record.generations.by_id.values(), record.scores.by_id.values())
    except BaseException as error:
        scorer.abandon()
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        record.note(status=status, error=f"{type(error).__name__}: {one_line(error)}")
        sink.call("close", None, [])
        raise
    for warning in said:
        log.warning("%s", warning)
    record.finish({"fingerprint": cell.fingerprint, **numbers})
    record.note(status="done", error=None, finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"), warnings=said)
    sink.call("close", numbers, merged(cell.folder))


def begin(cell: Cell, record: RunRecord) -> None:
    """Write the configuration and what is known before the first token."""
    plan = cell.plan
    warn_hasty(plan.recipe)
    write_atomically(cell.folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(dict(plan.config))))
    record.note(
        status="running",
        choices=dict(plan.choices),
        identity=cell.identity,
        task={"name": plan.task.name, "version": plan.task.version, "provenance": plan.task.provenance()},
        samples=len(cell.samples),
        prompts_sha256=identity.digest([prompt.sha256 for prompt in cell.prompts]),
        sandbox=manifest.sandbox(),
        sessions=[*record.manifest().get("sessions", []), manifest.session()],
    )


def facts(cell: Cell) -> dict[str, Any]:
    """What a sink is told of a run."""
    plan = cell.plan
    return {
        "fingerprint": cell.fingerprint,
        "name": plan.config["name"],
        "task": plan.task.name,
        "config": dict(plan.config),
        "choices": dict(plan.choices),
    }


def generate(cell: Cell, record: RunRecord, scorer: Scorer, sink: Safe) -> None:
    """Decode the samples that have no line yet; each line is on disk before the next result is asked for.

    Beside a GPU answers are judged while others are decoded. On the CPU judging waits, for it would slow the clock that is
    being read and the programs that are being timed.
    """
    plan = cell.plan
    prompts = {prompt.id: prompt for prompt in cell.prompts if prompt.id not in record.generations.by_id}
    if not prompts:
        return
    done = len(cell.prompts) - len(prompts)
    if done:
        log.info("%d of %d samples are there already", done, len(cell.prompts))
    seed = plan.config["seed"]
    requests = [Request(p.id, p.ids, plan.max_tokens, identity.sample_seed(seed, p.id)) for p in prompts.values()]
    engine = engine_for(plan.model, plan.engine)
    record.note(engine=engine.info(), warm_up_runs=engine.warm_up(requests, plan.recipe))
    start = f"{int(time.time() * 1000):x}"
    bar = tracked(engine.generate(requests, plan.recipe), total=len(cell.prompts), done=done, what=plan.task.name)
    for result in bar:
        prompt = prompts.pop(result.id)
        line = answers.line(
            result, prompt, cell.prompter.decode, stops=plan.task.stop, mask_id=plan.spec.mask_id, start=start
        )
        record.generations.add([line])
        sink.call("line", line)
        if plan.engine.device != "cpu":
            scorer.submit([line])
    if prompts:
        raise RuntimeError(f"the engine gave no answer for {len(prompts)} samples, the first is {next(iter(prompts))!r}")


def merged(folder: Path) -> list[dict[str, Any]]:
    """The samples' lines with their verdicts, in the order of the answers."""
    generations, _ = read_lines(folder / "generations.jsonl")
    scores, _ = read_lines(folder / "scores.jsonl")
    verdicts = {line["id"]: line for line in scores}
    return [{**line, **verdicts.get(line["id"], {})} for line in generations]


def mirror_later(cell: Cell) -> None:
    """Mirror a finished record that the sink has not seen to its end."""
    if cell.plan.sink.mirrored(cell.folder):
        return
    with RunRecord(cell.folder, cell.fingerprint) as record:
        sink = Safe(cell.plan.sink)
        sink.call("open", cell.folder, facts(cell))
        sink.call("close", record.metrics, merged(cell.folder))


@contextmanager
def run_log(folder: Path) -> Iterator[None]:
    """Copy this process's log to the record's run.log."""
    handler = logging.FileHandler(folder / "run.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    except Exception:
        failure = log.makeRecord(log.name, logging.ERROR, __file__, 0, "the run failed", (), sys.exc_info())
        handler.handle(failure)
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
