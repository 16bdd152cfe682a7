"""LiveCodeBench code generation: contest problems, solved by a program that reads and prints or by a method.

Jain et al. 2024 (arXiv:2403.07974). Each test runs the program afresh; what it gave is compared outside the sandbox by
the official checker's rules, so the expected output is never within the program's reach. A score from rows whose
private tests are missing is an upper bound, not comparable with published ones, and labelled `public-only`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals import values, verdicts
from evals.code import defines, extract
from evals.data import HubSource, Rows, load_rows
from evals.livecodebench_styles import STYLES, question
from evals.livecodebench_tests import (
    Case,
    arguments,
    difference_of_output,
    difference_of_values,
    printing,
    read_cases,
)
from evals.sandbox import RunResult, run_program
from evals.task import Answer, Message, Sample, Score

PUBLIC_ONLY = "public-only"
_HUB, _REVISION = "livecodebench/code_generation_lite", "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
#: Problems added by each release.
_ADDED = {1: 400, 2: 111, 3: 101, 4: 101, 5: 167, 6: 175}
_COLUMNS = (
    "question_title",
    "question_content",
    "platform",
    "question_id",
    "contest_id",
    "contest_date",
    "starter_code",
    "difficulty",
    "public_test_cases",
    "private_test_cases",
    "metadata",
)
#: The modules whose names the official checker puts before every solution, in its order.
_STARRED = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
_PRELUDE = "".join(
    [f"from {name} import *\n" for name in _STARRED]
    + [f"import {name}\n" for name in _STARRED if name not in ("builtins", "typing")]
    + ["sys.setrecursionlimit(50000)\n"]
)
_RESULT = "returned"


@dataclass(frozen=True, slots=True)
class LiveCodeBench:
    """Fields:

    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead.
    - `release`: of the hub, `release_v1` to `release_v6` (all problems up to then) or `v1` to `v6` (those added).
    - `start`, `end`: first and last contest date to take, `YYYY-MM-DD`; None: no bound.
    - `tests`: `all`, or `public` to leave the private ones out although they are there.
    - `style`: a name of `STYLES`; `max_tokens`: answer budget; `extra_stop`: stop strings.
    - `timeout_s`: seconds of processor time for one test (the official checker gives 6); `memory_mb`: its memory.
    """

    source: str = "hub"
    path: str | None = None
    release: str = "release_v6"
    start: str | None = None
    end: str | None = None
    tests: str = "all"
    style: str = "official"
    max_tokens: int = 2048
    extra_stop: Sequence[str] = ()
    timeout_s: float = 6.0
    memory_mb: int = 4096

    def __post_init__(self) -> None:
        verdicts.check_choice("source", self.source, ("hub", "sample"))
        verdicts.check_choice("style", self.style, STYLES)
        verdicts.check_choice("tests", self.tests, ("all", "public"))
        verdicts.check_choice("release", self.release, tuple(f"{kind}v{n}" for kind in ("release_", "") for n in _ADDED))
        verdicts.check_fields(self.timeout_s, self.memory_mb, self.max_tokens)
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
                raise ValueError(f"{name} must be a date YYYY-MM-DD, got {value!r}")
        object.__setattr__(self, "extra_stop", verdicts.stop_strings(self.extra_stop))

    @property
    def name(self) -> str:
        return "livecodebench"

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return self.extra_stop

    def samples(self) -> list[Sample]:
        rows = self._window()
        if not rows:
            raise ValueError(f"livecodebench: no problem between {self.start or 'ever'} and {self.end or 'now'}")
        return [self._sample(row) for row in rows]

    def provenance(self) -> dict[str, Any]:
        """Of the rows; `label` is `public-only` or None, `taken` the number of problems in the window of dates."""
        found, rows = self._rows().provenance, self._window()
        without = sum(self._private(row) is None for row in rows)
        notes = list(found["notes"])
        if without:
            notes.append(
                f"{PUBLIC_ONLY}: {without} of {len(rows)} problems are judged by their public tests alone; the score "
                "is an upper bound and not comparable with published ones"
            )
        label = PUBLIC_ONLY if without else None
        return {**found, "notes": notes, "label": label, "taken": len(rows), "start": self.start, "end": self.end}

    def run_notes(self, scores: Iterable[Score]) -> list[str]:
        """What a reader of the run has to know."""
        without = sum(PUBLIC_ONLY in score.metrics for score in scores)
        return [f"{PUBLIC_ONLY}: {without} problems were judged by their public tests alone"] if without else []

    def score(self, sample: Sample, answer: Answer) -> Score:
        verdict = verdicts.unusable(answer) or self._judge(sample.reference, answer)
        if sample.reference["private"] is not None:
            return verdict
        return Score(
            verdict.value,
            verdict.outcome,
            verdict.answer,
            f"{PUBLIC_ONLY}: {verdict.explanation}",
            {**verdict.metrics, PUBLIC_ONLY: verdict.value},
        )

    def reference_answer(self, sample: Sample) -> str | None:
        """A program that knows the tests by heart; the data has no solutions, so this is what its outputs can tell."""
        return f"```python\n{printing(self._cases(sample.reference), sample.reference['method'])}```\n"

    def _judge(self, row: Mapping[str, Any], answer: Answer) -> Score:
        method = row["method"]
        program = extract(answer.text, entry="Solution" if method else None)
        if program is None:
            return verdicts.without_program(answer, "Python code")
        cases = self._cases(row)
        for number, case in enumerate(cases, start=1):
            result, differs = self._run(program, case, method)
            if differs is None:
                continue
            failed = verdicts.judge(result, answer, program) if result.reason != "ok" else None
            outcome = "wrong" if failed is None or failed.outcome == "right" else failed.outcome
            return Score(0.0, outcome, program, f"test {number} of {len(cases)}: {differs}")
        return Score(1.0, "right", program, f"all {len(cases)} tests passed")

    def _cases(self, row: Mapping[str, Any]) -> list[Case]:
        return read_cases(row["public"]) + (read_cases(row["private"]) if row["private"] is not None else [])

    def _run(self, program: str, case: Case, method: str | None) -> tuple[RunResult, str | None]:
        """How one test ended; None, or what was wrong."""
        limits = verdicts.limits(self.timeout_s, self.memory_mb, output_mb=32)
        if case.kind == "stdin":
            result = run_program(_main(program), stdin=case.given, limits=limits)
            if result.reason not in ("ok", "exit"):
                return result, result.explanation
            return result, difference_of_output(result.stdout, case.expected)
        if method is None:
            raise ValueError("livecodebench: a functional test needs metadata with func_name")
        owner = "Solution()." if defines(program, "Solution") else ""
        call = f"\n{_RESULT} = {owner}{method}(*_json.loads({json.dumps(json.dumps(arguments(case)))}))\n"
        source = f"{_main(program)}\nimport json as _json{call}"
        result = run_program(source, tests=values.report(_RESULT), limits=limits)
        there, value = values.reported(result.stdout)
        if not result.passed or not there:
            return result, result.explanation or "no value came back"
        return result, difference_of_values(value, case.expected)

    def _sample(self, row: Mapping[str, Any]) -> Sample:
        where = f"livecodebench row {row['question_id']}"
        for column in ("question_content", "contest_date", "public_test_cases", "metadata"):
            if not isinstance(row[column], str):
                raise ValueError(f"{where}: {column} must be a string, got {row[column]!r}")
        style, asked = STYLES[self.style], question(row["question_content"], row["starter_code"])
        system = (Message("system", style.system),) if style.system is not None else ()
        return Sample(
            id=row["question_id"],
            messages=(*system, Message("user", asked)) if style.is_chat else (),
            text=None if style.is_chat else asked,
            reference={
                "public": row["public_test_cases"],
                "private": self._private(row),
                "method": json.loads(row["metadata"] or "{}").get("func_name"),
                "date": row["contest_date"],
                "difficulty": row["difficulty"],
                "platform": row["platform"],
            },
        )

    def _private(self, row: Mapping[str, Any]) -> str | None:
        """The private tests as the data has them; None when they are missing or not wanted."""
        text = row["private_test_cases"]
        return text if self.tests == "all" and isinstance(text, str) and text.strip() not in ("", "[]") else None

    def _window(self) -> list[dict[str, Any]]:
        first, last = self.start or "", self.end or "9999"
        return [row for row in self._rows().rows if first <= str(row["contest_date"])[:10] <= last]

    def _rows(self) -> Rows:
        number = int(self.release[-1])
        releases = range(1, number + 1) if self.release.startswith("release_") else (number,)
        files = tuple("test.jsonl" if n == 1 else f"test{n}.jsonl" for n in releases)
        return load_rows(
            "livecodebench",
            source=self.source,
            path=self.path,
            hub=HubSource(_HUB, None, "test", _REVISION, files),
            columns=_COLUMNS,
            known_rows=sum(_ADDED[n] for n in releases) if self.path is None else None,
        )


def _main(program: str) -> str:
    """The program behind the names it may count on; what it imports `from __future__` must stay in front."""
    pattern = re.compile(r"^from __future__ import .*$", re.MULTILINE)
    return "".join(f"{line}\n" for line in pattern.findall(program)) + _PRELUDE + pattern.sub("", program)
