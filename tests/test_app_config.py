"""Commands that are wrong are refused in one line that helps; option files and components agree; help lists everything."""

from __future__ import annotations

import inspect
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from experiments import run as app
from experiments.build import build, locate
from experiments.compose import compose
from experiments.errors import ConfigError
from experiments.options import GROUPS, Option, defaults, options, root_keys
from experiments.plan import make_plan, warn_hasty
from experiments.schema import EngineSettings

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = [o for o in options() if o.group != "experiment"]


def name(option: Option) -> str:
    return f"{option.group}={option.name}"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error of a command that is refused."""
    assert app.run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line]
    assert len(lines) == 1, captured.err
    return lines[0]


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("decodign=threshold", ["decodign is not a key", "did you mean decoding?", "cache"]),
        ("decoding=thresold", ["decoding must be one of", "'thresold'", "did you mean threshold?", "hierarchy"]),
        ("decoding.treshold=0.9", ["decoding.treshold is not a key", "did you mean decoding.threshold?"]),
        ("decoding=steps decoding.threshold=0.9", ["decoding.threshold", "tokens_per_step", "it is a key of decoding=credit"]),
        ("decoding=threshold decoding.steps_per_block=8", ["decoding.steps_per_block", "it is a key of decoding=steps"]),
        ("decoding=steps decoding.steps_per_block=8", ["exactly one of tokens_per_step and steps_per_block", "1 and 8"]),
        ("decoding=credit decoding.foo=1", ["decoding.foo is not a key", "alpha"]),
        ("decoding=credit decoding.threshold=1.8", ["decoding.inner.threshold must lie in (0, 1], got 1.8"]),
        ("decoding=credit decoding.inner=hierarhy", ["'hierarhy'", "did you mean hierarchy?"]),
        ("decoding=threshold decoding.inner=steps", ["decoding.inner is not a key"]),
        ("decoding.threshold=1.8", ["decoding.threshold must lie in (0, 1], got 1.8"]),
        ("decoding.threshold=high", ["decoding.threshold must be a number, got 'high'"]),
        ("decoding.threshold=null", ["decoding.threshold must be a number, got None"]),
        ("decoding=null", ["decoding must be one of", "got null"]),
        ("decoding=", ["decoding must be one of", "got nothing"]),
        ("decoding=steps,threshold", ["decoding must be one value, got steps,threshold", "add -m"]),
        ("~decoding", ["decoding must name one of its options"]),
        ("cache.before=-1", ["cache.before must be at least 0"]),
        ("cache.before=1.5", ["cache.before must be a whole number or null, got 1.5"]),
        ("iteration=dual", ["iteration must be one of blockwise, smooth; got 'dual'"]),
        ("iteration.early_stop=maybe", ["iteration.early_stop must be true or false, got 'maybe'"]),
        ("task=gsm9k", ["task must be one of", "did you mean gsm8k?"]),
        ("task=gsm8k task.split=tset", ["task.split must be one of test, train, got 'tset'"]),
        ("engine.batch_size=two", ["engine.batch_size must be a whole number, got 'two'"]),
        ("engine.batch_size=0", ["engine.batch_size must be at least 1, got 0"]),
        ("engine.dtype=float8", ["engine.dtype must be one of", "got 'float8'"]),
        ("engine.device=tpu", ["engine.device must be auto, cpu, cuda or cuda:<index>, got 'tpu'"]),
        ("logger=tensorboard", ["logger must be one of none, wandb; got 'tensorboard'"]),
        ("logger=wandb logger.mode=on", ["logger.mode must be one of offline, online, got 'on'"]),
        ("limt=3", ["limt is not a key", "did you mean limit?"]),
        ("+foo=1", ["foo is not a key"]),
        ("limit=abc", ["limit must be a whole number", "got 'abc'"]),
        ("limit=0", ["limit must be at least 1, got 0"]),
        ("seed=-1", ["seed must be at least 0, got -1"]),
        ("guidance=x", ["guidance must be a number, got 'x'"]),
        ("guidance=-0.5", ["guidance must be at least 0, got -0.5"]),
        ("name=a/b", ["name must be one folder name", "'a/b'"]),
        ("name=null", ["name must not be null"]),
        ("model.path=/no/such/folder", ["model.path", "/no/such/folder"]),
        ("model.path=[1]", ["model.path must be a text, got [1]"]),
        ("--limit 3", ["--limit is not a flag (write limit=…)"]),
        ("nonsense", ["'nonsense' is not of the form key=value"]),
        ("generate hello", ["dinfer-generate hello"]),
        ("report runs", ["dinfer-report runs"]),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(command: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(command.split(), capsys)
    for part in parts:
        assert part in line


def test_a_prompt_given_to_dinfer_is_sent_to_the_right_command(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(["What is the flight speed of an unladen swallow?"], capsys)
    assert "dinfer-generate --model PATH 'What is the flight speed of an unladen swallow?'" in line


def test_a_sweep_without_a_possible_cell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean prefix?" in refused(["-m", "cache=prefx", "limit=1,2"], capsys)
    assert "matches nothing" in refused(["-m", "cache=glob(zz*)"], capsys)
    assert "range without values" in refused(["-m", "seed=interval(1,3)"], capsys)


@pytest.mark.parametrize("words", [["decodign=threshold"], ["limit=0"], ["nonsense"], ["task=nope"]])
def test_cheap_mistakes_are_found_before_torch_is_imported(words: list[str]) -> None:
    code = "import sys; from experiments.run import run; code = run(sys.argv[1:]); print(code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_help_is_quick_and_lists_every_group_option_and_key() -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "experiments.run", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert time.monotonic() - started < 5
    for option in options():
        assert option.group in done.stdout
        assert option.name in done.stdout
        for key in option.keys:
            assert key.name.startswith("_") or f"{option.group}.{key.name}=" in done.stdout
    for key in root_keys():
        assert f"    {key.name}={key.default}" in done.stdout


def test_help_shows_options_of_the_users_own_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "decoding").mkdir()
    (tmp_path / "decoding" / "mine.yaml").write_text("# My idea.\n_target_: mine.Mine\nk: 2  # how many\n")
    assert app.run(["--config-dir", str(tmp_path), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "mine: My idea." in shown
    assert "decoding.k=2" in shown


@pytest.mark.parametrize("option", options(), ids=name)
def test_every_option_and_key_is_explained(option: Option) -> None:
    assert option.meaning, f"{name(option)} needs a first line that says what it is"
    assert [key.name for key in option.keys if not key.meaning and not key.name.startswith("_")] == []


#: Keys in which an option is meant to differ from its component's own default; all others are stated twice and must agree.
MEANT = {
    "cache=prefix": {"before"},
    "cache=dual": {"before", "after"},
    "cache=vicinity": {"before", "after"},
    "decoding=credit": {"threshold", "temperature", "logits_eos_inf", "confidence_eos_eot_inf"},
    "engine=cpu": {"device", "dtype"},
    "engine=gpu": {"device", "dtype"},
    "task=cruxeval_input": {"predict"},
    "task=humaneval_plus": {"variant"},
    "task=mbpp_plus": {"variant"},
    "task=mbpp_sanitized": {"variant"},
}


@pytest.mark.parametrize("option", COMPONENTS, ids=name)
def test_every_option_states_its_components_fields_and_defaults(option: Option) -> None:
    file = ROOT / "conf" / option.group / f"{option.name}.yaml"
    node = {key: value for key, value in yaml.safe_load(file.read_text()).items() if key != "defaults"}
    parameters = inspect.signature(locate(node.pop("_target_"), option.group)).parameters
    assert set(parameters) - {"inner"} <= set(node)
    if option.name != "credit":
        assert set(node) == set(parameters)
    stated = {key: tuple(value) if isinstance(value, list) else value for key, value in node.items()}
    differing = {key for key, p in parameters.items() if key != "inner" and p.default not in (p.empty, stated[key])}
    assert differing | MEANT.get(name(option), set()) == MEANT.get(name(option), set())


@pytest.mark.parametrize("option", [o for o in COMPONENTS if o.group != "model"], ids=name)
def test_every_option_composes_and_builds(option: Option) -> None:
    config, choices = compose([f"{option.group}={option.name}"])
    assert choices[option.group] == option.name
    assert type(build(config[option.group], option.group)).__name__ == config[option.group]["_target_"].rpartition(".")[2]


@pytest.mark.parametrize("option", [o for o in options() if o.group == "experiment"], ids=name)
def test_every_experiment_composes_and_fits_the_embedded_model(option: Option) -> None:
    plan = make_plan(*compose([f"experiment={option.name}", "model=tiny"]))
    assert plan.choices["experiment"] == option.name
    assert plan.config["max_tokens"] == plan.max_tokens


def test_the_default_of_every_group_is_an_option() -> None:
    known = {name(option) for option in options()}
    found = {f"{group}={option}" for group, option in defaults().items()}
    assert found <= known
    assert {pair.split("=")[0] for pair in found} == set(GROUPS) - {"experiment"}


def decoding(*words: str) -> object:
    config, _ = compose(words)
    return build(config["decoding"], "decoding")


def test_a_wrapping_strategy_shares_keys_with_the_wrapped_one() -> None:
    from dinfer.decoding import Credit, Hierarchy, Threshold

    assert decoding("decoding=credit") == Credit(inner=Threshold())
    assert decoding("decoding=credit", "decoding.threshold=0.8") == Credit(inner=Threshold(threshold=0.8))
    assert decoding("decoding=credit", "decoding.inner.threshold=0.8") == Credit(inner=Threshold(threshold=0.8))
    assert decoding("decoding=credit", "decoding.logits_eos_inf=true") == Credit(inner=Threshold(logits_eos_inf=True))
    wrapped = decoding("decoding=credit", "decoding@decoding.inner=hierarchy", "decoding.threshold=0.7")
    assert wrapped == Credit(inner=Hierarchy(threshold=0.7))


def test_a_key_that_neither_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"decoding.threshold is not a key.*factor"):
        decoding("decoding=credit", "decoding@decoding.inner=factor", "decoding.threshold=0.7")


def test_ints_are_numbers_and_lists_are_tuples() -> None:
    built = decoding("decoding.temperature=1")
    assert built == decoding("decoding.temperature=1.0")
    assert type(built.temperature) is float  # type: ignore[attr-defined]


def test_missing_arguments_and_classes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"model.path must be given"):
        build({"_target_": "experiments.checkpoint.Checkpoint"}, "model")
    with pytest.raises(ConfigError, match=r"model._target_ must be an importable class, got 'experiments.nothing.X'"):
        build({"_target_": "experiments.nothing.X"}, "model")


@pytest.mark.parametrize(("words", "warns"), [
    (["decoding=steps", "decoding.tokens_per_step=4"], True),
    (["decoding=steps", "decoding.tokens_per_step=null", "decoding.steps_per_block=8"], True),
    (["decoding=steps", "decoding.tokens_per_step=null", "decoding.steps_per_block=16"], False),
    (["decoding=steps", "decoding.tokens_per_step=3"], False),
    (["decoding=threshold"], False),
])  # fmt: skip
def test_a_hasty_schedule_is_warned_of(words: list[str], warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    warn_hasty(make_plan(*compose(words)).recipe)
    assert ("fixed schedule" in caplog.text) == warns


def test_auto_settles_on_this_machine() -> None:
    import torch

    settled = EngineSettings().resolved()
    assert settled.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert settled.dtype == ("bfloat16" if torch.cuda.is_available() else "float32")
    assert settled.resolved() == settled
    assert settled.identity()["device"]


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine.device must be on this machine, got 'cuda:99'; here: auto, cpu"):
        EngineSettings(device="cuda:99").resolved()
