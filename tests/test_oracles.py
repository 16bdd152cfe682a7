"""The replay tool: all recorded decodings of the public implementations match, and it says so when one does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dinfer.models import load_model
from dinfer.models.random import write_checkpoint
from dinfer.types import Request
from tests.networks import by_hand
from tests.oracles import check, main


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llada_tiny", "llada_tiny_gqa", "llada_tiny_eos"])
def test_every_recorded_decoding_is_repeated(shared: Path, name: str) -> None:
    folder = shared / "oracles" / name
    if not folder.is_dir():
        pytest.skip(f"needs the recorded decodings in {folder}")
    matched, total, problems = check(folder)
    assert problems == []
    assert matched == total > 300


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the same format: another depth, other heads, recorded from a plain loop over full forwards."""
    folder = tmp_path_factory.mktemp("recorded") / "own"
    write_checkpoint(folder, seed=21, hidden=36, layers=4, heads=6, kv_heads=3, ffn=40, scale=3.0, gain=3.0)
    model, traces = load_model(folder, dtype="float64"), []
    for i, (prompt, scale) in enumerate([((65, 66, 67), 0.0), ((70, 71, 72, 73, 74), 1.5)]):
        output = by_hand(model, Request("", prompt, 12), 4, scale)
        params = {"tokens_per_step": 1, "cfg_scale": scale}
        trace = {"name": f"own{i}", "family": "llada_official", "params": params, "prompt": list(prompt)}
        traces.append(trace | {"gen_length": 12, "block_length": 4, "output": list(output), "num_forwards": 12})
    (folder / "traces.json").write_text(json.dumps(traces))
    ids = torch.tensor([[65, 66, 67, 257, 257, 257]])
    logits = model.logits(model.full(model.embed(ids))).float()
    save_file({"input_ids": ids.int(), "logits": logits}, folder / "logits.safetensors")
    return folder


def test_a_folder_never_seen_matches(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(recorded)]) == 0
    assert capsys.readouterr().out == "own: matched 3 of 3\n"


def spoil(**changes: Any) -> Callable[[Path], None]:
    """Change fields of the second trace."""

    def change(folder: Path) -> None:
        traces = json.loads((folder / "traces.json").read_text())
        traces[1] |= {k: v(traces[1][k]) for k, v in changes.items()}
        (folder / "traces.json").write_text(json.dumps(traces))

    return change


def spoil_logits(folder: Path) -> None:
    tensors = load_file(folder / "logits.safetensors")
    tensors["logits"][0, 3, 5] += 2e-5 * tensors["logits"].abs().max()
    save_file(tensors, folder / "logits.safetensors")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (spoil(output=lambda tokens: [*tokens[:7], tokens[7] ^ 1, *tokens[8:]]), "own/own1: token 7 of 12 differs"),
        (spoil(output=lambda tokens: tokens[:11]), "own/own1: token 11 of 11 differs"),
        (spoil(num_forwards=lambda n: n - 1), "own/own1: 12 forwards, the reference took 11"),
        (spoil(params=lambda p: {**p, "cfg_scale": 0.0}), "own/own1: token"),
        (spoil_logits, "own/logits: relative difference"),
    ],
    ids=["a token", "length", "forwards", "guidance", "logits"],
)
def test_a_corrupted_record_is_reported(
    recorded: Path, tmp_path: Path, change: Callable[[Path], None], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    for file in recorded.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    change(folder)
    assert main([str(folder), str(recorded)]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(complaint)
    assert second == "own: matched 2 of 3"
    assert third == "own: matched 3 of 3"


def test_without_folders_the_usage_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: python -m tests.oracles FOLDER" in capsys.readouterr().err
