"""From a configuration to a finished checkpoint: tokenizer, network, training with validation, evaluation, card."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dinfer.cache import Window
from dinfer.decoding import Threshold
from dinfer.iteration import Blockwise
from dinfer.models import llada
from dinfer.models.backbone import Backbone
from dinfer.models.weights import save_checkpoint
from dinfer.types import ModelSpec, Recipe
from evals.builtin import Builtin
from evals.builtin.mix import PARTS
from experiments.tiny import tokenizer as tokens
from experiments.tiny.card import write_card
from experiments.tiny.evaluate import by_task, evaluate, summarise
from experiments.tiny.loop import Run, Settings, initialise, train
from experiments.tiny.scores import grid

log = logging.getLogger(__name__)

#: Positions a checkpoint admits: far more than training shows it, so that any task can be run on it.
MAX_LENGTH = 4096
TEXTS_PER_TASK = 6000


def train_and_publish(config: Mapping[str, Any]) -> Path:
    """Everything, or what an interrupted run left to do. Returns the folder of the checkpoint."""
    torch.set_num_threads(config["threads"])
    folder = Path(config["folder"])
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(checkpoint, config)
    described = describe(config, tokenizer)
    model = network(described)
    initialise(model, config["seed"])
    run = Run(model, tokenizer, settings(config), folder)
    log.info("%.2fM parameters, vocabulary of %d", sum(p.numel() for p in model.parameters()) / 1e6, len(tokenizer))
    train(run, lambda: validate(run, tokenizer, config["validation_size"]))
    save_checkpoint(model, checkpoint, described, llada.places(model.arch), torch.bfloat16)
    scores = grid(checkpoint, tokenizer, config["final_size"], folder / "scores.json", few=config["smoke"])
    write_card(checkpoint / "README.md", config, described, run.history, scores)
    log.info("done: %s", checkpoint)
    return checkpoint


def load_tokenizer(folder: Path, config: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    """The tokenizer of the folder, trained first on the training split when there is none."""
    if not (folder / "tokenizer.json").exists():
        log.info("training the tokenizer")
        count = 300 if config["smoke"] else TEXTS_PER_TASK
        drawn = (instance for part in PARTS for instance in islice(part("train", seed=1).instances(), count))
        texts = (text for instance in drawn for text in (instance.prompt, instance.target))
        tokens.build(texts, config["vocab"]).save_pretrained(str(folder))
    loaded = AutoTokenizer.from_pretrained(str(folder))
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


def describe(config: Mapping[str, Any], tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """`config.json` of the model, in the fields of public LLaDA checkpoints."""
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": config["model"]["hidden"],
        "n_heads": config["model"]["heads"],
        "n_kv_heads": config["model"]["heads"],
        "n_layers": config["model"]["layers"],
        "mlp_hidden_size": config["model"]["ffn"],
        "vocab_size": len(tokenizer),
        "embedding_size": len(tokenizer),
        "max_sequence_length": MAX_LENGTH,
        "rope": True,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "block_type": "llama",
        "layer_norm_type": "rms",
        "activation_type": "silu",
        "weight_tying": True,
        "attention_layer_norm": True,
        "include_bias": False,
        "include_qkv_bias": False,
        "mask_token_id": tokenizer.mask_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def network(described: Mapping[str, Any]) -> Backbone:
    """The network that `described` (a config.json) names, not yet filled."""
    ids = described["mask_token_id"], (described["eos_token_id"],)
    spec = ModelSpec(described["vocab_size"], described["d_model"], *ids, MAX_LENGTH)
    return Backbone(llada.architecture(described), spec)


def settings(config: Mapping[str, Any]) -> Settings:
    """What of the configuration the loop needs."""
    return Settings(**{field.name: config[field.name] for field in fields(Settings) if field.name in config})


def validate(run: Run, tokenizer: PreTrainedTokenizerFast, size: int) -> None:
    """Decode questions of the validation split and log the accuracy of each task."""
    recipe = Recipe(Threshold(threshold=0.9), Blockwise(), Window())
    outcomes = evaluate(run.model, tokenizer, Builtin("validation", size), recipe)
    whole, parts = summarise(outcomes), by_task(outcomes)
    run.history.append({"step": run.step, "tokens": run.tokens, "seconds": run.elapsed, "accuracy": whole.accuracy})
    each = "  ".join(f"{name.removeprefix('builtin_')} {summarise(part).accuracy:.2f}" for name, part in parts.items())
    log.info("validation %.3f of %d  %s  %.1f forwards", whole.accuracy, whole.samples, each, whole.forwards)
