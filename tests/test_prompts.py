"""Prompts reach the model byte for byte; only the template writes special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dinfer.types import ModelSpec
from evals.task import Message, Sample
from experiments.checkpoint import Checkpoint, content_hash
from experiments.errors import ConfigError
from experiments.prompts import Prompter

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
LITERALS = ("<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>", "<|start|>")


@pytest.fixture(scope="module")
def source() -> Checkpoint:
    return Checkpoint("random:0")


@pytest.fixture
def plain(source: Checkpoint) -> Prompter:
    return Prompter(source.read_tokenizer(), source.spec())


@pytest.fixture
def chat(source: Checkpoint) -> Prompter:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(source.folder())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eot_id|>", "<|start|>"]})
    tokenizer.chat_template = TEMPLATE
    return Prompter(tokenizer, source.spec())


def user(text: str, **more: Any) -> Sample:
    return Sample("q1", (Message("user", text),), **more)


@pytest.mark.parametrize("literal", LITERALS)
def test_special_text_in_a_prompt_stays_text(chat: Prompter, literal: str) -> None:
    question = f"Explain what {literal} means in BERT.{literal}{literal}"
    prompt = chat.encode(user(question))
    assert prompt.text == f"<|start|>user\n{question}<|eot_id|><|start|>assistant\n"
    assert chat.tokenizer.decode(list(prompt.ids)) == prompt.text
    special = [chat.tokenizer.convert_ids_to_tokens(i) for i in prompt.ids if i >= 256]
    assert special == ["<|start|>", "<|eot_id|>", "<|start|>"]


@pytest.mark.parametrize("literal", LITERALS[:2])
def test_special_text_in_plain_prompts_and_prefills(plain: Prompter, literal: str) -> None:
    for sample in (Sample("q", text=f"a {literal} b"), Sample("q", text="a", prefill=f" {literal} b"), user(f"a {literal} b")):
        prompt = plain.encode(sample)
        assert prompt.text == f"a {literal} b"
        assert max(prompt.ids) < 256
        assert plain.tokenizer.decode(list(prompt.ids)) == prompt.text


def test_private_use_characters_survive(chat: Prompter) -> None:
    question = "\ue0f00\ue0f1 and \ue0f1"
    assert question in chat.encode(user(question)).text


def test_without_a_template_messages_are_joined_and_the_prefill_follows(plain: Prompter) -> None:
    sample = Sample("q", (Message("system", "Be brief."), Message("user", "2 + 2?")), prefill="It is")
    assert plain.encode(sample).text == "Be brief.\n\n2 + 2?It is"


def test_plain_text_takes_no_template(chat: Prompter) -> None:
    assert chat.encode(Sample("q", text="def f():")).text == "def f():"


def test_an_empty_prompt_is_refused_by_name(plain: Prompter, chat: Prompter) -> None:
    for prompter in (plain, chat):
        for sample in (user(""), user(" \n"), Sample("q1", text=""), Sample("q1")):
            with pytest.raises(ConfigError, match="'q1' has an empty prompt"):
                prompter.encode(sample)


def test_a_prompt_too_long_for_the_model_is_refused_by_name(source: Checkpoint) -> None:
    prompter = Prompter(source.read_tokenizer(), ModelSpec(258, 64, 257, (256,), 16))
    assert len(prompter.encode_all([user("12345678")], 8)) == 1
    with pytest.raises(ConfigError, match="max_tokens 8 and the 9 prompt tokens of sample 'q1' exceed the model's 16"):
        prompter.encode_all([user("123456789")], 8)


def test_decoding_leaves_special_tokens_out(plain: Prompter) -> None:
    assert plain.decode([104, 105, 257, 256]) == plain.decode([104, 105])


def test_a_checkpoint_is_known_by_its_content(tmp_path: Path, source: Checkpoint) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(source.folder(), copy)
    assert content_hash(copy) == content_hash(source.folder())
    (copy / "README.md").write_text("notes")
    assert content_hash(copy) == content_hash(source.folder())
    (copy / "config.json").write_text((copy / "config.json").read_text() + " ")
    assert content_hash(copy) != content_hash(source.folder())


def test_random_checkpoints_differ_by_seed_only(own_cache: Path) -> None:
    assert Checkpoint("random:0").identity() == Checkpoint("random:0").identity()
    assert Checkpoint("random:1").identity() != Checkpoint("random:0").identity()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/at/all", "model.path must be a folder"),
        ("random:x", "needs a whole number"),
        ("pkg:no_such_package/x", "must name a folder of an installed package"),
    ],
)
def test_a_missing_checkpoint_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Checkpoint(path).folder()


def test_a_checkpoint_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no tokenizer.json"):
        Checkpoint(str(tmp_path)).read_tokenizer()
