"""CRUXEval verdicts against lm-eval's on the same answers: equal, and the known differences by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from evals.cruxeval import CruxEval
from evals.task import Answer, Sample

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm-eval is not installed (pip install 'dinfer[lm-eval]')"
)

#: The forms both sides read, by what is predicted: with tags, as an assertion, and bare.
FORMS = {
    "output": ("[ANSWER]\nassert f({i}) == {o}\n", "assert f({i}) == {o}", "f({i}) == {o}", "{o}"),
    "input": ("[ANSWER]\nassert f({i}) == {o}\n", "assert f({i}) == {o}", "f({i})"),
}


def lm_eval_verdict(predict: str, sample: Sample, text: str) -> float:
    """lm-eval's: it makes a program of the answer, which is right when it runs through. The programs of this test come
    from the data, so they are run here."""
    from lm_eval.tasks.cruxeval import utils

    build = utils.extract_code_output if predict == "output" else utils.extract_code_input
    try:
        exec(build(dict(sample.reference), text, False), {})
    except Exception:
        return 0.0
    return 1.0


@pytest.mark.parametrize("predict", FORMS)
def test_verdicts_equal_those_of_lm_eval(predict: str, shared: Path) -> None:
    task = CruxEval(predict=predict, path=str(shared / "data" / "cruxeval" / "test.jsonl"))
    samples = task.samples()
    differ, strings, right = [], 0, 0
    for index, sample in enumerate(samples[::40]):
        row, other = sample.reference, samples[(index * 40 + 37) % len(samples)].reference
        for form in FORMS[predict]:
            for own in (True, False):
                given = {"i": row["input"], "o": row["output"]}
                given["o" if predict == "output" else "i"] = (row if own else other)[predict]
                text = form.format(**given)
                ours = task.score(sample, Answer(text)).value
                theirs = lm_eval_verdict(predict, sample, text)
                right += ours == 1.0
                if predict == "output" and own and row["output"][0] in "'\"":
                    # lm-eval takes the quotation marks off a value, so that no string is ever right.
                    assert (ours, theirs) == (1.0, 0.0)
                    strings += 1
                elif ours != theirs:
                    differ.append((sample.id, text, ours, theirs))
    assert differ == []
    assert right >= len(samples[::40]) * len(FORMS[predict])
    assert (strings > 0) == (predict == "output")


@pytest.mark.parametrize(
    ("predict", "text", "ours", "theirs"),
    [
        ("output", "assert f(2) == 'ab'", 1.0, 0.0),
        ("output", "The value is `'ab'`.", 1.0, 0.0),
        ("input", "f(2) == 'ab'", 1.0, 0.0),
        ("input", "[ANSWER]\nf(2)\n", 1.0, 0.0),
        ("input", "```python\nassert f(2) == 'ab'\n```", 1.0, 1.0),
        ("input", "f(3)", 0.0, 0.0),
    ],
)
def test_the_known_differences_from_lm_eval(predict: str, text: str, ours: float, theirs: float) -> None:
    row = {"code": "def f(n):\n    return 'abc'[:n]", "input": "2", "output": "'ab'"}
    sample = Sample("q", reference=row)
    assert CruxEval(predict=predict).score(sample, Answer(text)).value == ours
    assert lm_eval_verdict(predict, sample, text) == theirs
