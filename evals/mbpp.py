"""MBPP, its sanitized part, and MBPP+: write a short Python function from a sentence and a few tests.

Austin et al. 2021 (arXiv:2108.07732); the extended tests are EvalPlus's (Liu et al. 2023, arXiv:2305.01210). A split
is a range of task ids, in every variant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals import verdicts
from evals.code import called_names, clean, defines, extract
from evals.data import HubSource, Rows, load_rows
from evals.mbpp_styles import SHOT_IDS, STYLES, Style
from evals.sandbox import run_program
from evals.styles import LAYOUTS, Shot, lay_out
from evals.task import Answer, Sample, Score

#: First and last task id of each split.
SPLITS = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974), "all": (1, 974)}
_MBPP, _REVISION = "google-research-datasets/mbpp", "4bb6404fdc6cacfda99d4ac4205087b89d32030c"
_ALL = "prompt+test+validation+train"


@dataclass(frozen=True, slots=True)
class _Variant:
    name: str
    hub: HubSource
    known_rows: int
    columns: tuple[str, ...]
    text: str


_VARIANTS: Mapping[str, _Variant] = {
    "full": _Variant(
        "mbpp",
        HubSource(_MBPP, "full", _ALL, _REVISION),
        974,
        ("task_id", "text", "code", "test_setup_code", "test_list", "challenge_test_list"),
        "text",
    ),
    "sanitized": _Variant(
        "mbpp_sanitized",
        HubSource(_MBPP, "sanitized", _ALL, _REVISION),
        427,
        ("task_id", "prompt", "code", "source_file", "test_imports", "test_list"),
        "prompt",
    ),
    "plus": _Variant(
        "mbpp_plus",
        HubSource("evalplus/mbppplus", None, "test", "b2d74c91837c3f2a20c1299ae98133cbe7cfa077"),
        378,
        ("task_id", "prompt", "code", "source_file", "test_imports", "test_list", "test"),
        "prompt",
    ),
}


@dataclass(frozen=True, slots=True)
class Mbpp:
    """Fields:

    - `variant`: `full`, `sanitized` or `plus` (MBPP+, whose tests import numpy).
    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead.
    - `split`: `test` (task ids 11 to 510, what published results use), `prompt`, `validation`, `train` or `all`; None
      takes `test` of the hub, all rows of a file or of the samples, and all of MBPP+.
    - `style`: a name of `mbpp_styles.STYLES`; the default needs no examples. `shots` (0 to 3) and `layout` (`text`,
      `chat`, `turns`) replace what it says. Examples are the rows 2, 3 and 4 of the data.
    - `max_tokens`: answer budget; `extra_stop`: stop strings besides the style's.
    - `timeout_s`: seconds of processor time for one program with all its tests; `memory_mb`: its memory. None for 10
      and 1024, or 90 and 4096 for MBPP+, where some reference solutions need them.
    """

    variant: str = "full"
    source: str = "hub"
    path: str | None = None
    split: str | None = None
    style: str = "dinfer"
    shots: int | None = None
    layout: str | None = None
    max_tokens: int = 512
    extra_stop: Sequence[str] = ()
    timeout_s: float | None = None
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        verdicts.check_choice("variant", self.variant, _VARIANTS)
        verdicts.check_choice("source", self.source, ("hub", "sample"))
        verdicts.check_choice("split", self.split or "all", SPLITS)
        verdicts.check_choice("style", self.style, STYLES)
        verdicts.check_choice("layout", self.layout or LAYOUTS[0], LAYOUTS)
        verdicts.check_fields(*self._allowed, self.max_tokens)
        if self.shots is not None and not 0 <= self.shots <= len(SHOT_IDS):
            raise ValueError(f"shots must lie in [0, {len(SHOT_IDS)}], got {self.shots}")
        object.__setattr__(self, "extra_stop", verdicts.stop_strings(self.extra_stop))

    @property
    def name(self) -> str:
        return self._kind.name

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return (*self._style.stop, *self.extra_stop)

    @property
    def _kind(self) -> _Variant:
        return _VARIANTS[self.variant]

    @property
    def _allowed(self) -> tuple[float, int]:
        """Seconds of processor time and megabytes of memory."""
        seconds, memory = (90.0, 4096) if self.variant == "plus" else (10.0, 1024)
        return (
            seconds if self.timeout_s is None else self.timeout_s,
            memory if self.memory_mb is None else self.memory_mb,
        )

    @property
    def _style(self) -> Style:
        return STYLES[self.style]

    def samples(self) -> list[Sample]:
        rows = self._rows().rows
        shots = self._shots(rows)
        first, last = SPLITS[self._split()]
        chosen = [self._sample(row, shots) for row in rows if first <= int(row["task_id"]) <= last]
        if not chosen:
            raise ValueError(f"{self.name}: split {self._split()} has none of the {len(rows)} rows")
        return chosen

    def provenance(self) -> dict[str, Any]:
        found = self._rows().provenance
        if self.variant != "plus" and found["source"] != "sample" and self._split() != "test":
            note = f"split {self._split()}; published results use the 500 (full) or 257 (sanitized) rows of split test"
            found = {**found, "notes": [*found["notes"], note]}
        return {**found, "taken": self._split()}

    def score(self, sample: Sample, answer: Answer) -> Score:
        verdict = verdicts.unusable(answer)
        if verdict is not None:
            return verdict
        row = sample.reference
        names = [str(name) for name in row["entry"]]
        program = program_in(answer.text, names, inside=self._style.prefill.count("```") % 2 == 1)
        if program is None:
            return verdicts.without_program(answer, "Python code")
        result = run_program(program, tests=row["tests"], provides=names, limits=verdicts.limits(*self._allowed))
        return verdicts.judge(result, answer, program)

    def reference_answer(self, sample: Sample) -> str | None:
        """The data's own solution, written as the style makes a model write it."""
        written = self._style.answer.replace("{code}", str(sample.reference["code"]))
        start = self._style.prefill
        return written[len(start) :] if start and written.startswith(start) else written

    def _split(self) -> str:
        if self.split is not None:
            return self.split
        return "test" if self.source == "hub" and self.path is None and self.variant != "plus" else "all"

    def _sample(self, row: Mapping[str, Any], shots: Sequence[Shot]) -> Sample:
        for column in ("code", self._kind.text):
            if not isinstance(row[column], str):
                raise ValueError(f"{self.name} row {row['task_id']}: {column} must be a string, got {row[column]!r}")
        asserts, code = _strings(row, "test_list"), _plain(row["code"])
        tests = self._tests(row, asserts)
        called = called_names("\n".join(asserts))
        prompt = lay_out(
            self._style.ask(row[self._kind.text], asserts), shots, self.layout or self._style.layout, answer_gap=""
        )
        return Sample(
            id=f"{self.name}-{row['task_id']}",
            messages=prompt.messages,
            text=prompt.text,
            prefill="" if prompt.text is not None else self._style.prefill,
            reference={"tests": tests, "code": code, "entry": [name for name in called if defines(code, name)]},
        )

    def _tests(self, row: Mapping[str, Any], asserts: Sequence[str]) -> str:
        if self.variant == "plus":
            return str(row["test"])
        if self.variant == "sanitized":
            return "\n".join([*_strings(row, "test_imports"), *asserts]) + "\n"
        return "\n".join([_plain(row["test_setup_code"]), *asserts]) + "\n"

    def _shots(self, rows: Sequence[Mapping[str, Any]]) -> list[Shot]:
        count = self._style.shots if self.shots is None else self.shots
        known = {int(row["task_id"]): row for row in rows}
        missing = [number for number in SHOT_IDS[:count] if number not in known]
        if missing:
            raise ValueError(
                f"style {self.style} shows the rows with task_id {missing}, which the data lacks: give a path that has "
                "them (and split=test), or task.shots=0"
            )
        chosen = [known[number] for number in SHOT_IDS[:count]]
        return [self._style.shot(row[self._kind.text], _strings(row, "test_list"), row["code"]) for row in chosen]

    def _rows(self) -> Rows:
        return load_rows(
            self.name,
            source=self.source,
            path=self.path,
            hub=self._kind.hub,
            columns=self._kind.columns,
            known_rows=self._kind.known_rows,
        )


def program_in(text: str, names: Sequence[str], *, inside: bool = False) -> str | None:
    """The program of an answer: between `[BEGIN]` and `[DONE]` if those are there, out of quotes and fences.

    The function looked for is the first of `names`, the functions that the tests call.
    """
    text = re.split(r"\[DONE\]", clean(text), maxsplit=1)[0]
    text = text.rpartition("[BEGIN]")[2]
    if "```" not in text and re.match(r"\s*'", text):
        text = re.sub(r"'\s*\Z", "", text.strip().removeprefix("'"))
    entry = names[0] if names else None
    return extract(text, entry=entry, inside=inside)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _strings(row: Mapping[str, Any], column: str) -> list[str]:
    """A column that is a list of strings, or (in one release of MBPP+) the text of one."""
    value = row[column]
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"row {row['task_id']}: {column} must be a list of strings, got {row[column]!r}")
    return value
