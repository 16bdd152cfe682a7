"""The embedded checkpoint: loaded like any other, small, stops by itself, and careless decoding costs it answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dinfer.cache import Window
from dinfer.iteration import Blockwise
from dinfer.models import load_model, read_spec
from dinfer.models.backbone import Backbone
from dinfer.types import Recipe
from evals.builtin import Builtin, BuiltinCode, BuiltinLists
from evals.builtin.base import BuiltinTask
from experiments.oracle import Oracle, grammar
from experiments.tiny.evaluate import Outcome, evaluate, summarise
from experiments.tiny.scores import CACHES, DECODINGS

FOLDER = Path(__file__).parents[1] / "dinfer" / "assets" / "tiny"
LARGEST = 8_000_000


@pytest.fixture(scope="module")
def model() -> Backbone:
    torch.set_num_threads(1)
    return load_model(FOLDER)


@pytest.fixture(scope="module")
def tokens() -> PreTrainedTokenizerFast:
    loaded = AutoTokenizer.from_pretrained(str(FOLDER))
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


def answers(model: Backbone, tokens: PreTrainedTokenizerFast, task: BuiltinTask, decoding: str) -> list[Outcome]:
    return evaluate(model, tokens, task, Recipe(DECODINGS[decoding], Blockwise(), Window()))


def test_it_is_a_small_public_checkpoint(tokens: PreTrainedTokenizerFast) -> None:
    files = {file.name: file.stat().st_size for file in FOLDER.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"} <= set(files)
    assert sum(files.values()) < LARGEST
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["architectures"] == ["LLaDAModelLM"]
    spec = read_spec(FOLDER)
    assert (spec.mask_id, spec.eos_ids) == (tokens.mask_token_id, (tokens.eos_token_id,))
    assert spec.vocab == len(tokens)


def test_the_card_shows_every_cell() -> None:
    card = (FOLDER / "README.md").read_text()
    for cache in CACHES:
        assert f"### Cache: {cache}" in card
    for decoding in DECODINGS:
        assert card.count(f"\n| {decoding} |") == len(CACHES)


def test_it_answers_stops_and_pays_for_haste(model: Backbone, tokens: PreTrainedTokenizerFast) -> None:
    careful = answers(model, tokens, Builtin("validation", 60), "threshold 0.9")
    assert summarise(careful).accuracy > 0.5
    assert summarise(careful).stopped > 0.95
    code = BuiltinCode("validation", 36)
    fine, hasty = (answers(model, tokens, code, name) for name in ("threshold 0.9", "threshold 0.5"))
    assert summarise(fine).accuracy - summarise(hasty).accuracy > 0.1
    assert summarise(fine).forwards > summarise(hasty).forwards


def test_the_oracle_speaks_its_tokenizer(tokens: PreTrainedTokenizerFast) -> None:
    """With one token at a time the exact denoiser is always right, but for a shuffle that leaves all as it was."""
    source = Oracle(str(FOLDER))
    assert len(grammar(tokens).asks) > 400
    oracle = source.load("float32", "cpu")
    found = evaluate(oracle, tokens, BuiltinLists(size=40), Recipe(DECODINGS["threshold 0.9"], Blockwise(), Window()))
    assert all(outcome.value == 1.0 for outcome in found if outcome.kind != "shuffle")
