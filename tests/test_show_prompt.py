"""dinfer-prompt shows what a run's record vouches for, without loading weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import run as app
from experiments import show_prompt
from experiments.checkpoint import Checkpoint
from experiments.record import read_lines

WORDS = ("model=random", "task=cruxeval_output", "task.source=sample", "limit=2", "max_tokens=16")
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['content'] }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A tokenizer with a chat template."""
    tokenizer = Checkpoint("random:0").read_tokenizer().__class__.from_pretrained(Checkpoint("random:0").folder())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|eot|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "chat")
    return tmp_path / "chat"


def test_the_hashes_are_those_of_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*WORDS, "iteration.block_length=8"]) == 0
    (file,) = tmp_path.glob("runs/*/*/*/generations.jsonl")
    lines, _ = read_lines(file)
    manifest = json.loads((file.parent / "manifest.json").read_text())
    capsys.readouterr()
    assert show_prompt.run([*WORDS]) == 0
    shown = capsys.readouterr().out
    assert f"prompts_sha256  {manifest['prompts_sha256']} (of all 2 shown)" in shown
    for line in lines:
        assert f"--- {line['id']}\n" in shown
        assert f"prompt_sha256   {line['prompt_sha256']}\n" in shown
        assert f"tokens          {line['prompt_tokens']}\n" in shown
    assert show_prompt.run([*WORDS, "--json"]) == 0
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {f["id"]: f["prompt_sha256"] for f in facts} == {line["id"]: line["prompt_sha256"] for line in lines}
    assert all(len(f["tokens"]) == f["prompt_tokens"] and f["max_tokens"] == 16 for f in facts)


def test_the_template_and_its_special_tokens_are_seen(chat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model=random", "task=humaneval", "task.source=sample", f"model.tokenizer={chat}", "task.style=lm_eval_instruct"]
    assert show_prompt.run(words) == 0
    shown = capsys.readouterr().out
    assert "<|start|>Write a solution to the following problem" in shown
    assert "special tokens  <|start|> × 2, <|eot|>\n" in shown
    assert 'stop strings    "\\nclass", "\\ndef"' in shown
    assert "max_tokens      512\n" in shown
    assert "(of all 1 shown)" in shown


def test_a_special_token_in_a_question_is_shown_as_text(chat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"question": "What is <|eot|>?", "answer": "#### 1"}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    assert show_prompt.run(["model=random", "task=gsm8k", "task.path=rows.jsonl", f"model.tokenizer={chat}"]) == 0
    shown = capsys.readouterr().out
    assert "What is <|eot|>?" in shown
    assert "special tokens  <|start|> × 2, <|eot|>\n" in shown


def test_weights_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoint, "load", lambda *_: pytest.fail("the weights were loaded"))
    assert show_prompt.run([*WORDS]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task=humanevil"], "did you mean humaneval?"),
        (["humaneval"], "'humaneval' is not key=value"),
        (["task=gsm8k", "task.style=odd", "task.source=sample"], "style must be one of"),
        (["task=gsm8k", "task.path=gone.jsonl"], "gone.jsonl"),
        ([*WORDS, "limit=0"], "limit must be at least 1, got 0"),
        ([*WORDS, "max_tokens=4000"], "exceed the model's 2048 positions"),
    ],
)
def test_mistakes_are_told_in_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_prompt.run(words) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dinfer-prompt: ")]
    assert len(said) == 1
    assert message in said[0]
