"""The metrics folders open with `evaluate.load`, without a network and from another folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

evaluate = pytest.importorskip("evaluate")

METRICS = Path(__file__).resolve().parent.parent / "evals" / "metrics"


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`evaluate.load` of one of our folders, keeping what it writes in a folder of the tests."""
    folder = tmp_path_factory.mktemp("evaluate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.loading.init_dynamic_modules.__defaults__", ("metrics_under_test", folder / "modules"))
        patch.syspath_prepend(str(folder / "modules"))
        yield lambda name: evaluate.load(str(METRICS / name), cache_dir=str(folder / "cache"))


def test_every_metric_has_its_folder() -> None:
    folders = sorted(p.name for p in METRICS.iterdir() if p.is_dir() and not p.name.startswith("_"))
    assert folders == ["gsm8k", "ifeval", "pass_at_k"]
    assert all((METRICS / name / f"{name}.py").is_file() for name in folders)


def test_gsm8k(load: Any) -> None:
    metric = load("gsm8k")
    found = metric.compute(
        predictions=["#### 18", "it is $18.", "17", ""],
        references=["9 * 2 = <<9*2=18>>18\n#### 18", "18", "18", "18"],
    )
    assert found == {"flexible": 0.5, "strict": 0.25, "stated": 0.5, "strict_found": 0.25, "n": 4}
    boxed = metric.compute(predictions=[r"\boxed{18}"], references=["18"], mark="boxed")
    assert boxed["strict"] == 1.0
    with pytest.raises(ValueError, match="mark must be one of"):
        metric.compute(predictions=["18"], references=["18"], mark="x")


def test_ifeval(load: Any) -> None:
    row = {"instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{"num_words": None}, {}]}
    found = load("ifeval").compute(predictions=['"a b"', "a, b", '*"a"*'], references=[json.dumps(row)] * 3)
    assert found == {
        "prompt_strict": 1 / 3,
        "prompt_loose": 2 / 3,
        "inst_strict": 3 / 6,
        "inst_loose": 4 / 6,
        "n": 3,
    }


def test_pass_at_k(load: Any) -> None:
    good, bad = "def f(x):\n    return x + 1", "def f(x):\n    return x"
    found = load("pass_at_k").compute(
        predictions=[[good, bad], [bad, "import sys; sys.exit(0)"]], references=["assert f(1) == 2"] * 2, k=[1, 2]
    )
    assert found == {"pass@1": 0.25, "pass@2": 0.5, "n": 2}
