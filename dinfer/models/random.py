"""A tiny LLaDA with random weights and a byte tokenizer: for trying the machinery, never for quality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from dinfer.models import llada
from dinfer.models.backbone import Backbone
from dinfer.models.weights import save_checkpoint
from dinfer.types import ModelSpec

SPECIAL = ("<|endoftext|>", "<|mdm_mask|>")


def write_checkpoint(
    folder: str | Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    ffn: int = 160,
    vocab: int | None = None,
    max_length: int = 2048,
    scale: float = 1.0,
    gain: float = 1.0,
    eos_bias: float = 0.0,
) -> Path:
    """Write a LLaDA checkpoint folder whose weights are drawn from `seed`; returns the folder.

    The vocabulary is the 256 bytes, then end-of-text and mask; `vocab` above 258 leaves unused rows. `scale` multiplies the
    head (larger: more confident), `gain` the layers (larger: positions differ more), `eos_bias` is added to the end-of-text
    logit of an average masked position.
    """
    size = vocab or 256 + len(SPECIAL)
    if size < 256 + len(SPECIAL):
        raise ValueError(f"vocab must be at least {256 + len(SPECIAL)} (bytes and specials), got {size}")
    config: dict[str, Any] = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": hidden,
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": kv_heads or heads,
        "mlp_hidden_size": ffn,
        "vocab_size": size,
        "embedding_size": size,
        "max_sequence_length": max_length,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "weight_tying": False,
        "mask_token_id": 257,
        "eos_token_id": 256,
        "pad_token_id": 256,
    }
    arch = llada.architecture(config)
    spec = ModelSpec(size, hidden, 257, (256,), max_length)
    model = Backbone(arch, spec)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            wide = 1.0 if name in ("embedding", "head") else gain * parameter.shape[1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * wide)
        model.head.mul_(scale * hidden**-0.5)
        usual = model.full(model.embed(torch.full((1, 32), 257))).mean((0, 1))
        model.head[256] += eos_bias * usual / usual.square().sum()
    target = Path(folder)
    save_checkpoint(model, target, config, llada.places(arch))
    _write_tokenizer(target)
    return target


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocab = {char: byte for byte, char in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[0], pad_token=SPECIAL[0], mask_token=SPECIAL[1]
    )
    fast.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
