"""The network against transformers' Llama, against attention written out, and its cache against itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dinfer.models import Backbone
from dinfer.models.attention import KVCache, visible_keys
from tests.networks import hidden_of, ids, network

#: Multi-head, grouped and single-head keys; one wide, one deep; another base and another epsilon.
SHAPES = {
    "multi-head": {"heads": 4, "kv_heads": 4},
    "grouped": {"heads": 6, "kv_heads": 2},
    "one key head": {"heads": 3, "kv_heads": 1, "layers": 1},
    "deep": {"layers": 6, "rope_theta": 500_000.0, "norm_eps": 1e-6},
    "wide": {"hidden": 64, "heads": 2, "kv_heads": 1, "ffn": 200, "layers": 3},
}


def llama(model: Backbone) -> Any:
    """The same weights in transformers' Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    arch = model.arch
    config = LlamaConfig(
        vocab_size=arch.vocab,
        hidden_size=arch.hidden,
        intermediate_size=arch.ffn,
        num_hidden_layers=arch.layers,
        num_attention_heads=arch.heads,
        num_key_value_heads=arch.kv_heads,
        max_position_embeddings=arch.max_length,
        rms_norm_eps=arch.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": arch.rope_theta},
        tie_word_embeddings=arch.tied,
        attention_bias=False,
    )
    config._attn_implementation = "eager"
    twin = LlamaForCausalLM(config).eval()
    weights: dict[str, Tensor] = {"model.embed_tokens.weight": model.embedding, "model.norm.weight": model.norm}
    weights["lm_head.weight"] = model.head
    for i, layer in enumerate(model.stack):
        name = f"model.layers.{i}."
        q, k, v = layer.attn.qkv.weight.split([arch.q_width, arch.kv_width, arch.kv_width])
        gate, up = layer.ffn.gate_up.weight.chunk(2)
        weights |= {
            f"{name}input_layernorm.weight": layer.attn_norm,
            f"{name}post_attention_layernorm.weight": layer.ffn_norm,
            f"{name}self_attn.q_proj.weight": q,
            f"{name}self_attn.k_proj.weight": k,
            f"{name}self_attn.v_proj.weight": v,
            f"{name}self_attn.o_proj.weight": layer.attn.out.weight,
            f"{name}mlp.gate_proj.weight": gate,
            f"{name}mlp.up_proj.weight": up,
            f"{name}mlp.down_proj.weight": layer.ffn.down.weight,
        }
    twin.load_state_dict(weights)
    return twin


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("tied", [False, True])
def test_the_network_is_a_llama_that_sees_everything(shape: dict[str, Any], tied: bool) -> None:
    model = network(tied=tied, **shape)
    tokens = ids(2, 33)
    ours = model.logits(hidden_of(model, tokens))
    twin = llama(model)
    with torch.no_grad():
        theirs = twin(tokens, attention_mask=torch.zeros(2, 1, 33, 33)).logits
        causal = twin(tokens).logits
    assert (ours - theirs).abs().max() / theirs.abs().max() < 1e-5
    assert (ours - causal).abs().max() / theirs.abs().max() > 1e-2  # so that the line above says something
    torch.testing.assert_close(model.logits(model.full(model.embed(tokens))), ours, rtol=1e-5, atol=1e-5)


