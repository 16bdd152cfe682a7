"""GSM8K: prompts of every style, verdicts of both filters, outcomes, and equality with lm-eval on the same answers."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest

from evals.gsm8k import METRICS, Gsm8k
from evals.gsm8k_styles import STYLES
from evals.task import OUTCOMES, Answer, Sample, Score, Task

HAS_LM_EVAL = importlib.util.find_spec("lm_eval") is not None


def sample(answer: str = "18") -> Sample:
    return Sample("q", reference={"answer": answer, "solution": f"9 * 2 = <<9*2=18>>18\n#### {answer}"})


def judge(text: str, answer: str = "18", finish: str = "eos", has_mask: bool = False, **fields: Any) -> Score:
    return Gsm8k(**fields).score(sample(answer), Answer(text, finish, has_mask))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("She makes $18.", "18"),
        ("#### 18", "18"),
        ("The answer is 18.", "18"),
        ("The answer is 18", "18"),
        (r"\boxed{18}", "18"),
        ("18.0", "18"),
        ("It costs $1,234.50", "1234.50"),
        (r"It costs \$1,234.50.", "1234.5"),
        ("so -5 degrees", "-5"),
        ("20%", "20"),
        ("18<|eot_id|><|endoftext|>", "18"),
        ("a\x00b 18\x00", "18"),
    ],
)
def test_answers_as_models_write_them_are_right(text: str, answer: str) -> None:
    verdict = judge(text, answer)
    assert (verdict.value, verdict.outcome) == (1.0, "right")
    assert verdict.metrics["flexible"] == 1.0


@pytest.mark.parametrize(
    ("text", "finish", "mask", "outcome"),
    [
        ("", "eos", False, "empty"),
        (" \n", "length", False, "empty"),
        ("<|endoftext|>", "eos", False, "empty"),
        ("#### 18", "eos", True, "mask"),
        ("no idea", "eos", False, "no_answer"),
        ("no idea", "length", False, "truncated"),
        ("9 eggs times 2 makes", "length", False, "truncated"),
        ("#### 17", "length", False, "wrong"),
        ("#### 17", "eos", False, "wrong"),
        ("she has 17", "stop", False, "wrong"),
        ("#### 18", "length", False, "right"),
    ],
)
def test_outcomes(text: str, finish: str, mask: bool, outcome: str) -> None:
    verdict = judge(text, finish=finish, has_mask=mask)
    assert verdict.outcome == outcome
    assert verdict.outcome in OUTCOMES
    assert verdict.value == float(outcome == "right")
    assert verdict.explanation
    assert set(verdict.metrics) == {*METRICS, "strict_found"}


def test_the_metric_field_says_what_counts() -> None:
    text = "The answer is 18. That leaves 3 eggs."
    assert judge(text, metric="flexible", style="opencompass").value == 0.0
    assert judge(text, metric="strict", style="opencompass").value == 1.0
    assert judge(text, metric="stated").value == 1.0
    assert judge(text, metric="strict", style="lm_eval").outcome == "no_answer"
    assert judge(text).metrics == {"strict": 0.0, "flexible": 0.0, "stated": 1.0, "strict_found": 0.0}
    assert "expected 18" in judge(text).explanation


def test_a_filter_that_never_matched_is_reported() -> None:
    task = Gsm8k(style="lm_eval")
    never = [task.score(sample(), Answer("The answer is 18."))] * 3
    (note,) = task.run_notes(never)
    assert "strict filter matched 0 of 3" in note
    assert task.run_notes([*never, task.score(sample(), Answer("#### 17"))]) == []
    assert task.run_notes([]) == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("layout", [None, "text", "chat", "turns"])
def test_samples_of_the_package_in_every_style_and_layout(style: str, layout: str | None) -> None:
    task = Gsm8k(source="sample", style=style, layout=layout)
    assert isinstance(task, Task)
    samples = task.samples()
    assert len({s.id for s in samples}) == len(samples) >= 4
    for s in samples:
        assert (s.text is None) != (s.messages == ())
        assert json.loads(json.dumps(s.reference)) == dict(s.reference)
        verdict = task.score(s, Answer(task.reference_answer(s) or ""))
        assert verdict.metrics == {"strict": 1.0, "flexible": 1.0, "stated": 1.0, "strict_found": 1.0}
    last = samples[0].text or samples[0].messages[-1].content
    assert "A baker fills 6 trays" in last
    assert samples == task.samples()
    shown = last.count("Question:") + last.count("Q:") + len(samples[0].messages) // 2 - 1
    if style != "opencompass_boxed":
        assert shown == STYLES[style].shots


def test_shots_replace_the_style() -> None:
    two = Gsm8k(source="sample", style="llada_instruct", shots=2).samples()[0]
    assert [m.role for m in two.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert two.messages[1].content == "She needs 144 / 12 = 12 boxes.\nThe answer is 12\n"
    none = Gsm8k(source="sample", style="lm_eval", shots=0)
    assert none.samples()[0].text == (
        "Question: A baker fills 6 trays with 12 rolls each and sells 50 rolls before noon. How many rolls are left?\nAnswer:"
    )
    assert none.provenance()["shots"] is None
    with pytest.raises(ValueError, match="shots must be at most 8"):
        Gsm8k(source="sample", style="opencompass", shots=9).samples()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"style": "nope"}, "style must be one of lm_eval, .*got 'nope'"),
        ({"metric": "exact"}, "metric must be one of flexible, strict, stated, got 'exact'"),
        ({"layout": "xml"}, "layout must be one of text, chat, turns, got 'xml'"),
        ({"split": "dev"}, "split must be one of test, train, got 'dev'"),
        ({"source": "web"}, "source must be one of hub, sample, got 'web'"),
        ({"shots": -1}, r"shots must lie in \[0, 64\], got -1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"extra_stop": "abc"}, "extra_stop must be a list of non-empty strings, got 'abc'"),
    ],
)
def test_fields_are_checked_before_anything_is_read(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gsm8k(**fields)


def test_stop_strings_follow_the_style() -> None:
    assert Gsm8k(style="dream_base").stop == ("Q:", "</s>", "<|im_end|>")
    assert Gsm8k(style="opencompass_boxed", extra_stop=["\n\n\n"]).stop == ("\n\n\n",)


@pytest.mark.parametrize("answer", ["no mark", "#### many", 18, None])
def test_a_row_without_a_number_is_named(tmp_path: Path, answer: Any) -> None:
    good = json.dumps({"question": "q", "answer": "#### 1"})
    path = tmp_path / "rows.jsonl"
    path.write_text(good + "\n" + json.dumps({"question": "q", "answer": answer}) + "\n")
    with pytest.raises(ValueError, match=r"gsm8k row 1: .*answer"):
        Gsm8k(path=str(path)).samples()


def test_examples_that_cannot_be_had_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "q", "answer": "#### 1"}) + "\n")
    with pytest.raises(ValueError, match=r"task\.train_path=FILE or task\.shots=0"):
        Gsm8k(path=str(path), style="opencompass", train_path=str(tmp_path / "absent")).samples()
    with pytest.raises(ValueError, match="lack the example that begins 'Angelo"):
        Gsm8k(path=str(path), style="opencompass", train_path=str(path)).samples()
    own = Gsm8k(path=str(path), style="lm_eval_cot", train_path=str(path), shots=1).samples()[0]
    assert own.text == "Q: q\nA: The answer is 1.\n\nQ: q\nA:"


@pytest.mark.parametrize("style", ["lm_eval", "opencompass", "opencompass_boxed"])
def test_the_published_rows_and_their_reference_answers(style: str, shared: Path) -> None:
    task = Gsm8k(
        path=str(shared / "data" / "gsm8k/test.jsonl"), train_path=str(shared / "data" / "gsm8k/train.jsonl.gz"), style=style
    )
    samples = task.samples()
    provenance = task.provenance()
    assert len(samples) == 1319
    assert provenance["notes"] == []
    assert provenance["file_sha256"] == "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
    verdicts = [task.score(s, Answer(task.reference_answer(s) or "")) for s in samples]
    assert sum(v.value for v in verdicts) == 1319
    assert sum(v.metrics["strict"] for v in verdicts) == 1319


def test_opencompass_examples_are_the_published_ones(shared: Path) -> None:
    task = Gsm8k(
        path=str(shared / "data" / "gsm8k/test.jsonl"),
        train_path=str(shared / "data" / "gsm8k/train.jsonl.gz"),
        style="llada_instruct",
    )
    messages = task.samples()[0].messages
    assert len(messages) == 9
    assert [m.content.split()[-1] for m in messages[1::2]] == ["4", "201", "140", "146"]
    assert "2/5*60 = 24\n" in messages[5].content
    assert "<<" not in "".join(m.content for m in messages)


def responses(shared: Path) -> list[tuple[dict[str, str], str]]:
    """Rows and answers to them: right and wrong ones in the forms that models use, with every filter's mark."""
    rng = random.Random(0)
    rows = [json.loads(line) for line in (shared / "data" / "gsm8k/test.jsonl").read_text(encoding="utf-8").splitlines()]
    forms = (
        "{work}\n#### {n}",
        "{work}\n#### {n}.",
        "{work} The answer is {n}.",
        "{work} The answer is {n}.\nI am sure.",
        "She has ${n}.",
        "In all {n} apples",
        "**{n}**",
        r"So \boxed{{{n}}}",
        "{work}\n#### {n}\nThat leaves 3.",
        "I do not know.",
        "",
    )
    out = []
    for index, row in enumerate(rows[:660]):
        work, _, number = row["answer"].rpartition("\n#### ")
        wrong = str(int(number.replace(",", "")) + rng.choice((1, 10, -7)))
        given = rng.choice((number, number, wrong))
        out.append((row, forms[index % len(forms)].format(work=work, n=given)))
    return out


