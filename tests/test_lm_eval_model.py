"""The engine as a model of an installed lm-eval: its tasks run on it, offline, and say what the engine says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.errors import ConfigError

pytest.importorskip("lm_eval", reason="needs lm-eval: pip install 'dinfer[lm-eval]'")

import yaml
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from dinfer.likelihood import Pair, log_likelihoods
from experiments import generate, identity, lm_eval_command
from experiments.checkpoint import Checkpoint
from experiments.lm_eval_model import DinferLM

ROOT = Path(__file__).resolve().parent.parent
ROWS = str(ROOT / "evals/samples/gsm8k.jsonl")
GSM8K = {
    "task": "local_gsm8k",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": ROWS}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "Question: {{question}}\nAnswer:",
    "doc_to_target": "{{answer.split('####')[-1].strip()}}",
    "generation_kwargs": {"until": ["Question:", "\n\n"], "max_gen_toks": 24, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
CHOICE = {
    **GSM8K,
    "task": "local_choice",
    "output_type": "multiple_choice",
    "doc_to_choice": ["yes", "no", "7"],
    "doc_to_target": 1,
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
CHOICE.pop("generation_kwargs")
SMALL = "model=random,iteration.block_length=8,engine.device=cpu"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for task in (GSM8K, CHOICE):
        (folder / f"{task['task']}.yaml").write_text(yaml.safe_dump(task))
    return folder


def model(words: str = SMALL, **more: Any) -> DinferLM:
    made = get_model("dinfer").create_from_arg_string(words, more)
    assert isinstance(made, DinferLM)
    return made


def ask(lm: DinferLM, *contexts: str, **given: Any) -> list[str]:
    given = {"until": [], "max_gen_toks": 16, **given}
    return lm.generate_until([Instance("generate_until", {}, (context, given), i) for i, context in enumerate(contexts)])


def likelihood(lm: DinferLM, *pairs: tuple[str, str]) -> list[tuple[float, bool]]:
    return lm.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)], disable_tqdm=True)


def evaluate(lm: DinferLM, task: str, folder: Path, **more: Any) -> dict[str, Any]:
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = simple_evaluate(model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, **more)
    assert found is not None
    return dict(found)


def test_a_generation_task_runs_and_its_answers_are_the_engines(tasks: Path) -> None:
    lm = model(f"{SMALL},decoding=threshold,decoding.threshold=0.5,cache=dual")
    found = evaluate(lm, "local_gsm8k", tasks, limit=3)
    assert found["results"]["local_gsm8k"]["exact_match,none"] == 0.0
    samples = found["samples"]["local_gsm8k"]
    assert len(samples) == 3
    words = ["model=random", "engine.device=cpu", "iteration.block_length=8", "decoding.threshold=0.5", "cache=dual"]
    for sample in samples:
        context = sample["arguments"][0][0]
        shown = generate.answer([*words, "max_tokens=24"], context).rpartition("\n\n")[0]
        for stop in ("Question:", "\n\n"):
            shown = shown.partition(stop)[0]
        assert sample["resps"][0][0] == shown
    facts = lm.get_model_info()["dinfer"]
    assert facts["recipe"]["decoding"]["threshold"] == 0.5
    json.dumps(facts)


def test_a_choice_is_made_by_the_likelihood_estimate(tasks: Path) -> None:
    lm = model(f"{SMALL},mc_num=6,check_greedy=false")
    found = evaluate(lm, "local_choice", tasks, limit=2)
    for sample in found["samples"]["local_choice"]:
        for (context, answer), ((value, greedy),) in zip(sample["arguments"], sample["resps"], strict=True):
            ids, more = lm._encode_pair(context, answer)
            pair = Pair(tuple(ids), tuple(more), identity.sample_seed(0, f"{tuple(ids)}{tuple(more)}"))
            (expected,) = log_likelihoods(lm.engine.model, [pair], draws=6)
            assert value == pytest.approx(expected.value, abs=1e-4)
            assert greedy is False


def test_neither_batch_size_nor_company_changes_an_answer() -> None:
    contexts = ["Hello", "One and two and three are", "x", "A longer context that is alone in its batch."]
    pairs = [("Hello", " world"), ("Is it so?", " yes"), ("Is it so?", " not at all"), ("", "abc")]
    one, four = model(f"{SMALL},mc_num=5", batch_size=1), model(f"{SMALL},mc_num=5", batch_size="4")
    heated = {"do_sample": True, "temperature": 1.0}
    for given in ({}, heated):
        alone = [ask(one, context, **given)[0] for context in contexts]
        assert ask(four, *contexts, **given) == alone
    singly = [likelihood(one, pair)[0] for pair in pairs]
    for (value, greedy), (other, same) in zip(likelihood(four, *pairs), singly, strict=True):
        assert value == pytest.approx(other, abs=1e-4)
        assert greedy == same


def test_repeats_of_a_sampled_question_differ_and_seeds_repeat() -> None:
    heated = {"do_sample": True, "temperature": 1.0}
    first = ask(model(), "Hi", "Hi", **heated)
    assert first[0] != first[1]
    assert ask(model(), "Hi", "Hi", **heated) == first
    assert ask(model(f"{SMALL},seed=1"), "Hi", "Hi", **heated) != first
    assert len(set(ask(model(), "Hi", "Hi"))) == 1


def test_answers_are_cut_at_until_and_budgets_hold() -> None:
    whole = ask(model(), "Hello", max_gen_toks=32)[0]
    assert len(whole) > 4
    stop = whole[2:4]
    assert ask(model(), "Hello", max_gen_toks=32, until=[stop, "never"])[0] == whole[: whole.index(stop)]
    assert ask(model(), "Hello", max_gen_toks=32, until=stop)[0] == whole[: whole.index(stop)]
    assert len(model().tokenizer(ask(model(), "Hello", max_gen_toks=8)[0])["input_ids"]) <= 24


def test_a_long_context_loses_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    lm = model()
    tail = "b" * (lm.max_length - 16)
    assert ask(lm, "a" * 500 + tail) == ask(lm, "c" * 700 + tail)
    assert "1 contexts exceed the model's 2048 positions" in caplog.text


def surest_first(lm: DinferLM, prompt: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The surest token of the answer at each step, its other places being masked, until none is."""
    network, mask = lm.engine.model, lm.spec.mask_id
    tokens = [*prompt, *[mask] * length]
    while mask in tokens:
        chances = network.logits(network.full(network.embed(torch.tensor([tokens]))))[0].softmax(-1)
        chances[:, mask] = 0.0
        best = {i: float(chances[i].max()) for i, token in enumerate(tokens) if token == mask}
        place = max(best, key=lambda i: best[i])
        tokens[place] = int(chances[place].argmax())
    return tuple(tokens[len(prompt) :])