def test_queries_and_keys_are_normalised_over_their_whole_width() -> None:
    model = network(qk_norm="full", heads=6, kv_heads=2, dtype=torch.float64)
    attention = next(model.stack).attn
    x = torch.randn(2, 5, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q, (k, _) = attention.queries(x), attention.keys_values(x)
    for part, norm, first, last in ((q, attention.q_norm, 0, 48), (k, attention.k_norm, 48, 64)):
        raw = x @ attention.qkv.weight[first:last].T
        expected = raw / (raw.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
        torch.testing.assert_close(part.flatten(2), expected)


def test_attention_written_out() -> None:
    """One layer of grouped heads with a bias, by sums and exponentials."""
    model = network(layers=1, heads=4, kv_heads=2, qkv_bias=True, dtype=torch.float64)
    (layer,) = model.stack
    tokens, d = ids(1, 7), 12
    x = model.embed(tokens)[0]

    def norm(h: Tensor, weight: Tensor) -> Tensor:
        return h / (h.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    def turn(h: Tensor) -> Tensor:
        out = torch.empty_like(h)
        for column in range(7):
            for i in range(d // 2):
                angle = torch.tensor(column * 10000.0 ** (-2 * i / d), dtype=torch.float64)
                a, b = h[column, i], h[column, i + d // 2]
                out[column, i], out[column, i + d // 2] = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
        return out

    projected = norm(x, layer.attn_norm) @ layer.attn.qkv.weight.T + layer.attn.qkv.bias
    heads = []
    for head in range(4):
        group = head // 2
        q = turn(projected[:, head * d : head * d + d])
        k = turn(projected[:, 48 + group * d : 48 + group * d + d])
        v = projected[:, 72 + group * d : 72 + group * d + d]
        heads.append((q @ k.T / d**0.5).softmax(-1) @ v)
    x = x + torch.cat(heads, -1) @ layer.attn.out.weight.T
    gate, up = (norm(x, layer.ffn_norm) @ layer.ffn.gate_up.weight.T).chunk(2, -1)
    x = x + (gate * gate.sigmoid() * up) @ layer.ffn.down.weight.T
    torch.testing.assert_close(hidden_of(model, tokens)[0], norm(x, model.norm), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("block", [None, 4])
def test_wanted_columns_have_the_same_states_as_all(block: int | None) -> None:
    model = network(heads=6, kv_heads=2, dtype=torch.float64)
    model.spec = replace(model.spec, block=block)
    tokens, want = ids(3, 20), torch.tensor([[0, 7, 19], [4, 4, 2], [11, 3, 12]])
    for lengths in (None, [20, 13, 15]):
        every = hidden_of(model, tokens, lengths)
        some = hidden_of(model, tokens, lengths, want)
        torch.testing.assert_close(some, every.gather(1, want[..., None].expand(-1, -1, 48)), rtol=1e-12, atol=1e-12)


def test_a_window_over_a_filled_cache_equals_the_whole() -> None:
    """Two forwards that write half the columns each, the second reading the first's, when nothing they read is stale."""
    model = network(layers=1, dtype=torch.float64)
    tokens = ids(2, 16)
    every = torch.arange(16).expand(2, 16)
    cache = KVCache.allocate(model.arch, 2, 16, model.embedding)
    model(model.embed(tokens[:, 8:]), every[:, 8:], cache, None)
    first = model(model.embed(tokens[:, :8]), every[:, :8], cache, None)
    torch.testing.assert_close(first, hidden_of(model, tokens)[:, :8], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", [None, 4])
def test_a_shorter_row_in_a_batch_equals_the_row_alone(block: int | None) -> None:
    """Two prompts of different length: what lies beyond a row's end is not seen, whatever stands there."""
    model = network(dtype=torch.float64)
    model.spec = replace(model.spec, block=block)
    tokens = ids(2, 18)
    together = hidden_of(model, tokens, [18, 7])
    torch.testing.assert_close(together[1, :7], hidden_of(model, tokens[1:, :7])[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(together[0], hidden_of(model, tokens[:1])[0], rtol=1e-12, atol=1e-12)
    tokens[1, 7:] = 3
    torch.testing.assert_close(hidden_of(model, tokens, [18, 7])[1, :7], together[1, :7], rtol=0, atol=0)
    if block is None:
        assert not torch.allclose(hidden_of(model, tokens)[1, :7], together[1, :7])  # had the mask been dropped


def test_block_causal_columns_see_their_block_and_what_is_before_it() -> None:
    slots = torch.tensor([[0, 3, 4, 9]])
    seen = visible_keys(slots, torch.tensor([10]), 12, 4, False)
    assert seen is not None
    expected = [range(4), range(4), range(8), range(10)]
    assert [row.nonzero().flatten().tolist() for row in seen[0, 0]] == [list(columns) for columns in expected]
    assert visible_keys(slots, torch.tensor([12]), 12, None, True) is None


def test_mixtures_of_embeddings() -> None:
    model = network()
    probs = torch.randn(2, 5, 97).softmax(-1)
    torch.testing.assert_close(model.blend(probs), torch.einsum("bkv,vd->bkd", probs, model.embedding))
    torch.testing.assert_close(model.blend(torch.eye(97)[[4, 9]]), model.embed(torch.tensor([4, 9])))
