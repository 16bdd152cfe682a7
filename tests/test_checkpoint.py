"""Checkpoint folders: what is written is read, in any precision and any number of files; damage is told in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dinfer.models import llada as family
from dinfer.models import load_model, read_spec
from dinfer.models.attention import KVCache
from dinfer.models.random import write_checkpoint
from dinfer.models.weights import save_checkpoint
from dinfer.types import ModelSpec
from tests.networks import hidden_of, ids, network


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "tiny", seed=4, hidden=32, heads=4, kv_heads=2, ffn=48)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(source, tmp_path / "damaged"))


BLOCK = "model.transformer.blocks.0."


def configure(folder: Path, **changes: Any) -> None:
    """Change fields of config.json; `...` takes one away."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def reweigh(folder: Path, **changes: Tensor | None) -> None:
    """Change tensors by name (`__` for a dot); None takes one away."""
    tensors = load_file(folder / "model.safetensors") | {k.replace("__", "."): v for k, v in changes.items()}
    save_file({k: v for k, v in tensors.items() if v is not None}, folder / "model.safetensors")


def test_a_checkpoint_bears_the_public_names(source: Path) -> None:
    tensors = load_file(source / "model.safetensors")
    shapes = {name: tuple(t.shape) for name, t in tensors.items() if ".blocks.1." not in name}
    assert shapes == {
        "model.transformer.wte.weight": (258, 32),
        "model.transformer.ln_f.weight": (32,),
        "model.transformer.ff_out.weight": (258, 32),
        f"{BLOCK}attn_norm.weight": (32,),
        f"{BLOCK}ff_norm.weight": (32,),
        f"{BLOCK}q_proj.weight": (32, 32),
        f"{BLOCK}k_proj.weight": (16, 32),
        f"{BLOCK}v_proj.weight": (16, 32),
        f"{BLOCK}attn_out.weight": (32, 32),
        f"{BLOCK}ff_proj.weight": (48, 32),
        f"{BLOCK}up_proj.weight": (48, 32),
        f"{BLOCK}ff_out.weight": (32, 48),
    }
    spec = read_spec(source)
    assert spec == ModelSpec(vocab=258, hidden=32, mask_id=257, eos_ids=(256,), max_length=2048)


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"weight_tying": True},
    "bias": {"include_qkv_bias": True},
    "normed": {"attention_layer_norm": True, "n_kv_heads": 2},
    "all": {"weight_tying": True, "include_qkv_bias": True, "attention_layer_norm": True, "n_kv_heads": 1},
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_what_is_saved_is_loaded(changes: dict[str, Any], tmp_path: Path) -> None:
    config = {"architectures": ["LLaDAModelLM"], "d_model": 48, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 80} | changes
    config |= {"vocab_size": 97, "max_sequence_length": 256, "mask_token_id": 96, "eos_token_id": 95}
    arch = family.architecture(config)
    model = network(kv_heads=arch.kv_heads, tied=arch.tied, qkv_bias=arch.qkv_bias, qk_norm=arch.qk_norm)
    assert model.arch == arch
    save_checkpoint(model, tmp_path, config, family.places(arch))
    again = load_model(tmp_path)
    assert again.spec == model.spec
    assert {n for n, _ in again.named_parameters()} == {n for n, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter), name
    assert (again.head is again.embedding) == arch.tied
    assert torch.equal(again.full(again.embed(ids(1, 9))), model.full(model.embed(ids(1, 9))))


