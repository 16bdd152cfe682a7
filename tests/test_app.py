"""The command end to end: records, resumption after kills, sweeps, mirrors, and what the README promises."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments import cell, engines
from experiments import generate as generate_command
from experiments import run as app
from experiments.record import read_lines

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("model=random", "task=builtin_lists", "task.size=6", "max_tokens=32", "iteration.block_length=8", "decoding=steps")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only(root: Path) -> Path:
    """The one record below `root`."""
    (found,) = root.glob("runs/*/*/*/manifest.json")
    return found.parent


def records(root: Path) -> list[Path]:
    return sorted(file.parent for file in root.glob("runs/*/*/*/metrics.json"))


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def texts(folder: Path) -> dict[str, tuple[str, list[int], int]]:
    lines, _ = read_lines(folder / "generations.jsonl")
    return {line["id"]: (line["text"], line["tokens"], line["steps"]) for line in lines}


def command(words: Sequence[str], module: str = "experiments.run") -> list[str]:
    return [sys.executable, "-m", module, *words]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [*more.pop("path", "").split(os.pathsep), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def process(words: Sequence[str], module: str = "experiments.run", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(words, module), capture_output=True, text=True, env=environment(**more), timeout=240, check=False
    )


def test_a_run_leaves_a_complete_record_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*QUICK, "name=first"]) == 0
    folder = only(tmp_path)
    assert folder.parent == tmp_path / "runs" / "first" / "builtin_lists"
    assert [f.name for f in tmp_path.iterdir()] == ["runs"]
    assert sorted(f.name for f in folder.iterdir() if not f.name.startswith(".")) == [
        "config.yaml", "generations.jsonl", "manifest.json", "metrics.json", "run.log", "scores.jsonl",
    ]  # fmt: skip
    numbers, manifest = read(folder / "metrics.json"), read(folder / "manifest.json")
    assert (numbers["n"], numbers["scored"]) == (6, 6)
    assert manifest["status"] == "done"
    assert manifest["fingerprint"] == folder.name == numbers["fingerprint"]
    assert manifest["sessions"][0]["versions"]["torch"]
    assert manifest["warm_up_runs"] >= 1
    assert "builtin_lists" in capsys.readouterr().out


def test_lines_hold_what_an_answer_was_and_what_it_cost(tmp_path: Path) -> None:
    assert app.run([*QUICK, "engine.batch_size=4"]) == 0
    folder = only(tmp_path)
    lines, _ = read_lines(folder / "generations.jsonl")
    scores, _ = read_lines(folder / "scores.jsonl")
    assert {line["id"] for line in lines} == {line["id"] for line in scores}
    for line in lines:
        assert line["finish"] in ("eos", "length")
        assert line["n_tokens"] == len(line["tokens"]) <= line["filled"] <= line["canvas"] == 32
        assert sum(line["committed"]) == line["filled"]
        assert len(line["committed"]) == line["steps"]
        assert sum(line["forwards"].values()) >= line["steps"]
        assert line["seconds"] > 0
        assert line["rows"] in (4, 2)
    assert len({line["batch"] for line in lines}) == 2
    assert all(score["outcome"] and "value" in score for score in scores)


def test_the_same_command_again_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.run([*QUICK]) == 0
    before = {f: f.read_bytes() for f in only(tmp_path).iterdir()}
    monkeypatch.setattr(cell, "engine_for", lambda *_: pytest.fail("a finished run loaded a model"))
    assert app.run([*QUICK]) == 0
    assert {f: f.read_bytes() for f in only(tmp_path).iterdir()} == before


def test_what_identifies_a_run(tmp_path: Path) -> None:
    def mark(*words: str) -> str:
        from experiments.compose import compose
        from experiments.plan import make_plan

        return cell.prepare(make_plan(*compose([*QUICK, *words]))).fingerprint

    usual = mark()
    assert mark("name=other", "runs=elsewhere", "workers=1") == usual
    assert mark("limit=6", "max_tokens=32", "decoding.temperature=0") == usual
    different = ["seed=1", "limit=5", "max_tokens=16", "decoding=threshold", "cache=dual", "guidance=1.0", "task.seed=1",
                 "iteration.block_length=16", "engine.batch_size=2", "engine.dtype=float64", "model.path=random:1"]  # fmt: skip
    marks = [mark(word) for word in different]
    assert len({usual, *marks}) == len(different) + 1


def test_batch_size_and_order_change_no_answer(tmp_path: Path) -> None:
    for size in (1, 4):
        assert app.run([*QUICK, "engine.dtype=float64", f"engine.batch_size={size}", f"name=b{size}"]) == 0
    one, four = (next((tmp_path / "runs" / name).glob("*/*")) for name in ("b1", "b4"))
    assert texts(one) == texts(four)


@pytest.mark.parametrize("tear", [0, 1, 17])
def test_a_torn_record_is_completed_to_the_same_lines(tmp_path: Path, tear: int) -> None:
    words = [*QUICK, "engine.dtype=float64"]
    assert app.run(words) == 0
    folder = only(tmp_path)
    whole = texts(folder)
    (folder / "metrics.json").unlink()
    for name in ("generations.jsonl", "scores.jsonl"):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: len(raw) // 2 + tear])
    assert app.run(words) == 0
    assert texts(folder) == whole
    assert len(read_lines(folder / "scores.jsonl")[0]) == 6
    assert len(read(folder / "manifest.json")["sessions"]) == 2


def test_scoring_resumes_without_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.run([*QUICK]) == 0
    folder = only(tmp_path)
    before = read_lines(folder / "scores.jsonl")[0]
    (folder / "metrics.json").unlink()
    (folder / "scores.jsonl").write_text(json.dumps(before[0]) + "\n")
    monkeypatch.setattr(cell, "engine_for", lambda *_: pytest.fail("nothing was left to generate"))
    assert app.run([*QUICK]) == 0
    assert sorted(read_lines(folder / "scores.jsonl")[0], key=str) == sorted(before, key=str)


def test_killed_at_random_moments_a_run_continues(tmp_path: Path) -> None:
    words = [*QUICK, "task.size=12", "engine.dtype=float64", "engine.batch_size=1"]
    started = time.monotonic()
    assert app.run([*words, "name=whole"]) == 0
    usual = time.monotonic() - started
    whole = next((tmp_path / "runs" / "whole").glob("*/*"))
    chance, kills = random.Random(7), 0
    for _ in range(6):
        running = multiprocessing.get_context("fork").Process(target=app.run, args=([*words, "name=torn"],))
        running.start()
        running.join(chance.uniform(0.3, 0.9) * usual)
        if running.exitcode is not None:
            break
        running.kill()
        running.join()
        kills += 1
    else:
        assert app.run([*words, "name=torn"]) == 0
    torn = next((tmp_path / "runs" / "torn").glob("*/*"))
    assert kills >= 2
    assert len(read(torn / "manifest.json")["sessions"]) >= 2
    assert read(torn / "metrics.json")["n"] == 12
    assert texts(torn) == texts(whole)
    keep = ("id", "value", "outcome", "answer")
    verdicts = [sorted(tuple(str(s[k]) for k in keep) for s in read_lines(f / "scores.jsonl")[0]) for f in (torn, whole)]
    assert verdicts[0] == verdicts[1]


def test_a_second_process_on_one_record_is_refused(tmp_path: Path) -> None:
    from experiments.record import RunRecord

    assert app.run([*QUICK]) == 0
    folder = only(tmp_path)
    (folder / "metrics.json").unlink()
    with RunRecord(folder, folder.name):
        second = process(QUICK)
    assert second.returncode == 1
    assert f"another process writes this record (pid {os.getpid()} on " in second.stderr
    assert "Traceback" not in second.stderr


def test_a_sweep_runs_every_combination_once_and_loads_the_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = []
    genuine = engines.engine_for
    monkeypatch.setattr(cell, "engine_for", lambda *a: loads.append(genuine(*a)) or loads[-1])
    words = ["-m", *QUICK[:-1], "decoding=steps,threshold", "cache=glob(*,exclude=[dual,vicinity])", "limit=2"]
    assert app.run(words) == 0
    assert len(records(tmp_path)) == 4
    assert len(loads) == 4
    assert len({id(engine) for engine in loads}) == 1
    table = [row for row in capsys.readouterr().out.splitlines() if row.startswith("builtin_lists")]
    assert len(table) == 4
    assert app.run(words) == 0
    assert len(loads) == 4


def test_a_failing_cell_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-m", *QUICK[:-1], "decoding=steps,threshold", "decoding.threshold=0.9,1.8", "limit=1"]
    assert app.run(words) == 1
    assert len(records(tmp_path)) == 1
    captured = capsys.readouterr()
    assert "3 of 4 cells failed:" in captured.err
    assert "decoding.threshold must lie in (0, 1], got 1.8" in captured.err
    assert "decoding=steps decoding.threshold=0.9" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out.count("builtin_lists") == 1


def test_a_key_that_only_the_swept_options_have(tmp_path: Path) -> None:
    words = ["-m", *QUICK[:-1], "decoding=hierarchy,hierarchy", "decoding.low_threshold=0.3", "limit=1", "name='a+b'"]
    assert app.run(words) == 0
    (folder,) = records(tmp_path)
    assert "low_threshold: 0.3" in (folder / "config.yaml").read_text()
    assert folder.parent.parent.name == "a+b"


def test_a_cell_that_breaks_while_running_is_reported_and_continues_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    genuine = cell.generate

    def breaks(one: cell.Cell, *rest: Any) -> None:
        if one.plan.choices["cache"] == "dual":
            raise RuntimeError("out of memory")
        genuine(one, *rest)

    words = ["-m", *QUICK, "cache=none,dual,prefix", "limit=1"]
    with monkeypatch.context() as patch:
        patch.setattr(cell, "generate", breaks)
        assert app.run(words) == 1
    assert len(records(tmp_path)) == 2
    assert "cache=dual limit=1: RuntimeError: out of memory" in capsys.readouterr().err
    failed = next(f.parent for f in tmp_path.glob("runs/*/*/*/manifest.json") if read(f)["status"] == "failed")
    assert "out of memory" in (failed / "run.log").read_text()
    assert not (failed / "metrics.json").exists()
    assert app.run(words) == 0
    assert len(records(tmp_path)) == 3


def test_the_wandb_mirror_is_offline_and_lies_in_the_record(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    assert app.run([*QUICK, "limit=2"]) == 0
    folder = only(tmp_path)
    assert not (folder / "wandb").exists()
    assert app.run([*QUICK, "limit=2", "logger=wandb"]) == 0
    assert only(tmp_path) == folder
    (mirror,) = (folder / "wandb").glob("offline-run-*")
    assert mirror.name.endswith(folder.name)
    assert [f.name for f in tmp_path.iterdir()] == ["runs"]
    stored = next(mirror.glob("files/media/table/samples*.json")).read_text()
    assert all(name in stored for name in texts(folder))
    assert app.run([*QUICK, "limit=2", "logger=wandb"]) == 0
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 1


def test_without_wandb_installed_the_default_works_and_the_mirror_is_refused(tmp_path: Path) -> None:
    code = (
        "import importlib.abc, sys\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'wandb': raise ModuleNotFoundError(name, name=name)\n"
        "import importlib.util; genuine = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, p=None: None if n == 'wandb' else genuine(n, p)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from experiments.run import run\n"
        "if __name__ == '__main__': sys.exit(run(sys.argv[1:]))\n"
    )
    script = tmp_path / "without.py"
    script.write_text(code)
    for logger, expected in (("none", 0), ("wandb", 2)):
        done = subprocess.run(
            [sys.executable, str(script), *QUICK, "limit=1", f"logger={logger}"],
            capture_output=True, text=True, env=environment(), check=False,
        )  # fmt: skip
        assert done.returncode == expected, done.stderr
    assert "needs the package wandb" in done.stderr


def test_gsm8k_from_a_local_file(tmp_path: Path, shared: Path) -> None:
    path = shared / "data" / "gsm8k" / "test.jsonl"
    small = ["task.shots=0", "limit=2", "max_tokens=16", "iteration.block_length=16"]
    assert app.run(["task=gsm8k", f"task.path={path}", *small]) == 0
    numbers = read(only(tmp_path) / "metrics.json")
    assert numbers["n"] == 2
    assert {"strict", "flexible"} <= set(numbers["scores"])
    assert read(only(tmp_path) / "manifest.json")["task"]["provenance"]["rows"] == 1319


def test_a_missing_data_file_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["task=gsm8k", "task.path=/no/such.jsonl"]) == 2
    assert "/no/such.jsonl" in capsys.readouterr().err.splitlines()[-1]


def test_a_prompt_that_does_not_fit_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*QUICK, "max_tokens=2040"]) == 2
    assert re.search(r"of sample 'builtin_lists-\S+' exceed the model's 2048 positions", capsys.readouterr().err)


def test_generate_shows_answer_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "random:0", "decoding=threshold", "cache=dual", "max_tokens=16", "iteration.block_length=8", "Why?"]
    assert generate_command.run(words) == 0
    *_, figures = capsys.readouterr().out.splitlines()
    for part in ("4 prompt tokens", "answer tokens", "steps", "forwards (", "tokens/forward", " s, ", "tokens/s"):
        assert part in figures


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--diffusion-steps", "128", "What?"], "write decoding=steps decoding.tokens_per_step=1"),
        (["--diffusion-block-length", "32", "What?"], "write iteration.block_length=32"),
        (["--threshold=0.8", "What?"], "write decoding.threshold=…"),
        (["task=gsm8k"], "dinfer task=gsm8k"),
        ([], "the prompt is empty"),
        (["--model", "/no/such", "What?"], "model.path must be a folder"),
        (["decoding=thresold", "What?"], "did you mean threshold?"),
        (["decoding.threshold=2", "What?"], "decoding.threshold must lie in (0, 1], got 2"),
    ],
)
def test_generate_refuses_in_one_line(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_command.run(words) == 2
    captured = capsys.readouterr()
    assert part in captured.err
    assert len(captured.err.splitlines()) == 1


def blocks() -> list[tuple[str, str]]:
    """Named code blocks of the README: (file name, content)."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_the_readmes_way_of_adding_a_strategy_works(tmp_path: Path) -> None:
    files = dict(blocks())
    assert set(files) == {"my_methods.py", "my_conf/decoding/surest.yaml"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    said = re.search(r"^PYTHONPATH=\. dinfer (.*)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert said
    small = ["max_tokens=24", "iteration.block_length=24", "task=builtin_lists"]
    done = process([*said.group(1).split(), *small], path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines, _ = read_lines(only(tmp_path) / "generations.jsonl")
    assert len(lines) == 4
    assert all(set(line["committed"]) == {3} for line in lines)
    wrong = process(["--config-dir", "my_conf", "decoding=surest", "decoding.k=0"], path=str(tmp_path))
    assert wrong.returncode == 2
    assert "decoding.k must be at least 1, got 0" in wrong.stderr


def test_an_own_folder_can_also_be_on_the_search_path(tmp_path: Path) -> None:
    for name, content in blocks():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    words = [*QUICK[:-1], f"hydra.searchpath=[file://{tmp_path}/my_conf]", "decoding=surest", "limit=1"]
    assert process(words, path=str(tmp_path)).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is None, reason="needs the extra joblib")
def test_cells_in_parallel_processes(tmp_path: Path) -> None:
    words = ["-m", *QUICK, "cache=none,dual", "decoding.tokens_per_step=1,-1", "limit=1", "hydra/launcher=joblib"]
    done = process([*words, "hydra.launcher.n_jobs=2"])
    assert done.returncode == 1
    assert len(records(tmp_path)) == 2
    assert "2 of 4 cells failed" in done.stderr
    assert [f.name for f in tmp_path.iterdir()] == ["runs"]


def test_progress_is_a_line_now_and_then_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from experiments import progress

    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    with caplog.at_level("INFO"):
        kept = list(progress.tracked(iter("ab"), total=3, done=1, what="toy"))
    assert kept == ["a", "b"]
    assert re.search(r"toy: 2 of 3, [\d.]+ samples/s, 0:00:0\d left", caplog.text)
