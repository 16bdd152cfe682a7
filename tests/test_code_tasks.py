"""HumanEval, MBPP, LiveCodeBench and CRUXEval as tasks: samples, prompts, outcomes, refusals."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from evals.cruxeval import CruxEval, find_call, find_value
from evals.cruxeval_styles import STYLES as CRUXEVAL_STYLES
from evals.humaneval import STYLES as HUMANEVAL_STYLES
from evals.humaneval import HumanEval
from evals.livecodebench import LiveCodeBench
from evals.livecodebench_styles import STYLES as LIVECODEBENCH_STYLES
from evals.livecodebench_tests import difference_of_output, difference_of_values, read_cases
from evals.mbpp import Mbpp, program_in
from evals.mbpp_styles import STYLES as MBPP_STYLES
from evals.task import OUTCOMES, Answer, Task
from evals.values import Opaque, report, reported
from tests.code_answers import failures, score_all

SAMPLES: list[Any] = [
    HumanEval(source="sample"),
    HumanEval("plus", source="sample"),
    Mbpp(source="sample"),
    Mbpp("sanitized", source="sample"),
    Mbpp("plus", source="sample"),
    LiveCodeBench(source="sample"),
    CruxEval("input", source="sample"),
    CruxEval("output", source="sample"),
]
NAMES = ["humaneval", "humaneval_plus", "mbpp", "mbpp_sanitized", "mbpp_plus", "livecodebench"]
NAMES += ["cruxeval_input", "cruxeval_output"]


def styled(task: type, styles: Any, **fields: Any) -> list[Any]:
    return [task(source="sample", style=style, **fields) for style in styles]


def test_names_that_scripts_rely_on() -> None:
    assert [task.name for task in SAMPLES] == NAMES


@pytest.mark.parametrize("task", SAMPLES, ids=NAMES)
def test_samples_are_complete_and_their_own_answers_right(task: Any) -> None:
    assert isinstance(task, Task)
    samples = task.samples()
    assert len({sample.id for sample in samples}) == len(samples) > 2
    for sample in samples:
        assert (sample.text is None) != (not sample.messages)
        assert json.loads(json.dumps(sample.reference)) == sample.reference
    assert failures(score_all(task, samples, task.reference_answer)) == {}
    assert task.provenance()["source"] == "sample"
    assert task.max_tokens > 0
    assert task == type(task)(**{name: getattr(task, name) for name in task.__dataclass_fields__})
    with pytest.raises(FrozenInstanceError):
        task.style = "x"


@pytest.mark.parametrize(
    "task",
    [
        *styled(HumanEval, HUMANEVAL_STYLES),
        *styled(Mbpp, MBPP_STYLES),
        *styled(LiveCodeBench, LIVECODEBENCH_STYLES),
        *styled(CruxEval, CRUXEVAL_STYLES, predict="input"),
        *styled(CruxEval, CRUXEVAL_STYLES),
    ],
    ids=lambda task: f"{task.name}-{task.style}",
)
def test_every_style_asks_and_accepts_its_own_kind_of_answer(task: Any) -> None:
    if task.name.startswith("cruxeval") and task.style not in ("direct", "cot"):
        pytest.importorskip("lm_eval", reason="this style's wording is read from lm-eval")
    samples = task.samples()
    assert failures(score_all(task, samples[-2:], task.reference_answer)) == {}
    for sample in samples:
        shown = sample.text if sample.text is not None else "".join(message.content for message in sample.messages)
        assert "{" + "prompt" + "}" not in shown
        assert "{tests}" not in shown
        row = sample.reference
        known = row.get("prompt") or row.get("code") if not task.name.startswith("mbpp") else "assert"
        if known:
            assert str(known).strip() in shown or str(known) in sample.prefill


@pytest.mark.parametrize(
    ("text", "finish", "mask", "outcome"),
    [
        ("", "eos", False, "empty"),
        (" \n\n", "length", False, "empty"),
        ("<|endoftext|>", "eos", False, "empty"),
        ("def x(): pass", "eos", True, "mask"),
        ("I do not know.", "eos", False, "no_answer"),
        ("Let me think about it. The", "length", False, "truncated"),
        ("```python\ndef every_other(items):\n    return items[", "length", False, "truncated"),
        ("```python\ndef every_other(items):\n    return items\n```", "eos", False, "wrong"),
        ("```python\ndef every_other(items):\n    return items.no\n```", "eos", False, "crashed"),
        ("```python\ndef every_other(items):\n    while True: pass\n```", "eos", False, "timeout"),
        ("```python\ndef every_other(items):\n    import os; os._exit(0)\n```", "eos", False, "crashed"),
        ("```python\ndef every_other(items):\n    return items[::2]\n```", "length", False, "right"),
    ],
)
def test_outcomes(text: str, finish: str, mask: bool, outcome: str) -> None:
    task = HumanEval(source="sample", timeout_s=1)
    sample = task.samples()[0]
    style = "I do not" in text or "Let me" in text
    if style:
        task = Mbpp(source="sample")
        sample = task.samples()[0]
    score = task.score(sample, Answer(text, finish, mask))
    assert score.outcome == outcome, score
    assert score.outcome in OUTCOMES
    assert score.value == float(outcome == "right")
    assert score.explanation
    assert "\n" not in score.explanation


def test_explanation_says_which_assertion_failed_with_what() -> None:
    task = Mbpp(source="sample")
    score = task.score(task.samples()[1], Answer("```python\ndef count_vowels(word):\n    return 4\n```"))
    assert score.explanation == "tests.py line 3: assert count_vowels('myth') == 0; left 4; right 0"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HumanEval(variant="x"), "variant must be one of base, plus, got 'x'"),
        (lambda: HumanEval(style="x"), "style must be one of lm_eval, "),
        (lambda: HumanEval(timeout_s=0), "timeout_s must be a positive number, got 0"),
        (lambda: HumanEval(extra_stop="ab"), "extra_stop must be a list of non-empty strings, got 'ab'"),
        (lambda: Mbpp(split="x"), "split must be one of prompt, test, validation, train, all, got 'x'"),
        (lambda: Mbpp(shots=4), r"shots must lie in \[0, 3\], got 4"),
        (lambda: Mbpp(layout="x"), "layout must be one of text, chat, turns, got 'x'"),
        (lambda: LiveCodeBench(release="v7"), "release must be one of release_v1, "),
        (lambda: LiveCodeBench(start="2024"), "start must be a date YYYY-MM-DD, got '2024'"),
        (lambda: CruxEval(predict="x"), "predict must be one of output, input, got 'x'"),
        (lambda: CruxEval(source="x"), "source must be one of hub, sample, got 'x'"),
        (lambda: CruxEval(max_tokens=0), "max_tokens must be a positive number, got 0"),
    ],
)
def test_refusals_name_field_value_and_choices(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def mbpp_row(number: int, **fields: Any) -> dict[str, Any]:
    row = {"text": f"Task {number}.", "code": "def f(): return 1", "task_id": number, "test_setup_code": ""}
    return {**row, "test_list": ["assert f() == 1"], "challenge_test_list": [], **fields}


def test_mbpp_splits_and_shots(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [mbpp_row(n) for n in (2, 3, 4, 10, 11, 510, 511, 600, 601, 974)])
    counts = {split: len(Mbpp(path=path, split=split).samples()) for split in ("prompt", "test", "validation", "train")}
    assert counts == {"prompt": 4, "test": 2, "validation": 2, "train": 2}
    assert len(Mbpp(path=path).samples()) == 10
    assert any("published results use" in note for note in Mbpp(path=path).provenance()["notes"])
    shown = Mbpp(path=path, split="test", style="lm_eval").samples()[0].text
    assert shown is not None
    assert [shown.count(f"Task {n}.") for n in (2, 3, 4, 11)] == [1, 1, 1, 1]
    turns = Mbpp(path=path, split="test", style="opencompass").samples()[0]
    assert [message.role for message in turns.messages] == ["user", "assistant"] * 3 + ["user"]
    assert turns.prefill == "[BEGIN]\n"
    few = write(tmp_path / "few.jsonl", [mbpp_row(11)])
    with pytest.raises(ValueError, match=r"task_id \[2, 3, 4\], which the data lacks"):
        Mbpp(path=few, style="lm_eval").samples()
    with pytest.raises(ValueError, match="test_list must be a list of strings"):
        Mbpp(path=write(tmp_path / "bad.jsonl", [mbpp_row(11, test_list="no list")])).samples()


@pytest.mark.parametrize(
    "text",
    [
        "[BEGIN]\ndef f():\n    return 1\n[DONE]\n[BEGIN]\nx",
        "def f():\n    return 1\n[DONE]",
        " 'def f():\n    return 1' \n[DONE] \n\n ",
        "```python\ndef f():\n    return 1\n```",
        "Your code:\n[BEGIN]\n```python\ndef f():\n    return 1\n```\n[DONE]",
        "def f():\r\n    return 1\r\n[DONE]",
    ],
)
def test_mbpp_answers_in_brackets_quotes_and_fences(text: str) -> None:
    program = program_in(text, ["f"])
    assert program is not None
    space: dict[str, Any] = {}
    exec(program, space)
    assert space["f"]() == 1


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("1\n", "1", True),
        ("  1  \n\n", "1\n", True),
        ("1 \n 2", "1\n2", True),
        ("1\n\n2", "1\n2", False),
        ("1 2", "1\n2", False),
        ("1  2", "1 2", True),
        ("a  b", "a b", False),
        ("1.50", "1.5", True),
        ("1e3", "1000", True),
        ("0.1000000001", "0.1", False),
        ("50000000000000000", "50000000000000001", False),
        ("yes", "YES", False),
        ("", "", True),
        ("", "1", False),
        ("1 a", "1.0 a", False),
        ("1\r\n2\r\n", "1\n2", True),
    ],
)
def test_livecodebench_compares_output_as_its_checker_does(got: str, expected: str, same: bool) -> None:
    assert (difference_of_output(got, expected) is None) == same


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ([1, 2], "[1, 2]", True),
        ((1, 2), "[1, 2]", True),
        ([(1, 2)], "[[1, 2]]", False),
        (1.0, "1", True),
        (True, "true", True),
        (None, "null", True),
        ("a", '"a"', True),
        ("1", "1", False),
        (0.1 + 0.2, "0.3", False),
        (Opaque("deque"), "[1]", False),
    ],
)
def test_livecodebench_compares_values_as_its_checker_does(got: Any, expected: str, same: bool) -> None:
    assert (difference_of_values(got, expected) is None) == same


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_private_tests_are_unpacked_without_running_anything() -> None:
    cases = [{"input": "1", "output": "2", "testtype": "stdin"}]
    assert read_cases(json.dumps(cases)) == read_cases(packed(json.dumps(cases)))

    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("run",))

    for text in (packed(Evil()), packed(json.dumps), packed(5), "!", "[1]", '[{"input": "1"}]', ""):
        with pytest.raises(ValueError, match="test cases must be"):
            read_cases(text)


def test_livecodebench_label_dates_and_private_tests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = LiveCodeBench(source="sample")
    assert task.provenance()["label"] is None
    sample = task.samples()[0]
    cheat = "```python\nprint('pear')\n```"
    assert task.score(sample, Answer(cheat)).outcome == "wrong"
    public = LiveCodeBench(source="sample", tests="public")
    score = public.score(public.samples()[0], Answer(cheat))
    assert (score.outcome, score.metrics) == ("right", {"public-only": 1.0})
    assert score.explanation == "public-only: all 1 tests passed"
    assert public.provenance()["label"] == "public-only"
    assert public.run_notes([score]) == ["public-only: 1 problems were judged by their public tests alone"]
    assert task.run_notes([task.score(sample, Answer(cheat))]) == []
    dates = [s.reference["date"][:10] for s in LiveCodeBench(source="sample", start="2025-02-01").samples()]
    assert dates == ["2025-02-01", "2025-03-15"]
    assert len(LiveCodeBench(source="sample", start="2025-02-01", end="2025-02-01").samples()) == 1
    with pytest.raises(ValueError, match="no problem between 2030-01-01 and now"):
        LiveCodeBench(source="sample", start="2030-01-01").samples()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("```python\nn = int(input())\nprint(n / 2)\nexit()\n```", "right"),
        ("```python\nimport sys\nprint(int(sys.stdin.buffer.read()) / 2)\nsys.exit(0)\n```", "right"),
        ("```python\nprint(Fraction(input()) / 2 if False else Decimal(input()) / 2)\n```", "crashed"),
        ("```python\nfrom __future__ import annotations\nprint(int(input()) / 2)\n```", "right"),
        ("```python\ndef main():\n    print(int(input()) / 2)\nif __name__ == '__main__':\n    main()\n```", "right"),
        ("```python\nimport threading\nthreading.Thread(target=lambda: print(int(input()) / 2)).start()\n```", "right"),
        ("```python\nprint(sqrt(int(input()) ** 2) / 2)\n```", "wrong"),
        ("```python\nprint(int(input()) // 2)\n```", "wrong"),
        ("```python\nprint(int(input()) / 2)\nraise ValueError\n```", "crashed"),
        ("```python\nwhile True: pass\n```", "timeout"),
        ("print(int(input()) / 2)", "right"),
    ],
)
def test_livecodebench_programs_that_read_and_print(answer: str, outcome: str) -> None:
    task = LiveCodeBench(source="sample", timeout_s=1)
    score = task.score(task.samples()[1], Answer(answer))
    assert score.outcome == outcome, score


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("return sum(a + b == target for a, b in combinations(nums, 2))", "right"),
        ("return float(sum(a + b == target for a, b in combinations(nums, 2)))", "right"),
        ("print('noise'); return sum(a + b == target for a, b in itertools.combinations(nums, 2))", "right"),
        ("return None", "wrong"),
        ("return deque([2])", "wrong"),
        ("return type('E', (), {'__eq__': lambda *a: True})()", "wrong"),
        ("return type('I', (int,), {'__eq__': lambda *a: True})(7)", "wrong"),
        ("return nums.no", "crashed"),
    ],
)
def test_livecodebench_methods(body: str, outcome: str) -> None:
    task = LiveCodeBench(source="sample")
    code = f"class Solution:\n    def countPairs(self, nums: List[int], target: int) -> int:\n        {body}\n"
    score = task.score(task.samples()[2], Answer(f"```python\n{code}```"))
    assert score.outcome == outcome, score


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[ANSWER]\nassert f(1) == [1, 2]\n[/ANSWER]", "[1, 2]"),
        ("assert f(1) == [1, 2]", "[1, 2]"),
        ("assert f(1) == [1, 2]\n[/ANSWER]\nmore", "[1, 2]"),
        ("f(1) == [1, 2]", "[1, 2]"),
        ("[1, 2]", "[1, 2]"),
        ("== [1, 2]", "[1, 2]"),
        ("assert [1, 2] == f(1)", "[1, 2]"),
        ("assert f(1) == 'a == b'", "'a == b'"),
        ("assert f(1) == 'a'  # because", "'a'"),
        ("```python\nassert f(1) == [1, 2]\n```", "[1, 2]"),
        ("So `assert f(1) == [1, 2]`.", "[1, 2]"),
        ("First f(1) == 2? No.\n[THOUGHT]x[/THOUGHT]\n[ANSWER]\nassert f(1) == 3\n[/ANSWER]", "3"),
        ("assert f(1) == 2 is tempting.\nassert f(1) == 3", "3"),
        ("The output is `'xyz'`.", "'xyz'"),
        ("**Output:** {'a': 1}", "{'a': 1}"),
        ("assert f(1) == [\n    1,\n    2,\n]", "[\n    1,\n    2,\n]"),
        ("assert f(1) == 3<|eot_id|>", "3"),
        ("I do not know", None),
        ("Done.", None),
    ],
)
def test_cruxeval_finds_the_value(text: str, value: str | None) -> None:
    assert find_value(text) == value


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("[ANSWER]\nassert f('a', 2) == 'aa'\n[/ANSWER]", "f('a', 2)"),
        ("assert f('a', 2) == 'aa'", "f('a', 2)"),
        ("f('a', 2)", "f('a', 2)"),
        ("'a', 2", "f('a', 2)"),
        ("x='a', n=2", "f(x='a', n=2)"),
        ("assert 'aa' == f('a', 2)", "f('a', 2)"),
        ("```python\nassert f('(', 2) == '(('\n```", "f('(', 2)"),
        ("no idea at all", None),
    ],
)
def test_cruxeval_finds_the_call(text: str, call: str | None) -> None:
    assert find_call(text) == call


@pytest.mark.parametrize(
    ("predict", "answer", "outcome"),
    [
        ("output", "assert f('lantern', 3) == 'n-ter-lan'", "right"),
        ("output", "assert f('lantern', 3) == '-'.join(['n', 'ter', 'lan'])", "right"),
        ("output", "assert f('lantern', 3) == f('lantern', 3)", "wrong"),
        ("output", "assert f('lantern', 3) == 'n-ter'", "wrong"),
        ("output", "assert f('lantern', 3) == lantern", "wrong"),
        ("output", "assert f(1) == type('E', (), {'__eq__': lambda *a: True})()", "wrong"),
        ("output", "assert f(1) == exit()", "crashed"),
        ("input", "assert f('lantern', 3) == 'n-ter-lan'", "right"),
        ("input", "assert f('nterlan', 9) == 'n-ter-lan'", "wrong"),
        ("input", "assert f('n-ter-lan', 99) == 'n-ter-lan'", "right"),
        ("input", "assert f() == 'n-ter-lan'", "wrong"),
        ("input", "assert f([], 1) == 'n-ter-lan'", "wrong"),
        ("input", "assert f('a' * 10 ** 9, 1) == 'n-ter-lan'", "crashed"),
        ("input", "assert f('x', __import__('os')._exit(0)) == 'n-ter-lan'", "crashed"),
    ],
)
def test_cruxeval_outcomes(predict: str, answer: str, outcome: str) -> None:
    task = CruxEval(predict, source="sample")
    score = task.score(task.samples()[0], Answer(answer))
    assert score.outcome == outcome, score
    assert score.explanation


def test_values_come_out_of_the_sandbox_as_they_are() -> None:
    from evals.sandbox import run_program

    for value in (1, -(2**80), 0.5, "é\n", b"x", None, True, [1, (2, {3})], {"a": [1], 2: None}, 1j, frozenset({1}), ""):
        result = run_program(f"x = {value!r}", tests=report("x"))
        assert reported(result.stdout) == (True, value)
    source = "import collections\nx = [collections.deque([1]), object, float('inf')]"
    there, value = reported(run_program(source, tests=report("x")).stdout)
    assert there
    assert [repr(value[0]), repr(value[1]), value[2]] == ["<deque object>", "<type object>", float("inf")]
    assert reported("nothing") == (False, None)
    assert reported("\x1evalue {\n") == (False, None)
