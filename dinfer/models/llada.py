"""LLaDA dense (8B Base and Instruct, 1.5): a bidirectional Llama under OLMo's names.

Source: Nie et al., "Large Language Diffusion Models", arXiv:2502.09992, and its public config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dinfer.models.architecture import Architecture
from dinfer.models.fields import number, whole
from dinfer.models.weights import Place

MODEL_TYPES = ("llada",)
ARCHITECTURES = ("LLaDAModelLM", "LLaDAModel")

#: Settings of the public config that this family leaves as they are in every release.
_FIXED = {
    "rope": True,
    "alibi": False,
    "block_type": "llama",
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "include_bias": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "bias_for_layer_norm": False,
}


def architecture(config: Mapping[str, Any]) -> Architecture:
    """The network described by a LLaDA `config.json`. ValueError for a setting that no release uses, or none at all."""
    for name, value in _FIXED.items():
        if config.get(name, value) not in (value, None):
            raise ValueError(f"config.json {name} must be {value!r} for LLaDA, got {config[name]!r}")
    width, heads = whole(config, "d_model"), whole(config, "n_heads")
    if heads < 1 or width % heads:
        raise ValueError(f"config.json d_model must be a multiple of n_heads, got {width} and {heads}")
    vocab = whole(config, "vocab_size", 0)
    return Architecture(
        vocab=whole(config, "embedding_size", vocab) or vocab,
        hidden=width,
        layers=whole(config, "n_layers"),
        heads=heads,
        kv_heads=whole(config, "n_kv_heads", 1 if config.get("multi_query_attention") else heads),
        head_dim=width // heads,
        ffn=whole(config, "mlp_hidden_size", int(width * number(config, "mlp_ratio", 4))),
        rope_theta=number(config, "rope_theta", 10000.0),
        norm_eps=number(config, "rms_norm_eps", 1e-5),
        max_length=whole(config, "max_sequence_length"),
        tied=bool(config.get("weight_tying", False)),
        qkv_bias=bool(config.get("include_qkv_bias", False)),
        qk_norm="full" if config.get("attention_layer_norm") else None,
    )


def places(arch: Architecture) -> dict[str, Place]:
    """Public tensor name -> where it goes in `Backbone`."""
    top = "model.transformer."
    table = {
        f"{top}wte.weight": Place("embedding"),
        f"{top}ln_f.weight": Place("norm"),
    }
    if not arch.tied:
        table[f"{top}ff_out.weight"] = Place("head")
    q, kv = arch.q_width, arch.kv_width
    for i in range(arch.layers):
        name, ours = f"{top}blocks.{i}.", f"layers.{i}."
        table |= {
            f"{name}attn_norm.weight": Place(f"{ours}attn_norm"),
            f"{name}ff_norm.weight": Place(f"{ours}ffn_norm"),
            f"{name}q_proj.weight": Place(f"{ours}attn.qkv.weight", 0, q),
            f"{name}k_proj.weight": Place(f"{ours}attn.qkv.weight", q, kv),
            f"{name}v_proj.weight": Place(f"{ours}attn.qkv.weight", q + kv, kv),
            f"{name}attn_out.weight": Place(f"{ours}attn.out.weight"),
            f"{name}ff_proj.weight": Place(f"{ours}ffn.gate_up.weight", 0, arch.ffn),
            f"{name}up_proj.weight": Place(f"{ours}ffn.gate_up.weight", arch.ffn, arch.ffn),
            f"{name}ff_out.weight": Place(f"{ours}ffn.down.weight"),
        }
        if arch.qkv_bias:
            table |= {
                f"{name}q_proj.bias": Place(f"{ours}attn.qkv.bias", 0, q),
                f"{name}k_proj.bias": Place(f"{ours}attn.qkv.bias", q, kv),
                f"{name}v_proj.bias": Place(f"{ours}attn.qkv.bias", q + kv, kv),
            }
        if arch.qk_norm == "full":
            table |= {
                f"{name}q_norm.weight": Place(f"{ours}attn.q_norm.weight"),
                f"{name}k_norm.weight": Place(f"{ours}attn.k_norm.weight"),
            }
    return table
