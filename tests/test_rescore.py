"""dinfer-score: verdicts are made, remade and continued without the model, and reference answers test the scorers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.humaneval import HumanEval
from experiments import identity, rescore
from experiments import run as app
from experiments.record import LOCK, read_lines, write_json

ROOT = Path(__file__).resolve().parent.parent
MARK = "f" * 16


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def record(root: Path, task: HumanEval, texts: Sequence[str], samples: int | None = None, name: str = "one") -> Path:
    """A record as a run leaves it before its answers are judged."""
    rows = task.samples()[: samples or len(texts)]
    folder = root / "runs" / name / task.name / MARK
    folder.mkdir(parents=True)
    fields = {key: value for key, value in identity.plain(task).items() if key != "class"}
    config = {"name": name, "limit": len(rows), "task": {"_target_": "evals.humaneval.HumanEval", **fields}}
    (folder / "config.yaml").write_text(json.dumps(config))
    facts = {"name": task.name, "version": task.version, "provenance": task.provenance()}
    write_json(folder / "manifest.json", {
        "fingerprint": MARK, "status": "interrupted", "task": facts, "samples": len(rows),
        "choices": {"task": task.name, "decoding": "threshold", "cache": "none"},
        "identity": {"task": identity.task_identity(task, rows), "engine": {"device": "cpu"}},
    })  # fmt: skip
    lines = [
        {
            "id": row.id, "text": text, "n_tokens": 5, "finish": "eos", "steps": 5, "committed": [1] * 5,
            "forwards": {"full": 5, "refresh": 0, "window": 0}, "queried": 50, "canvas": 8, "filled": 5, "eos": 1,
            "mask": False, "batch": "b-1", "rows": len(texts), "seconds": 1.0, "batch_forwards": 5,
        }
        for row, text in zip(rows, texts, strict=False)
    ]  # fmt: skip
    (folder / "generations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def sample_record(root: Path, **more: Any) -> Path:
    task = HumanEval(source="sample")
    texts = [task.reference_answer(sample) or "" for sample in task.samples()]
    return record(root, task, [texts[0], "no idea", "", texts[3]], **more)


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def outcomes(folder: Path) -> dict[str, str]:
    return {line["id"]: line["outcome"] for line in read_lines(folder / "scores.jsonl")[0]}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "experiments.rescore", *words], capture_output=True, text=True, env=environment, timeout=120,
        check=False,
    )  # fmt: skip


def test_a_record_is_judged_and_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sample_record(tmp_path)
    before = (folder / "generations.jsonl").stat()
    assert rescore.run(["runs", "--workers", "2"]) == 0
    after = (folder / "generations.jsonl").stat()
    assert (before.st_mtime_ns, before.st_size, before.st_ino) == (after.st_mtime_ns, after.st_size, after.st_ino)
    assert outcomes(folder) == {"Sample/0": "right", "Sample/1": "crashed", "Sample/2": "empty", "Sample/3": "right"}
    numbers, manifest = read(folder / "metrics.json"), read(folder / "manifest.json")
    assert (numbers["accuracy"], numbers["n"], numbers["scored"], numbers["scorer_version"]) == (0.5, 4, 4, "1")
    assert (numbers["outcomes"]["crashed"], numbers["outcomes"]["empty"]) == (1, 1)
    assert (manifest["status"], manifest["scorings"][0]["judged"]) == ("done", 4)
    assert "0.500" in capsys.readouterr().out


def test_what_is_judged_stays_and_all_is_judged_again_on_demand(tmp_path: Path) -> None:
    folder = sample_record(tmp_path)
    assert rescore.run(["runs"]) == 0
    files = {name: (folder / name).read_bytes() for name in ("scores.jsonl", "metrics.json", "manifest.json")}
    assert rescore.run(["runs"]) == 0
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert rescore.run(["runs", "--again"]) == 0
    assert read(folder / "manifest.json")["scorings"][1]["changed"] == 0
    assert (folder / "metrics.json").read_bytes() == files["metrics.json"]
    assert sorted((folder / "scores.jsonl").read_text().splitlines()) == sorted(files["scores.jsonl"].decode().splitlines())


def test_verdicts_of_another_version_are_replaced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sample_record(tmp_path)
    old = [{"id": f"Sample/{i}", "value": 1.0, "outcome": "right", "answer": None, "explanation": "", "metrics": {},
            "version": "0"} for i in range(4)]  # fmt: skip
    (folder / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    (folder / "wandb").mkdir()
    (folder / "wandb" / ".mirrored").write_text("offline")
    given = rescore.judge_all

    def broken(*arguments: Any, **more: Any) -> None:
        given(arguments[0], arguments[1], arguments[2], arguments[3][:2], *arguments[4:], **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(rescore, "judge_all", broken)
    assert rescore.run(["runs"]) == 130
    assert outcomes(folder) == {f"Sample/{i}": "right" for i in range(4)}
    assert len(read_lines(folder / "scores.next.jsonl")[0]) == 2
    judged: list[int] = []
    monkeypatch.setattr(rescore, "judge_all", lambda *a, **k: (judged.append(len(a[3])), given(*a, **k)))
    assert rescore.run(["runs"]) == 0
    assert judged == [2]
    assert sorted(outcomes(folder).values()) == ["crashed", "empty", "right", "right"]
    assert {line["version"] for line in read_lines(folder / "scores.jsonl")[0]} == {"1"}
    assert not (folder / "scores.next.jsonl").exists()
    assert not (folder / "wandb" / ".mirrored").exists()
    assert read(folder / "manifest.json")["scorings"][0]["changed"] == 2


def test_a_draft_of_a_third_version_is_thrown_away(tmp_path: Path) -> None:
    line = {"id": "Sample/0", "value": 0.0, "outcome": "wrong", "answer": None, "explanation": "", "metrics": {}}
    (tmp_path / "scores.jsonl").write_text(json.dumps({**line, "version": "1"}) + "\n")
    (tmp_path / "scores.next.jsonl").write_text(json.dumps({**line, "version": "2"}) + "\n")
    store, drafted = rescore.open_store(tmp_path, "3", again=False)
    store.close()
    assert (drafted, store.by_id) == (True, {})


def test_an_unfinished_record_is_judged_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = HumanEval(source="sample")
    folder = record(tmp_path, task, [task.reference_answer(task.samples()[0]) or "", "?"], samples=4)
    with (folder / "generations.jsonl").open("a") as stream:
        stream.write('{"id": "Sample/2", "te')
    torn = (folder / "generations.jsonl").read_bytes()
    assert rescore.run(["runs"]) == 0
    assert outcomes(folder) == {"Sample/0": "right", "Sample/1": "crashed"}
    assert not (folder / "metrics.json").exists()
    assert read(folder / "manifest.json")["status"] == "interrupted"
    assert (folder / "generations.jsonl").read_bytes() == torn
    assert "2 of 4" in capsys.readouterr().out


def test_a_real_run_is_judged_to_the_same_numbers(tmp_path: Path) -> None:
    words = ["model=random", "task=cruxeval_output", "task.source=sample", "max_tokens=16", "iteration.block_length=8"]
    assert app.run(words) == 0
    (file,) = tmp_path.glob("runs/*/*/*/metrics.json")
    numbers = read(file)
    assert rescore.run(["runs", "--again"]) == 0
    assert read(file) == numbers
    file.unlink()
    (file.parent / "scores.jsonl").unlink()
    assert rescore.run([str(file.parent)]) == 0
    assert read(file) == numbers


def test_no_torch_and_no_model(tmp_path: Path) -> None:
    sample_record(tmp_path)
    code = (
        "import sys; from experiments import rescore; code = rescore.run(['runs']); "
        "assert not {'torch', 'transformers'} & set(sys.modules), 'torch was imported'; sys.exit(code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_killed_and_continued(tmp_path: Path) -> None:
    task = HumanEval(source="sample")
    slow = "```python\nimport time\ntime.sleep(1)\n```"
    folder = record(tmp_path, task, [slow] * 4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "experiments.rescore", "runs", "--workers", "1"]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and not outcomes(folder):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = outcomes(folder)
    assert 0 < len(kept) < 4
    assert not (folder / "metrics.json").exists()
    assert rescore.run(["runs"]) == 0
    assert len(outcomes(folder)) == 4
    assert read(folder / "manifest.json")["scorings"][0]["judged"] == 4 - len(kept)


def test_a_busy_record_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from filelock import FileLock

    busy, free = sample_record(tmp_path, name="busy"), sample_record(tmp_path, name="free")
    with FileLock(busy / LOCK):
        assert rescore.run(["runs"]) == 1
    assert "another process writes this record" in capsys.readouterr().err
    assert not (busy / "scores.jsonl").exists()
    assert (free / "metrics.json").exists()


def test_moved_data_is_found_and_other_data_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in (ROOT / "evals/samples/humaneval.jsonl").read_text().splitlines()]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = record(tmp_path, HumanEval(path=str(data)), ["?"] * 4)
    data.rename(tmp_path / "elsewhere.jsonl")
    assert rescore.run(["runs"]) == 2
    assert "rows.jsonl" in capsys.readouterr().err
    assert rescore.run(["runs", "task.path=elsewhere.jsonl"]) == 0
    assert len(outcomes(folder)) == 4
    rows[1]["prompt"] += "# changed\n"
    (tmp_path / "elsewhere.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rescore.run(["runs", "task.path=elsewhere.jsonl", "--again"]) == 2
    assert "not the rows that its answers were made for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give at least one folder of records"),
        (["nowhere"], "nowhere does not exist"),
        (["limit=3"], "'limit=3' is no folder; of a record's configuration only task.path=FILE can be told"),
        (["runs", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["--reference"], "--reference needs task=…"),
        (["--reference", "--again", "task=gsm8k"], "--again concerns records"),
        (["--reference", "task=gsm8k", "model=random"], "'model=random' plays no part in --reference"),
        (["--reference", "task=gsm9k"], "did you mean gsm8k?"),
        (["--reference", "task=ifeval", "task.source=sample"], "task ifeval has no reference answers"),
        (["--reference", "task=builtin_math"], "task builtin_math has no reference answers"),
        (["--reference", "task=gsm8k", "task.path=gone.jsonl"], "gone.jsonl"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rescore.run(words) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dinfer-score: ")]
    assert len(said) == 1
    assert message in said[0]


@pytest.mark.parametrize(
    ("task", "count"),
    [("gsm8k", 8), ("humaneval", 4), ("humaneval_plus", 4), ("mbpp", 5), ("cruxeval_input", 4), ("livecodebench", 3)],
)
def test_reference_answers_of_the_samples(task: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert rescore.run(["--reference", f"task={task}", "task.source=sample", "limit=3"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == f"{min(3, count)} of {min(3, count)}"


def test_a_reference_answer_that_fails_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in (ROOT / "evals/samples/humaneval.jsonl").read_text().splitlines()]
    rows[2]["canonical_solution"] = "    return 'never'\n"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rescore.run(["--reference", "task=humaneval", "task.path=rows.jsonl"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == "3 of 4"
    assert shown[0].startswith(("Sample/2: wrong: ", "Sample/2: crashed: "))


def test_published_sets(shared: Path) -> None:
    for task, last in (("gsm8k", "1319 of 1319"), ("humaneval", "164 of 164")):
        done = command("--reference", f"task={task}", f"task.path={shared}/data/{task}/test.jsonl")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, last), done.stderr


def test_scoring_164_answers_twice_gives_the_same_verdicts(shared: Path, tmp_path: Path) -> None:
    task = HumanEval(path=str(shared / "data/humaneval/test.jsonl"))
    texts = [task.reference_answer(sample) or "" for sample in task.samples()]
    texts = [text if i % 3 else text.replace("return", "return not", 1) for i, text in enumerate(texts)]
    folder = record(tmp_path, task, texts)
    assert rescore.run(["runs"]) == 0
    first = {line["id"]: line for line in read_lines(folder / "scores.jsonl")[0]}
    assert rescore.run(["runs", "--again"]) == 0
    second = {line["id"]: line for line in read_lines(folder / "scores.jsonl")[0]}
    assert len(first) == 164
    assert {line["value"] for line in first.values()} == {0.0, 1.0}
    assert first == second
