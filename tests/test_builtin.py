"""The procedural tasks: splits that cannot meet, references that are right, scorers that notice what is wrong."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from evals.builtin import Builtin, BuiltinCode, BuiltinInstruct, BuiltinLists, BuiltinMath, BuiltinOutput
from evals.builtin.base import BuiltinTask
from evals.builtin.instance import SPLITS, split_of
from evals.builtin.lists import KINDS as LIST_KINDS
from evals.builtin.mix import PARTS
from evals.task import OUTCOMES, Answer, Sample, Task

TASKS = (*PARTS, Builtin)


def by_kind(task: BuiltinTask) -> dict[str, Sample]:
    """One sample of each kind."""
    return {sample.reference["kind"]: sample for sample in task.samples()}


def verdict(task: BuiltinTask, sample: Sample, text: str, **answer: Any) -> tuple[float, str]:
    score = task.score(sample, Answer(text, **answer))
    assert score.outcome in OUTCOMES
    return score.value, score.outcome


@pytest.mark.parametrize("cls", TASKS)
def test_it_is_a_task(cls: type[BuiltinTask]) -> None:
    task = cls(size=25)
    assert isinstance(task, Task)
    samples = task.samples()
    assert len(samples) == 25 == len({sample.id for sample in samples})
    assert samples == cls(size=25).samples()
    assert samples != cls(size=25, seed=1).samples()
    for sample in samples:
        assert json.loads(json.dumps(sample.reference)) == sample.reference
    assert task.provenance()["rows"] == 25


@pytest.mark.parametrize("cls", TASKS)
def test_the_first_samples_do_not_depend_on_the_size(cls: type[BuiltinTask]) -> None:
    prompts = [sample.messages for sample in cls(size=40).samples()]
    assert [sample.messages for sample in cls(size=20).samples()] == prompts[:20]


@pytest.mark.parametrize("cls", PARTS)
def test_no_question_of_the_whole_test_set_is_in_the_training_stream(cls: type[BuiltinTask]) -> None:
    """The split is a function of the content, so this holds for every seed and length; seen here on a long stream."""
    found = {"test": list(cls().instances(cls().size)), "validation": list(cls("validation").instances(100))}
    found["train"] = list(islice(cls("train", seed=1).instances(), 2000))
    assert set(found) == set(SPLITS)
    for split, instances in found.items():
        assert {split_of(instance.key) for instance in instances} == {split}
    for split, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
        assert not {i.key for i in found[split]} & {i.key for i in found[other]}
        assert not {i.prompt for i in found[split]} & {i.prompt for i in found[other]}


@pytest.mark.parametrize("cls", PARTS)
def test_the_key_leaves_out_what_is_only_dressing(cls: type[BuiltinTask]) -> None:
    """Many prompts, fewer keys: names of people, functions and variables make no new question."""
    instances = list(islice(cls("train").instances(), 3000))
    if cls in (BuiltinMath, BuiltinCode):
        assert len({i.key for i in instances}) < len({i.prompt for i in instances})
    by_prompt: dict[str, set[str]] = {}
    for instance in instances:
        by_prompt.setdefault(instance.prompt, set()).add(instance.key)
    assert all(len(keys) == 1 for keys in by_prompt.values())


@pytest.mark.parametrize("cls", PARTS)
def test_kinds_have_equal_shares_and_distinct_prompts(cls: type[BuiltinTask]) -> None:
    task = cls()
    samples = task.samples()
    assert len({sample.messages for sample in samples}) == 300
    shares = [sum(sample.reference["kind"] == kind for sample in samples) for kind in task.kinds]
    assert max(shares) - min(shares) <= 1


def test_the_mix_has_equal_shares_and_judges_like_its_parts() -> None:
    task = Builtin(size=50)
    samples = task.samples()
    names = [sample.reference["task"] for sample in samples]
    assert {names.count(part().name) for part in PARTS} == {10}
    targets = [instance.target for instance in task.instances(50)]
    scores = [task.score(sample, Answer(target)) for sample, target in zip(samples, targets, strict=True)]
    assert all(score.value == 1.0 for score in scores)
    assert scores[0].metrics["builtin_math"] == 1.0


@pytest.mark.parametrize("cls", [part for part in PARTS if part is not BuiltinCode])
def test_every_target_is_right_and_a_damaged_one_is_not(cls: type[BuiltinTask]) -> None:
    task = cls(size=200)
    for instance, sample in zip(task.instances(200), task.samples(), strict=True):
        assert sample.messages[0].content == instance.prompt
        assert verdict(task, sample, instance.target) == (1.0, "right"), instance
        assert verdict(task, sample, f"{instance.target} ", finish="length") == (1.0, "right")
    assert verdict(task, task.samples()[0], "", finish="length") == (0.0, "empty")
    assert verdict(task, task.samples()[0], "x", has_mask=True) == (0.0, "mask")


def test_code_targets_pass_their_tests_and_mixed_styles_do_not() -> None:
    task = BuiltinCode(size=12)
    for instance, sample in zip(task.instances(12), task.samples(), strict=True):
        assert verdict(task, sample, instance.target) == (1.0, "right"), instance
        assert verdict(task, sample, instance.target.strip())[0] == 1.0
    sample = by_kind(task)["list"]
    for broken in ("    out = []\n    for x in n:\n        res.append(x)\n    return out", "    return = (x", "    pass"):
        assert verdict(task, sample, broken) == (0.0, "wrong")
    whole = sample.reference["prompt"] + "    while True: pass\n"
    assert verdict(task, sample, whole) == (0.0, "timeout")


def test_code_has_many_right_answers() -> None:
    """Styles and names are free: the same question has several targets, which is what careless decoding mixes up."""
    targets: dict[str, set[str]] = {}
    for instance in islice(BuiltinCode("train").instances(), 3000):
        targets.setdefault(instance.key, set()).add(instance.target)
    assert max(len(found) for found in targets.values()) >= 5


def test_math_reads_the_number_after_the_last_mark() -> None:
    task = BuiltinMath(size=3)
    sample = task.samples()[0]
    right = sample.reference["answer"]
    assert verdict(task, sample, f"#### 1\nSo.\n#### {right}") == (1.0, "right")
    assert verdict(task, sample, f"#### {right}\n#### {right + 1}") == (0.0, "wrong")
    assert verdict(task, sample, str(right)) == (0.0, "no_answer")
    assert verdict(task, sample, "So 1+", finish="length") == (0.0, "truncated")


def test_math_equations_are_true_and_as_many_as_the_kind_says() -> None:
    for instance in islice(BuiltinMath("train").instances(), 600):
        equations = [line.split(" ")[1].rstrip(".") for line in instance.target.splitlines()[:-1]]
        assert len(equations) == {"one": 1, "two": 2, "three": 3}[instance.kind]
        for equation in equations:
            left, result = equation.split("=")
            assert eval(left) == int(result)
        assert instance.target.endswith(f"#### {int(equations[-1].split('=')[1])}")


def test_output_accepts_the_assertion_form_and_compares_values() -> None:
    task = BuiltinOutput(size=8)
    sample = by_kind(task)["string_one"]
    value = sample.reference["value"]
    assert verdict(task, sample, f"assert {sample.reference['call']} == {value}") == (1.0, "right")
    assert verdict(task, sample, value.replace("'", '"')) == (1.0, "right")
    assert verdict(task, sample, "'nothing like it'") == (0.0, "wrong")
    assert verdict(task, sample, "'unfinished") == (0.0, "no_answer")


def test_output_references_are_what_python_says() -> None:
    for instance in islice(BuiltinOutput("train", seed=4).instances(), 400):
        source, call = instance.prompt.rsplit("\n", 1)
        space: dict[str, Any] = {}
        exec(source, space)
        assert repr(eval(call.removeprefix("assert ").removesuffix(" == ?"), space)) == instance.target


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("different", "cat, cat, cat"),
        ("alternate", "cat cat cat"),
        ("repeat", "tree"),
        ("words", "The the fox."),
        ("include", "The fox sees the house."),
        ("ends", "The house sees."),
        ("quoted", "The fox sees the house."),
        ("sentences", "The fox sees."),
    ],
)
def test_instructions_have_teeth(kind: str, wrong: str) -> None:
    task = BuiltinInstruct(size=16)
    score = task.score(by_kind(task)[kind], Answer(wrong))
    assert score.value == 0.0
    assert "breaks" in score.explanation


def test_a_stutter_is_wrong_even_when_every_rule_is_kept() -> None:
    task = BuiltinInstruct(size=16)
    sample = by_kind(task)["include"]
    words = sample.reference["rule"]["include"]
    assert verdict(task, sample, f"The {' '.join(words)} sees it.") == (1.0, "right")
    assert task.score(sample, Answer(f"The the {' '.join(words)} sees it.")).explanation == "breaks stutter"


@pytest.mark.parametrize("kind", LIST_KINDS)
def test_lists_accept_exactly_the_right_answers(kind: str) -> None:
    task = BuiltinLists(size=20)
    sample = by_kind(task)[kind]
    items, word, index = (sample.reference[name] for name in ("items", "word", "index"))
    free = {
        "shuffle": [items[1:] + items[:1], items[::-1]],
        "replace_random": [[word, *items[1:]], [*items[:-1], word]],
        "insert_random": [[word, *items], [*items, word]],
        "remove_random": [items[1:], items[:-1]],
        "replace_index": [[*items[:index], word, *items[index + 1 :]]],
        "insert_index": [[*items[:index], word, *items[index:]]],
        "remove_index": [[*items[:index], *items[index + 1 :]]],
        "copy": [items],
        "reverse": [items[::-1]],
        "sort": [sorted(items)],
    }[kind]
    for right in free:
        assert verdict(task, sample, json.dumps(right)) == (1.0, "right")
        assert verdict(task, sample, f"So: [{', '.join(right)}]")[0] == 1.0
        assert task.score(sample, Answer(f"So: {json.dumps(right)}")).metrics == {"strict": 0.0}
    for wrong in ([word, word, *items], [items[0]] * len(items), [*items, items[0]]):
        assert verdict(task, sample, json.dumps(wrong)) == (0.0, "wrong")
    assert verdict(task, sample, "no list") == (0.0, "no_answer")
    if kind != "copy":
        assert verdict(task, sample, json.dumps(items))[0] == float(items in free)


def test_configuration_errors_name_the_field() -> None:
    with pytest.raises(ValueError, match=r"split must be one of .* got 'dev'"):
        BuiltinMath(split="dev")
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        Builtin(size=0)
    with pytest.raises(ValueError, match="size asks for more builtin_instruct"):
        BuiltinInstruct(split="validation", size=5000).samples()
