"""The code benchmarks against an installed lm-eval: the same prompts and stop strings, verdicts equal or explained."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evals.cruxeval import CruxEval
from evals.humaneval import HumanEval
from evals.mbpp import Mbpp
from evals.task import Answer, Sample

lm_eval = pytest.importorskip("lm_eval", reason="compares with lm-eval: pip install 'dinfer[lm-eval]'")
TASKS = Path(lm_eval.__file__).parent / "tasks"


def config(file: str) -> dict[str, Any]:
    """A task file with those it includes, without the functions it names."""
    import yaml

    text = (TASKS / file).read_text(encoding="utf-8")
    found = yaml.safe_load("\n".join(line for line in text.split("\n") if "!function" not in line))
    included = found.pop("include", None)
    return {**config(f"{Path(file).parent}/{included}"), **found} if included else found


def render(template: str, row: dict[str, Any]) -> str:
    from lm_eval.utils import apply_template

    return apply_template(template, row)


def examples(file: str, function: str) -> list[dict[str, Any]]:
    for node in ast.parse((TASKS / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.literal_eval(next(item.value for item in node.body if isinstance(item, ast.Return)))
    raise AssertionError(function)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def shown(sample: Sample) -> str:
    return sample.text if sample.text is not None else sample.messages[-1].content


def test_humaneval_prompts(shared: Path) -> None:
    path = shared / "data/humaneval/test.jsonl"
    base, chat = config("humaneval/humaneval.yaml"), config("humaneval/humaneval_instruct.yaml")
    plain = HumanEval(path=str(path), style="lm_eval")
    instruct = HumanEval(path=str(path), style="lm_eval_instruct")
    for row, ours, theirs in zip(rows(path), plain.samples(), instruct.samples(), strict=True):
        assert ours.text == render(base["doc_to_text"], row)
        assert shown(theirs) == render(chat["doc_to_text"], row)
        assert theirs.prefill == render(chat["gen_prefix"], row)
    assert list(plain.stop) == base["generation_kwargs"]["until"]
    assert list(instruct.stop) == chat["generation_kwargs"]["until"]


def test_mbpp_prompts(shared: Path) -> None:
    path = shared / "data/mbpp/full.jsonl"
    base, chat = config("mbpp/mbpp.yaml"), config("mbpp/mbpp_instruct.yaml")
    shots = examples("mbpp/utils.py", "list_fewshot_samples")
    test = [row for row in rows(path) if 11 <= row["task_id"] <= 510]
    assert len(test) == 500

    def expected(task: dict[str, Any], row: dict[str, Any], prefix: str) -> str:
        text = "".join(
            f"{render(task['doc_to_text'], shot)}{prefix}{render(task['doc_to_target'], shot)}\n\n" for shot in shots
        )
        return text + render(task["doc_to_text"], row)

    plain = Mbpp(path=str(path), split="test", style="lm_eval")
    for row, sample in list(zip(test, plain.samples(), strict=True))[::25]:
        assert sample.text == expected(base, row, "")
    instruct = Mbpp(path=str(path), split="test", style="lm_eval_instruct")
    for row, sample in list(zip(test, instruct.samples(), strict=True))[::25]:
        assert shown(sample) == expected(chat, row, chat["gen_prefix"])
        assert sample.prefill == chat["gen_prefix"]
    assert list(plain.stop) == base["generation_kwargs"]["until"]


@pytest.mark.parametrize("predict", ["output", "input"])
@pytest.mark.parametrize("kind", ["", "_cot"])
def test_cruxeval_prompts(shared: Path, predict: str, kind: str) -> None:
    path = shared / "data/cruxeval/test.jsonl"
    from lm_eval.api.task import ConfigurableTask

    theirs = config(f"cruxeval/cruxeval_{predict}{kind}.yaml")
    theirs |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"test": str(path)}}}
    shots = 0 if kind else 2
    if shots:
        found = examples("cruxeval/utils.py", f"list_fewshot_samples_{predict}")
        theirs["fewshot_config"] = {"sampler": "first_n", "samples": found}
    for metric in ("metric_list", "filter_list"):
        theirs.pop(metric, None)
    task = ConfigurableTask(config=theirs)
    ours = CruxEval(predict, path=str(path), style=f"lm_eval{kind}").samples()
    for row, sample in list(zip(task.test_docs(), ours, strict=True))[::40]:
        assert sample.text == task.fewshot_context(row, shots)


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lm_eval_cruxeval", TASKS / "cruxeval" / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def passes(program: str) -> bool:
    try:
        exec(program, {})
    except Exception:
        return False
    return True


@pytest.mark.parametrize("predict", ["output", "input"])
def test_cruxeval_verdicts(shared: Path, predict: str, checker: ModuleType) -> None:
    path = shared / "data/cruxeval/test.jsonl"
    table, task = rows(path)[:60], CruxEval(predict, path=str(path))
    extract = checker.extract_code_output if predict == "output" else checker.extract_code_input
    differing = 0
    for number, (row, sample) in enumerate(zip(table, task.samples()[:60], strict=True)):
        other = table[(number + 1) % len(table)]
        given = {"output": (row["input"], other["output"]), "input": (other["input"], row["output"])}[predict]
        right = f"assert f({row['input']}) == {row['output']}\n"
        for text, thinks in (
            (right, False),
            (f"assert f({given[0]}) == {given[1]}\n", False),
            (f"So it is.\n[/THOUGHT]\n[ANSWER]\n{right}", True),
        ):
            ours = task.score(sample, Answer(text, "stop")).value == 1.0
            theirs = passes(extract(row, text, thinks))
            if ours != theirs:
                differing += 1
                assert ours, (sample.id, text)
                assert right in text
                known = row["output"] if predict == "output" else row["input"]
                assert any(mark in known for mark in ("'", '"', "#", "==", "\\n")), known
    assert differing > 0