@pytest.mark.skipif(not HAS_LM_EVAL, reason="lm-eval is not installed (pip install 'dinfer[lm-eval]')")
@pytest.mark.parametrize(("style", "file"), [("lm_eval", "gsm8k.yaml"), ("lm_eval_cot", "gsm8k-cot.yaml")])
def test_verdicts_equal_those_of_lm_eval(style: str, file: str, shared: Path) -> None:
    from tests import lm_eval_verdicts as lm

    task = Gsm8k(style=style)
    judge_of_lm_eval = lm.gsm8k_task(file, str(shared / "data" / "gsm8k/test.jsonl"), None)
    differ = []
    for row, text in responses(shared):
        gold = row["answer"].rpartition("#### ")[2]
        ours = task.score(Sample("q", reference={"answer": gold}), Answer(text)).metrics
        theirs = lm.gsm8k(judge_of_lm_eval, row, text)
        differ += [(text[-40:], k, ours[k], theirs[k]) for k in ("strict", "flexible") if ours[k] != theirs[k]]
    assert differ == []


@pytest.mark.skipif(not HAS_LM_EVAL, reason="lm-eval is not installed (pip install 'dinfer[lm-eval]')")
@pytest.mark.parametrize(
    ("style", "file", "text", "metric", "ours", "theirs"),
    [
        ("lm_eval_cot", "gsm8k-cot.yaml", "The answer is 18", "strict", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "#### 18.0", "strict", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "She makes 18.00", "flexible", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "She makes 18...", "flexible", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "36/2", "flexible", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "a range of 3-18", "flexible", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "18<|reserved_token_1|>", "flexible", 1.0, 0.0),
        ("lm_eval", "gsm8k.yaml", "about 5/18", "flexible", 0.0, 1.0),
    ],
)
def test_the_known_differences_from_lm_eval(
    style: str, file: str, text: str, metric: str, ours: float, theirs: float, shared: Path
) -> None:
    from tests import lm_eval_verdicts as lm

    row = {"question": "q", "answer": "9 * 2 = 18\n#### 18"}
    assert Gsm8k(style=style).score(sample(), Answer(text)).metrics[metric] == ours
    assert lm.gsm8k(lm.gsm8k_task(file, str(shared / "data" / "gsm8k/test.jsonl"), None), row, text)[metric] == theirs


