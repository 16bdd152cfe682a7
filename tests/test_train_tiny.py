"""The training of the tiny model: its parts, that it can be killed, that it repeats itself, and the command as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dinfer.models.backbone import Backbone
from dinfer.models.checkpoint import load_model, read_spec
from evals.builtin import Builtin
from evals.builtin.instance import split_of
from experiments.tiny import pipeline
from experiments.tiny.data import COPY_COLUMNS, Batch, Mixture, Stream, mask_answers
from experiments.tiny.evaluate import wilson
from experiments.tiny.loop import Run, Settings, initialise, train
from experiments.tiny.network import scored_states
from experiments.tiny.optim import Muon, orthogonalise
from experiments.train_tiny import NetworkSchema, TrainSchema, check

CONFIG: dict[str, Any] = {
    "model": {"name": "llada", "hidden": 32, "layers": 2, "heads": 2, "ffn": 48, "experts": 0, "experts_per_token": 0},
    "vocab": 1280,
    "smoke": True,
}
SETTINGS = Settings(
    seed=3, max_steps=10, tokens_per_batch=256, copy_share=0.3, save_every=0.0, log_every=100, validate_every=1.0
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return pipeline.load_tokenizer(tmp_path_factory.mktemp("tokenizer"), CONFIG)


def fresh(tokens: PreTrainedTokenizerFast, folder: Path, settings: Settings = SETTINGS) -> Run:
    torch.set_num_threads(1)
    model = pipeline.network(pipeline.describe(CONFIG, tokens))
    initialise(model, settings.seed)
    folder.mkdir(exist_ok=True)
    return Run(model, tokens, settings, folder)


def stream(tokens: PreTrainedTokenizerFast, seed: int = 0) -> Stream:
    return Stream(tokens, seed, SETTINGS.buckets, 512, Mixture(), 0.2, 64)


def weights(model: Backbone) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_tokenizer_reads_back_what_it_writes(tokens: PreTrainedTokenizerFast) -> None:
    assert len(tokens) <= 1280
    for instance in Builtin("train").instances(100):
        for text in (instance.prompt, instance.target):
            assert tokens.decode(tokens(text)["input_ids"]) == text
    assert tokens("12 'ab'")["input_ids"] == [tokens.vocab[t] for t in ("1", "2", "Ġ'", "a", "b", "'")]
    assert (tokens.eos_token_id, tokens.pad_token_id, tokens.mask_token_id) == (0, 0, 1)
    chat = [{"role": "user", "content": "Hi"}]
    rendered = tokens.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert rendered == "<|user|>Hi<|assistant|>"


def test_batches_hold_only_training_questions_and_are_numbered(tokens: PreTrainedTokenizerFast) -> None:
    first, second = stream(tokens), stream(tokens)
    for _ in range(3):
        a, b = first.next(), second.next()
        assert torch.equal(a.tokens, b.tokens)
        assert a.tokens.shape[1] in SETTINGS.buckets
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.next().tokens, second.next().tokens)
    assert not torch.equal(stream(tokens, 1).next().tokens, stream(tokens).next().tokens)
    for kind in ("math", "lists"):
        part = first.parts[f"builtin_{kind}"]
        assert {split_of(instance.key) for instance in part.instances(50)} == {"train"}


def test_copying_rows_repeat_or_reverse_their_prompt(tokens: PreTrainedTokenizerFast) -> None:
    batch = stream(tokens).copying()
    assert batch.tokens.shape == (512 // COPY_COLUMNS, COPY_COLUMNS)
    for row, prompt, length in zip(batch.tokens.tolist(), batch.prompt.tolist(), batch.length.tolist(), strict=True):
        body, answer = row[1 : prompt - 1], row[prompt : prompt + length]
        assert answer in (body, body[::-1])
        assert set(row[prompt + length :]) <= {tokens.eos_token_id}


def test_masks_lie_in_answers_and_follow_both_patterns() -> None:
    rows, columns = 400, 40
    batch = Batch(torch.zeros(rows, columns, dtype=torch.long), torch.full((rows,), 10), torch.full((rows,), 20))
    noise = torch.Generator().manual_seed(0)
    hidden, scored = mask_answers(batch, 0.0, noise)
    assert torch.equal(hidden, scored)
    assert not hidden[:, :10].any()
    assert hidden[:, 10:].float().mean().item() == pytest.approx(0.5, abs=0.05)  # t is uniform
    assert hidden.float().mean(1).std() > 0.1  # and its own in every row
    hidden, scored = mask_answers(batch, 1.0, noise)
    assert not (scored & ~hidden).any()
    for row, counted in zip(hidden.tolist(), scored.tolist(), strict=True):
        places = [i for i, flag in enumerate(counted) if flag]
        after = [i for i, flag in enumerate(row) if flag and i not in places]
        assert max(places, default=0) - min(places, default=0) < 32
        assert after == list(range(columns - len(after), columns))  # everything after the block is masked


def test_training_sees_the_states_of_the_network(tokens: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = fresh(tokens, tmp_path).model
    ids = torch.randint(2, 200, (3, 17))
    scored = torch.rand(3, 17) < 0.4
    torch.testing.assert_close(scored_states(model, ids, scored), model.full(model.embed(ids))[scored])


@pytest.mark.parametrize("shape", [(24, 24), (48, 24), (24, 48)])
def test_muon_equals_that_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    optimizers = Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.05, momentum=0.95)
    for _ in range(3):
        gradient = torch.randn(shape)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=0)  # torch iterates in bfloat16
    values = torch.linalg.svdvals(orthogonalise(torch.randn(1, *shape)))
    assert values.min() > 0.5
    assert values.max() < 1.5


def test_fused_matrices_are_updated_in_their_parts() -> None:
    torch.manual_seed(0)
    fused, parts = torch.nn.Parameter(torch.ones(12, 4)), [torch.nn.Parameter(torch.ones(4, 4)) for _ in range(3)]
    fused.grad = torch.randn(12, 4)
    for part, gradient in zip(parts, fused.grad.chunk(3), strict=True):
        part.grad = gradient.clone()
    Muon([{"params": [fused], "pieces": 3}], lr=0.1).step()
    Muon(parts, lr=0.1).step()
    torch.testing.assert_close(fused, torch.cat([p.detach() for p in parts]))


def test_the_same_seed_gives_the_same_weights_killed_or_not(tokens: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    whole = fresh(tokens, tmp_path / "whole")
    train(whole, lambda: None)
    killed = fresh(tokens, tmp_path / "killed")

    def kill() -> None:
        if killed.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_calling(killed, kill)
    resumed = fresh(tokens, tmp_path / "killed")
    train(resumed, lambda: None)
    assert resumed.step == whole.step == 10
    assert torch.equal(weights(resumed.model), weights(whole.model))
    other = fresh(tokens, tmp_path / "other", Settings(seed=4, max_steps=10, tokens_per_batch=256))
    train(other, lambda: None)
    assert not torch.equal(weights(other.model), weights(whole.model))


def train_calling(run: Run, after_step: Any) -> None:
    """Train, calling `after_step` after each."""
    step = run.train_step

    def stepped() -> None:
        step()
        after_step()

    run.train_step = stepped  # type: ignore[method-assign]
    train(run, lambda: None)


def test_a_folder_of_another_run_is_refused(tokens: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    fresh(tokens, tmp_path).save()
    with pytest.raises(ValueError, match=r"seed must be 3 to continue the run in .*, got 4"):
        fresh(tokens, tmp_path, Settings(seed=4, max_steps=10, tokens_per_batch=256)).load()


def test_the_rate_is_constant_and_then_falls_to_zero(tokens: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    run = fresh(tokens, tmp_path, Settings(max_steps=1000))
    rates = []
    for run.step in (0, 100, 400, 700, 1000):
        rates.append(run.rate())
    assert rates == pytest.approx([0.05, 1.0, 1.0, 0.5, 0.0])


def test_the_loss_falls(tokens: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    run = fresh(tokens, tmp_path, Settings(max_steps=400, tokens_per_batch=512, copy_share=0.0, log_every=10))
    losses = []
    for _ in range(60):
        run.train_step()
        losses.append(run.loss)
    assert losses[-1] < losses[1] - 1.0


def test_wilson_intervals_hold_the_share() -> None:
    low, high = wilson(0.7, 300)
    assert (round(low, 3), round(high, 3)) == (0.646, 0.749)
    assert wilson(0.0, 50)[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_steps", 0, "max_steps must be at least 1 or null, got 0"),
        ("full", 1.0, r"full must lie in \[0, 1\), got 1.0"),
        ("threads", 0, "threads must be above 0, got 0"),
    ],
)
def test_configuration_errors_name_the_field(field: str, value: object, message: str) -> None:
    config = TrainSchema()
    setattr(config, field, value)
    with pytest.raises(ValueError, match=message):
        check(config)


def test_networks_that_cannot_be_trained_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model.experts must be 0, .* use model=llada"):
        check(TrainSchema(model=NetworkSchema(experts=8)))
    with pytest.raises(ValueError, match=r"model.hidden must be a multiple of twice heads, got 190 and 6"):
        check(TrainSchema(model=NetworkSchema(hidden=190)))


def test_smoke_does_all_of_it(tmp_path: Path) -> None:
    """The command as a user types it; its checkpoint loads like any other."""
    command = [sys.executable, "-m", "experiments.train_tiny", "--smoke", f"folder={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "checkpoint"
    assert read_spec(folder).mask_id == 1
    model = load_model(folder)
    again = AutoTokenizer.from_pretrained(str(folder))
    assert model.embedding.shape[0] == len(again)
    card = (folder / "README.md").read_text()
    assert "| threshold 0.9 |" in card
    assert "12 steps" in card
    refused = subprocess.run([*command[:3], "no_such_key=1"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert "no_such_key" in refused.stderr