@pytest.mark.parametrize("indexed", [True, False])
def test_shards_are_one_model(folder: Path, indexed: bool) -> None:
    whole = load_model(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    where: dict[str, str] = {}
    for i in range(3):
        shard = f"model-0000{i + 1}-of-00003.safetensors"
        save_file({name: tensors[name] for name in names[i::3]}, folder / shard)
        where |= dict.fromkeys(names[i::3], shard)
    if indexed:
        index = {"metadata": {"total_size": 1}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    parts = load_model(folder)
    assert all(torch.equal(parts.get_parameter(name), parameter) for name, parameter in whole.named_parameters())
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="model-00002-of-00003.safetensors" if indexed else "tensors missing"):
        load_model(folder)


@pytest.mark.parametrize(("dtype", "gap"), [("float64", 1e-5), ("float32", 0.0), ("bfloat16", 0.06), ("float16", 0.008)])
def test_any_precision(source: Path, dtype: str, gap: float) -> None:
    reference, model = load_model(source), load_model(source, dtype=dtype)
    kind = getattr(torch, dtype)
    assert model.dtype is kind
    assert {p.dtype for p in model.parameters()} == {kind}
    tokens = torch.arange(60, 84)[None]
    expected = reference.logits(hidden_of(reference, tokens))
    hidden = hidden_of(model, tokens)
    assert hidden.dtype is kind
    assert (model.logits(hidden).double() - expected).abs().max() <= gap * expected.abs().max()
    cache = KVCache.allocate(model.arch, 2, 10, model.embedding)
    assert cache.bytes == 2 * 11 * model.arch.kv_bytes(model.embedding.element_size())


def test_a_checkpoint_in_bfloat16_is_widened_exactly(folder: Path) -> None:
    tensors = {k: v.to(torch.bfloat16) for k, v in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    model = load_model(folder, dtype="float32")
    assert torch.equal(model.embedding, tensors["model.transformer.wte.weight"].float())
    assert torch.equal(load_model(folder, dtype="bfloat16").embedding, tensors["model.transformer.wte.weight"])


def test_norms_and_rotations_have_a_precision_of_their_own(source: Path) -> None:
    tokens = torch.arange(60, 84)[None]
    wide, mixed = load_model(source, dtype="float64"), load_model(source, dtype="float64", exact="float32")
    assert (wide.arch.exact, mixed.arch.exact) == (torch.float64, torch.float32)
    gap = (hidden_of(wide, tokens) - hidden_of(mixed, tokens)).abs().max()
    assert 0 < gap < 1e-4


def test_end_of_turn_comes_from_the_tokenizer(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    content["added_tokens"].append({"id": 200, "content": "<|eot_id|>", "special": True})
    file.write_text(json.dumps(content))
    assert read_spec(folder).eos_ids == (256, 200)
    configure(folder, eos_token_id=[256, 200])
    assert read_spec(folder).eos_ids == (256, 200)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "broken config": (lambda f: (f / "config.json").write_text('{"d_model": '), "config.json is not valid JSON"),
    "binary config": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe"), "config.json is not valid JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "config.json must hold a JSON object, got list"),
    "no mask id": (lambda f: configure(f, mask_token_id=...), "config.json has no 'mask_token_id'"),
    "mask id is null": (lambda f: configure(f, mask_token_id=None), "config.json has no 'mask_token_id'"),
    "mask id is text": (lambda f: configure(f, mask_token_id="<mask>"), "mask_token_id must be a whole number, got '<mask>'"),
    "no eos id": (lambda f: configure(f, eos_token_id=...), "config.json has no 'eos_token_id'"),
    "eos ids are none": (lambda f: configure(f, eos_token_id=[]), "config.json has no 'eos_token_id'"),
    "tokenizer, mask": (lambda f: configure(f, mask_token_id=7), "mask_token '<|mdm_mask|>' has id 257, .*mask_token_id is 7"),
    "tokenizer, eos": (lambda f: configure(f, eos_token_id=7), "eos_token '<|endoftext|>' has id 256, .*eos_token_id is 7"),
    "broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer.json is not valid JSON"),
    "broken settings": (lambda f: (f / "tokenizer_config.json").write_text("]"), "tokenizer_config.json is not valid JSON"),
    "autoregressive": (
        lambda f: configure(f, architectures=["LlamaForCausalLM"], model_type="llama"),
        "names LlamaForCausalLM, which is not a diffusion model known here; known: LLaDAModelLM",
    ),
    "another family": (lambda f: configure(f, architectures=["LLaDAMoEModelXL"]), "names LLaDAMoEModelXL"),
    "no family": (lambda f: configure(f, architectures=..., model_type=...), "names no architecture"),
    "no width": (lambda f: configure(f, d_model=...), "config.json has no 'd_model'"),
    "width is text": (lambda f: configure(f, d_model="wide"), "d_model must be a whole number, got 'wide'"),
    "heads": (lambda f: configure(f, n_heads=5), "d_model must be a multiple of n_heads, got 32 and 5"),
    "no heads": (lambda f: configure(f, n_heads=0), "d_model must be a multiple of n_heads, got 32 and 0"),
    "key heads": (lambda f: configure(f, n_kv_heads=3), "heads must be a multiple of kv_heads, got 4 and 3"),
    "odd heads": (lambda f: configure(f, d_model=36), "head_dim must be even .*got 9"),
    "rotary base": (lambda f: configure(f, rope_theta=0), "rope_theta must be above 0, got 0"),
    "epsilon": (lambda f: configure(f, rms_norm_eps="1e-5"), "rms_norm_eps must be a number, got '1e-5'"),
    "no layers": (lambda f: configure(f, n_layers=0), "layers must be at least 1, got 0"),
    "alibi": (lambda f: configure(f, alibi=True), "alibi must be False for LLaDA, got True"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no \\*.safetensors file"),
    "a layer too many": (lambda f: configure(f, n_layers=3), "tensors missing: .*blocks.2.attn_norm.weight.* and 5 more"),
    "a layer too few": (lambda f: configure(f, n_layers=1), "tensors not used by this architecture: .*blocks.1.attn_norm"),
    "key heads in weights": (lambda f: configure(f, n_kv_heads=4), "k_proj.weight \\(16, 32\\), expected \\(32, 32\\)"),
    "missing tensor": (
        lambda f: reweigh(f, model__transformer__blocks__0__q_proj__weight=None),
        "tensors missing: model.transformer.blocks.0.q_proj.weight",
    ),
    "unknown tensor": (lambda f: reweigh(f, lora__a=torch.zeros(2)), "tensors not used by this architecture: lora.a"),
    "misshapen tensor": (
        lambda f: reweigh(f, model__transformer__ln_f__weight=torch.zeros(31)),
        "wrong shape or type: model.transformer.ln_f.weight \\(31,\\), expected \\(32,\\)",
    ),
    "integer tensor": (
        lambda f: reweigh(f, model__transformer__ln_f__weight=torch.zeros(32, dtype=torch.int8)),
        "model.transformer.ln_f.weight torch.int8, expected floating point",
    ),
    "several at once": (
        lambda f: reweigh(f, lora__a=torch.zeros(2), model__transformer__ln_f__weight=None),
        "missing: model.transformer.ln_f.weight; not used by this architecture: lora.a",
    ),
    "cut short": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
        "model.safetensors: not a readable safetensors file",
    ),
    "empty file": (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors: not a readable safetensors file"),
    "broken index": (lambda f: (f / "model.safetensors.index.json").write_text("{"), "index.json is not valid JSON"),
    "empty index": (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "weight_map must name a shard"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_in_one_line(folder: Path, damage: str) -> None:
    change, message = DAMAGES[damage]
    change(folder)
    with pytest.raises(ValueError, match=message) as error:
        load_model(folder)
    assert "\n" not in str(error.value)


def test_folders_and_precisions_that_are_none(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder at .*nowhere"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no folder at"):
        load_model(source / "config.json")
    with pytest.raises(ValueError, match="dtype must be one of float32, bfloat16, float16, float64, got 'int8'"):
        load_model(source, dtype="int8")
    with pytest.raises(ValueError, match="vocab must be at least 258"):
        write_checkpoint(tmp_path / "small", vocab=100)


def test_ids_without_a_tokenizer_are_held_against_the_vocabulary(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    configure(folder, mask_token_id=9999)
    with pytest.raises(ValueError, match=r"mask_id must lie in \[0, 258\), got 9999"):
        read_spec(folder)
    configure(folder, mask_token_id=256)
    with pytest.raises(ValueError, match="mask_id and eos_ids must differ"):
        read_spec(folder)