@pytest.mark.skipif(not HAS_LM_EVAL, reason="lm-eval is not installed (pip install 'dinfer[lm-eval]')")
@pytest.mark.parametrize(
    ("style", "file", "shots", "layout"),
    [
        ("lm_eval", "gsm8k.yaml", 5, "text"),
        ("lm_eval", "gsm8k.yaml", 3, "turns"),
        ("lm_eval_cot", "gsm8k-cot.yaml", 8, "text"),
        ("lm_eval_cot", "gsm8k-cot.yaml", 8, "chat"),
        ("dream_instruct", "gsm8k-cot.yaml", 0, "turns"),
        ("lm_eval_cot_zeroshot", "gsm8k-cot-zeroshot.yaml", 0, "text"),
    ],
)
def test_prompts_equal_those_of_lm_eval(style: str, file: str, shots: int, layout: str, shared: Path) -> None:
    from tests import lm_eval_verdicts as lm

    test, train = str(shared / "data" / "gsm8k/test.jsonl"), str(shared / "data" / "gsm8k/train.jsonl.gz")
    needs_train = style == "lm_eval"
    task = Gsm8k(path=test, train_path=train if needs_train else None, style=style, layout=layout, shots=shots)
    ours = [
        s.text if s.text is not None else [{"role": m.role, "content": m.content} for m in s.messages]
        for s in task.samples()[:40]
    ]
    assert ours == lm.gsm8k_prompts(lm.gsm8k_task(file, test, train), shots, layout, 40)
