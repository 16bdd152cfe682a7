"""CRUXEval: predict what a short Python function returns, or find an input for which it returns a given value.

Gu et al. 2024 (arXiv:2401.03065). A predicted value is compared as a value. A found input is run in the sandbox, and
what the function returns is compared outside it.

Verdicts differ from those of lm-eval 0.4.13 in one direction only: it strips the quotes off a predicted string, cuts
values at `#` and `==`, and counts brackets inside strings, and so fails right answers (about half of all outputs are
strings). The authors' own checker does none of this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals import values, verdicts
from evals.code import clean
from evals.cruxeval_styles import STOP, STYLES
from evals.data import HubSource, Rows, load_rows
from evals.sandbox import run_program
from evals.task import Answer, Message, Sample, Score

_COLUMNS = ("code", "input", "output", "id")
_HUB = HubSource("cruxeval-org/cruxeval", None, "test", "b96af0450242eb4da433032b90998f25588a5d0f")
_RESULT = "found_result"
_LINES = 40


@dataclass(frozen=True, slots=True)
class CruxEval:
    """Fields:

    - `predict`: `output` or `input`.
    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead.
    - `style`: a name of `cruxeval_styles.STYLES`: `direct` or `cot` (chain of thought) in our own words, `lm_eval`,
      `lm_eval_cot` or `original`. `layout`: `text` or `chat`, None for the style's.
    - `max_tokens`: answer budget; `extra_stop`: stop strings besides `[/ANSWER]`.
    - `timeout_s`: seconds of processor time for one call; `memory_mb`: its memory.
    """

    predict: str = "output"
    source: str = "hub"
    path: str | None = None
    style: str = "direct"
    layout: str | None = None
    max_tokens: int = 1024
    extra_stop: Sequence[str] = ()
    timeout_s: float = 5.0
    memory_mb: int = 512

    def __post_init__(self) -> None:
        verdicts.check_choice("predict", self.predict, ("output", "input"))
        verdicts.check_choice("source", self.source, ("hub", "sample"))
        verdicts.check_choice("style", self.style, STYLES)
        verdicts.check_choice("layout", self.layout or "text", ("text", "chat"))
        verdicts.check_fields(self.timeout_s, self.memory_mb, self.max_tokens)
        object.__setattr__(self, "extra_stop", verdicts.stop_strings(self.extra_stop))

    @property
    def name(self) -> str:
        return f"cruxeval_{self.predict}"

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return (*STOP, *self.extra_stop)

    def samples(self) -> list[Sample]:
        return [self._sample(row) for row in self._rows().rows]

    def provenance(self) -> dict[str, Any]:
        return self._rows().provenance

    def score(self, sample: Sample, answer: Answer) -> Score:
        verdict = verdicts.unusable(answer)
        if verdict is not None:
            return verdict
        found = find_value(answer.text) if self.predict == "output" else find_call(answer.text)
        if found is None:
            wanted = "value" if self.predict == "output" else "call of f"
            return verdicts.without_program(answer, wanted)
        return self._judge(sample.reference, found)

    def reference_answer(self, sample: Sample) -> str | None:
        """The data's own input and output, between the answer's tags."""
        row = sample.reference
        return f"[ANSWER]\nassert f({row['input']}) == {row['output']}\n[/ANSWER]"

    def _judge(self, row: Mapping[str, Any], found: str) -> Score:
        expected = ast.literal_eval(str(row["output"]))
        if self.predict == "output" and _calls_f(found):
            return Score(0.0, "wrong", found, "the answer calls f instead of giving the value it returns")
        known, got = _literal(found) if self.predict == "output" else (False, None)
        if not known:
            source = f"{row['code']}\n{_RESULT} = (\n{found}\n)\n"
            allowed = verdicts.limits(self.timeout_s, self.memory_mb)
            result = run_program(source, tests=values.report(_RESULT), limits=allowed)
            known, got = values.reported(result.stdout)
            if not known or not result.passed:
                outcome = "wrong" if result.reason == "error" else verdicts.outcome_of(result)
                return Score(0.0, outcome, found, f"{found} gives no value: {result.explanation}")
        if got == expected:
            return Score(1.0, "right", found, f"the value is {expected!r}")
        what = "the answer is" if self.predict == "output" else f"{found} returns"
        return Score(0.0, "wrong", found, f"{what} {got!r:.200}, expected {expected!r:.200}")

    def _sample(self, row: Mapping[str, Any]) -> Sample:
        for column in _COLUMNS:
            if not isinstance(row[column], str):
                raise ValueError(f"{self.name} row {row['id']}: {column} must be a string, got {row[column]!r}")
        if not _literal(row["output"])[0]:
            raise ValueError(f"{self.name} row {row['id']}: output must be a Python literal, got {row['output']!r}")
        style = STYLES[self.style]
        question = style.ask(self.predict, row["code"], row["input"] if self.predict == "output" else row["output"])
        reference = {"code": row["code"], "input": row["input"], "output": row["output"]}
        if (self.layout or style.layout) == "text":
            return Sample(id=row["id"], text=question, reference=reference)
        return Sample(id=row["id"], messages=(Message("user", question),), reference=reference)

    def _rows(self) -> Rows:
        return load_rows(
            self.name.rpartition("_")[0],
            source=self.source,
            path=self.path,
            hub=_HUB,
            columns=_COLUMNS,
            known_rows=800,
        )


def find_value(text: str) -> str | None:
    """The expression an answer gives for what f returns: the other side of its comparison with a call of f, or else
    the last thing in it that is an expression by itself. None when there is none."""
    piece = _answer_part(text)
    for left, right in _comparisons(piece):
        return left if right.startswith("f(") and not left.startswith("f(") else right
    for line in reversed(_lines(piece)):
        if _is_expression(line) and not _is_prose(line):
            return line
    return None


def find_call(text: str) -> str | None:
    """The call of f an answer gives: one side of its comparison, a call by itself, or bare arguments."""
    piece = _answer_part(text)
    sides = [side for pair in _comparisons(piece) for side in pair]
    for candidate in (*sides, *reversed(_lines(piece))):
        if _is_call_of_f(candidate):
            return candidate
    for line in reversed(_lines(piece)):
        if _is_call_of_f(f"f({line})") and not _is_prose(line):
            return f"f({line})"
    return None


def _answer_part(text: str) -> str:
    """What stands between the last answer tags, if there are any; fences and quoting marks taken off."""
    text = clean(text)
    if "[ANSWER]" in text:
        parts = [part for part in text.split("[ANSWER]")[1:] if part.strip()]
        text = parts[-1] if parts else ""
    text = text.split("[/ANSWER]", 1)[0]
    return re.sub(r"^\s*(?:```|~~~)[\w+-]*\s*$", "", text, flags=re.MULTILINE)


def _comparisons(text: str) -> Iterator[tuple[str, str]]:
    """Both sides of the comparisons `f(…) == …` in `text`, the last one first, assertions before others."""
    starts = [match.start() for match in re.finditer(r"\bassert\b", text)]
    starts = starts or [match.start() for match in re.finditer(r"(?<![\w.])f\(", text)]
    for start in reversed(starts):
        lines = text[start:].split("\n")
        for count in range(1, min(len(lines), _LINES) + 1):
            found = _sides("\n".join(lines[:count]))
            if found is not None:
                yield found
                break


def _sides(text: str) -> tuple[str, str] | None:
    for candidate in (text, text.strip().rstrip("`").rstrip(), text.strip().rstrip("`.").rstrip()):
        try:
            body = ast.parse(candidate).body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        if len(body) != 1 or not isinstance(body[0], ast.Assert | ast.Expr):
            continue
        test = body[0].test if isinstance(body[0], ast.Assert) else body[0].value
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            sides = [ast.get_source_segment(candidate, node) for node in (test.left, test.comparators[0])]
            if sides[0] and sides[1] and any(_is_call_of_f(side) for side in sides if side):
                return sides[0], sides[1]
    return None


def _lines(text: str) -> list[str]:
    """The lines of `text` that are not empty, without what answers put around a value."""
    found = []
    for line in text.split("\n"):
        bare = re.sub(r"^\s*(?:[-*>]\s+)?(?:\**[A-Z][\w ]{0,40}(?:is|:)\**:?\s+|==\s*|=\s*)", "", line.strip())
        bare = bare.strip().strip("`").strip()
        if bare and not _is_expression(bare):
            bare = bare.rstrip(".").strip("`").strip()
        if bare:
            found.append(bare)
    return found


def _is_prose(text: str) -> bool:
    """Whether a text is an expression only by accident: a single name such as `Done`."""
    return isinstance(_expression(text), ast.Name)


def _is_expression(text: str) -> bool:
    return _expression(text) is not None


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _is_call_of_f(text: str) -> bool:
    node = _expression(text)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"


def _calls_f(text: str) -> bool:
    node = _expression(text)
    return node is not None and any(isinstance(item, ast.Name) and item.id == "f" for item in ast.walk(node))


def _literal(text: str) -> tuple[bool, Any]:
    try:
        return True, ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return False, None