def test_what_is_greedy_is_what_decoding_writes() -> None:
    lm = model(f"{SMALL},engine.dtype=float64,decoding.threshold=0.1")
    prompts = [tuple(lm.tok_encode(text)) for text in ("Hello", "One, two", "A third one")]
    pairs = [Pair(prompt, surest_first(lm, prompt, length)) for prompt, length in zip(prompts, (4, 7, 4), strict=True)]
    changed = [Pair(pair.prompt, (*pair.answer[:-1], (pair.answer[-1] + 1) % 256)) for pair in pairs]
    assert lm._greedy([*pairs, *changed]) == [True] * 3 + [False] * 3


def test_a_whole_text_is_the_sum_over_its_windows() -> None:
    lm = model(f"{SMALL},mc_num=4")
    requests = [Instance("loglikelihood_rolling", {}, ("Hello there",), 0)]
    (value,) = lm.loglikelihood_rolling(requests)
    assert value == pytest.approx(likelihood(lm, ("", "Hello there"))[0][0], abs=1e-4)


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    tokenizer = Checkpoint("random:0").read_tokenizer().__class__.from_pretrained(Checkpoint("random:0").folder())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eot|>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}<|eot|>{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
    )
    tokenizer.save_pretrained(tmp_path / "chat")
    return tmp_path / "chat"


def test_only_the_chat_template_writes_special_tokens(chat: Path) -> None:
    lm = model(f"{SMALL},model.tokenizer={chat}")
    eot = lm.tokenizer.convert_tokens_to_ids("<|eot|>")
    assert eot not in lm.tok_encode("say <|eot|>")
    text = lm.apply_chat_template([{"role": "user", "content": "say <|eot|>"}])
    ids = lm.tok_encode(text)
    assert ids.count(eot) == 1
    assert lm.tokenizer.decode(ids) == "say <|eot|><|eot|>A:"
    assert lm.chat_template(True)


def test_mistakes_name_the_argument(tasks: Path) -> None:
    for words, message in (
        ("decoding=threshold", "path must name a checkpoint"),
        ("model=random,task=gsm8k", "task is no model argument of dinfer"),
        ("model=random,decoding=treshold", "did you mean threshold?"),
        ("model=random,decoding.threshold=1.8", r"threshold must lie in \(0, 1\], got 1.8"),
        ("path=nowhere/at/all", "nothing is at 'nowhere/at/all'"),
        ("model=random,mc_num=0", "mc_num must be a whole number of at least 1, got 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            model(words)
    with pytest.raises(ConfigError, match="has no chat template"):
        model().apply_chat_template([{"role": "user", "content": "x"}])
    with pytest.raises(ConfigError, match=r"must be at most max_tokens = 4, got 8 \(the task's max_gen_toks is 4\)"):
        ask(model(), "Hello", max_gen_toks=4)


@pytest.mark.slow
def test_the_command_runs_lm_eval_with_our_model(tasks: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-m", "experiments.lm_eval_command", "--model", "dinfer", "--tasks", "local_gsm8k",
             "--include_path", str(tasks), "--limit", "2", "--output_path", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(
        [*words, "--model_args", f"{SMALL},decoding=threshold,cache=dual"], capture_output=True, text=True, env=environment,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "local_gsm8k" in done.stdout
    (results,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["dinfer"]["recipe"]["cache"]["before"] == 0


def test_the_command_tells_mistakes_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise ConfigError("path must name a checkpoint")

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", refuse)
    with pytest.raises(SystemExit) as ended:
        lm_eval_command.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "dinfer-lm-eval: path must name a checkpoint\n"
