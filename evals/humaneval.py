"""HumanEval and HumanEval+: complete a Python function so that its unit tests pass.

Chen et al. 2021 (arXiv:2107.03374); the extended tests are EvalPlus's (Liu et al. 2023, arXiv:2305.01210). The test of
HumanEval/32 in HumanEval+ v0.1.10 fails for every solution as shipped, so the best possible score there is 163 of 164.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals import verdicts
from evals.completion import continue_function
from evals.data import HubSource, Rows, load_rows
from evals.sandbox import run_program
from evals.task import Answer, Message, Sample, Score

_COLUMNS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
_SOURCES = {
    "base": HubSource("openai/openai_humaneval", None, "test", "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544"),
    "plus": HubSource("evalplus/humanevalplus", None, "test", "d32357cf319e50e9c8d8dab5ea876c72b0fd321b"),
}
_NAMES = {"base": "humaneval", "plus": "humaneval_plus"}
_CUT = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")


@dataclass(frozen=True, slots=True)
class Style:
    """One way of asking: the user's turn with `{prompt}` in it (None: the prompt itself as plain text, to be
    continued), the start of the answer, and the stop strings."""

    question: str | None
    prefill: str = ""
    stop: tuple[str, ...] = ()


_CONTINUE = Style(None, stop=_CUT)
_LM_EVAL_INSTRUCT = Style(
    "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```\n",
    "Here is the completed function:\n```python\n{prompt}\n",
    _CUT,
)
_OPENCOMPASS = Style("Complete the following python code:\n{prompt}")

#: `lm_eval`, `llada_base`, `dream_base`: the bare prompt, continued (lm-eval's humaneval). `lm_eval_instruct`,
#: `dream_instruct`, `dinfer`: lm-eval's humaneval_instruct, whose answer goes on inside a fence that the prompt opened.
#: `opencompass`, `llada_instruct`: OpenCompass humaneval_gen_8e312c; `opencompass_openai`: its
#: humaneval_openai_sample_evals_gen_dcae0e. `evalplus`: EvalPlus's own chat prompt.
STYLES: Mapping[str, Style] = {
    "lm_eval": _CONTINUE,
    "llada_base": _CONTINUE,
    "dream_base": _CONTINUE,
    "lm_eval_instruct": _LM_EVAL_INSTRUCT,
    "dream_instruct": _LM_EVAL_INSTRUCT,
    "dinfer": _LM_EVAL_INSTRUCT,
    "opencompass": _OPENCOMPASS,
    "llada_instruct": _OPENCOMPASS,
    "opencompass_openai": Style(
        "Read the following function signature and docstring, and fully implement the function described. "
        "Your response should only contain the code for this function.\n{prompt}"
    ),
    "evalplus": Style(
        "Please provide a self-contained Python script that solves the following problem in a markdown code block:\n"
        "```\n{prompt}\n```\n",
        "Below is a Python script with a self-contained function that solves the problem and passes corresponding "
        "tests:\n```python\n",
    ),
}


@dataclass(frozen=True, slots=True)
class HumanEval:
    """Fields:

    - `variant`: `base` (HumanEval) or `plus` (HumanEval+, whose tests import numpy).
    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead.
    - `style`: a name of `STYLES`; the default works with any chat model and has no stop strings. There are no shots.
    - `max_tokens`: answer budget; `extra_stop`: stop strings besides the style's.
    - `timeout_s`: seconds of processor time for one program with all its tests, None for 10 (base) or 40 (plus, where
      some reference solutions take 8); `memory_mb`: its memory.
    """

    variant: str = "base"
    source: str = "hub"
    path: str | None = None
    style: str = "opencompass"
    max_tokens: int = 512
    extra_stop: Sequence[str] = ()
    timeout_s: float | None = None
    memory_mb: int = 1024

    def __post_init__(self) -> None:
        verdicts.check_choice("variant", self.variant, _SOURCES)
        verdicts.check_choice("source", self.source, ("hub", "sample"))
        verdicts.check_choice("style", self.style, STYLES)
        verdicts.check_fields(self._seconds, self.memory_mb, self.max_tokens)
        object.__setattr__(self, "extra_stop", verdicts.stop_strings(self.extra_stop))

    @property
    def name(self) -> str:
        return _NAMES[self.variant]

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return (*STYLES[self.style].stop, *self.extra_stop)

    def samples(self) -> list[Sample]:
        return [self._sample(row) for row in self._rows().rows]

    def provenance(self) -> dict[str, Any]:
        return self._rows().provenance

    def score(self, sample: Sample, answer: Answer) -> Score:
        verdict = verdicts.unusable(answer)
        if verdict is not None:
            return verdict
        row = sample.reference
        entry = str(row["entry_point"])
        program = continue_function(str(row["prompt"]), entry, answer.text, inside=self._inside())
        if program is None:
            return verdicts.without_program(answer, "code of the function")
        tests = f"{row['test']}\ncheck({entry})\n"
        result = run_program(program, tests=tests, provides=(entry,), limits=verdicts.limits(self._seconds, self.memory_mb))
        return verdicts.judge(result, answer, program)

    def reference_answer(self, sample: Sample) -> str | None:
        """The data's own solution, written as the style makes a model write it."""
        prompt, solution = str(sample.reference["prompt"]), sample.reference.get("canonical_solution")
        if solution is None:
            return None
        style = STYLES[self.style]
        if style.question is None:
            return str(solution)
        if "{prompt}" in style.prefill:
            return f"{solution}```\n"
        return f"{prompt}{solution}\n```\n" if style.prefill else f"```python\n{prompt}{solution}\n```\n"

    @property
    def _seconds(self) -> float:
        return {"base": 10.0, "plus": 40.0}[self.variant] if self.timeout_s is None else self.timeout_s

    def _inside(self) -> bool:
        """Whether the answer begins inside a fence that the prompt has opened."""
        return STYLES[self.style].prefill.count("```") % 2 == 1

    def _sample(self, row: Mapping[str, Any]) -> Sample:
        for column in _COLUMNS:
            if not isinstance(row[column], str):
                raise ValueError(f"{self.name} row {row['task_id']}: {column} must be a string, got {row[column]!r}")
        style, prompt = STYLES[self.style], row["prompt"]
        reference = {column: row[column] for column in _COLUMNS if column != "task_id"}
        if style.question is None:
            return Sample(id=row["task_id"], text=prompt, reference=reference)
        return Sample(
            id=row["task_id"],
            messages=(Message("user", style.question.replace("{prompt}", prompt)),),
            prefill=style.prefill.replace("{prompt}", prompt),
            reference=reference,
        )

    def _rows(self) -> Rows:
        return load_rows(
            self.name,
            source=self.source,
            path=self.path,
            hub=_SOURCES[self.variant],
            columns=_COLUMNS,
            known_rows=164,
        )
