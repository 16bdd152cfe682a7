"""IFEval: prompts with instructions that a program can verify (Zhou et al. 2023, arXiv:2311.07911).

Scores per prompt (all instructions followed) and per instruction, strictly and loosely. Loose accepts an instruction
that is followed once asterisks, the first line, the last line or any of these together are taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evals import instructions
from evals.data import HubSource, Rows, load_rows
from evals.extract import strip_special_end
from evals.instructions.text import require_packages
from evals.task import Answer, Message, Sample, Score

REVISION = "966cd89545d6b6acfd7638bc708b98261ca58e84"
METRICS = ("prompt_strict", "prompt_loose")
LAYOUTS = ("chat", "text")
_COLUMNS = ("key", "prompt", "instruction_id_list", "kwargs")


@dataclass(frozen=True, slots=True)
class IfEval:
    """Fields:

    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead, columns as on the hub.
    - `layout`: `chat`, the prompt as a user turn, or `text`, the prompt alone, as lm-eval asks without a template.
    - `metric`: what counts as accuracy, `prompt_strict` or `prompt_loose`. The instruction-level numbers are ratios of
      sums over the run, given by `summarise`.
    - `max_tokens`: answer budget; 1280 is lm-eval's and Dream's.

    The data has no reference answers.
    """

    source: str = "hub"
    path: str | None = None
    layout: str = "chat"
    metric: str = "prompt_strict"
    max_tokens: int = 1280

    def __post_init__(self) -> None:
        for field, value, allowed in (
            ("source", self.source, ("hub", "sample")),
            ("layout", self.layout, LAYOUTS),
            ("metric", self.metric, METRICS),
        ):
            if value not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {value!r}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")

    @property
    def name(self) -> str:
        return "ifeval"

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return ()

    def samples(self) -> list[Sample]:
        require_packages()
        return [self._sample(row) for row in self._rows().rows]

    def _sample(self, row: dict[str, Any]) -> Sample:
        where = f"ifeval key {row['key']}"
        names, given = row["instruction_id_list"], row["kwargs"]
        if not isinstance(names, list) or not isinstance(given, list) or len(names) != len(given) or not names:
            raise ValueError(f"{where}: instruction_id_list and kwargs must be lists of equal length, got {names}, {given}")
        try:
            kwargs = [instructions.arguments(name, args or {}) for name, args in zip(names, given, strict=True)]
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        prompt = str(row["prompt"])
        return Sample(
            id=f"ifeval-{row['key']}",
            messages=(Message("user", prompt),) if self.layout == "chat" else (),
            text=prompt if self.layout == "text" else None,
            reference={"key": row["key"], "instructions": names, "kwargs": kwargs},
        )

    def provenance(self) -> dict[str, Any]:
        rows = self._rows()
        notes = list(rows.provenance["notes"])
        if any(row["key"] == 2785 and "at least one placeholder" in row["prompt"] for row in rows.rows):
            notes.append("key 2785 asks for one placeholder and is judged by three, as published before June 2024")
        return {**rows.provenance, "notes": notes}

    def reference_answer(self, sample: Sample) -> str | None:
        """None: the data has no answers."""
        return None

    def score(self, sample: Sample, answer: Answer) -> Score:
        names, kwargs = sample.reference["instructions"], sample.reference["kwargs"]
        text = strip_special_end(answer.text)
        strict: list[bool] = []
        loose: list[bool] = []
        complaints: list[str] = []
        for name, given in zip(names, kwargs, strict=True):
            finding = instructions.check(name, given, text)
            followed = finding.followed and not answer.has_mask
            strict.append(followed)
            loose.append(followed or (not answer.has_mask and _loosely(name, given, text)))
            if not followed:
                complaints.append(f"{name} ({finding.found})")
        metrics = {
            "prompt_strict": float(all(strict)),
            "prompt_loose": float(all(loose)),
            "inst_strict_followed": float(sum(strict)),
            "inst_loose_followed": float(sum(loose)),
            "inst_total": float(len(names)),
        }
        value = metrics[self.metric]
        if answer.has_mask:
            outcome, why = "mask", "the answer still holds mask tokens"
        elif not text.strip():
            outcome, why = "empty", "the answer is empty"
        elif value == 1.0:
            outcome, why = "right", f"all {len(names)} followed"
        else:
            outcome = "truncated" if answer.finish == "length" else "wrong"
            why = f"{len(complaints)} of {len(names)} not followed: {'; '.join(complaints)}"
        return Score(value, outcome, None, why, metrics)

    def summarise(self, scores: Iterable[Score]) -> dict[str, float]:
        """Run-level accuracies: over prompts, and over instructions (followed by the sum of instructions)."""
        listed = [score.metrics for score in scores]
        prompts = len(listed)
        total = sum(m["inst_total"] for m in listed)
        out = {name: sum(m[name] for m in listed) / prompts if prompts else 0.0 for name in METRICS}
        for kind in ("strict", "loose"):
            out[f"inst_{kind}"] = sum(m[f"inst_{kind}_followed"] for m in listed) / total if total else 0.0
        return out

    def _rows(self) -> Rows:
        return load_rows(
            "ifeval",
            source=self.source,
            path=self.path,
            hub=HubSource("google/IFEval", None, "train", REVISION),
            columns=_COLUMNS,
            known_rows=541,
        )


def _loosely(name: str, given: dict[str, Any], text: str) -> bool:
    """Whether any of the official loose readings of `text` follows the instruction."""
    lines = text.split("\n")
    cut = ("\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip())
    readings = (text, *cut)
    starless = (reading.replace("*", "") for reading in readings)
    return any(instructions.check(name, given, reading).followed for reading in dict.fromkeys((*readings, *starless)))
