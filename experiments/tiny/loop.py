"""The training loop: one schedule from copying to the mix to a rate of zero, kept alive by its own checkpoints."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from dinfer.models.backbone import Backbone
from experiments.tiny.data import Batch, Mixture, Stream, mask_answers
from experiments.tiny.network import scored_states
from experiments.tiny.optim import Muon

log = logging.getLogger(__name__)

#: Settings that change nothing but what is seen of a run.
FREE = ("save_every", "log_every", "validate_every")


@dataclass(frozen=True, slots=True)
class Settings:
    """A training run. With `max_steps` the schedule counts steps and the run is reproducible; else it counts seconds."""

    seed: int = 0
    seconds: float = 4500.0
    max_steps: int | None = None
    tokens_per_batch: int = 2048
    buckets: tuple[int, ...] = (24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120)
    full: float = 0.15
    canvas: int = 64
    blockwise: float = 0.45
    copy_until: float = 0.8
    copy_share: float = 0.12
    constant_share: float = 0.4
    muon_lr: float = 0.014
    adam_lr: float = 2.5e-3
    clip: float = 1.0
    save_every: float = 180.0
    log_every: int = 50
    validate_every: float = 0.1
    mixture: Mixture = field(default_factory=Mixture)


def initialise(model: Backbone, seed: int) -> None:
    """Small normal weights; matrices that write to the residual stream are smaller still. Norms stay at one."""
    generator = torch.Generator().manual_seed(seed)
    residual = (2 * model.arch.layers) ** -0.5
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim < 2:
                continue
            std = 0.02 if name in ("embedding", "head") else 0.7 * p.shape[1] ** -0.5
            if name.endswith(("attn.out.weight", "ffn.down.weight")):
                std *= residual
            p.copy_(torch.randn(p.shape, generator=generator) * std)


def optimizers(model: Backbone, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, the fused ones in their parts; AdamW for embeddings and norms."""
    groups: dict[int, list[Tensor]] = {1: [], 2: [], 3: []}
    rest = []
    for name, p in model.named_parameters():
        if p.ndim == 2 and name.startswith("layers."):
            groups[3 if "qkv" in name else 2 if "gate_up" in name else 1].append(p)
        else:
            rest.append(p)
    muon = Muon([{"params": ps, "pieces": pieces} for pieces, ps in groups.items()], lr=settings.muon_lr)
    adam = torch.optim.AdamW(rest, lr=settings.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    return [muon, adam]


class Run:
    """Everything that a checkpoint holds, and one step of it."""

    def __init__(self, model: Backbone, tokenizer: PreTrainedTokenizerFast, settings: Settings, folder: Path) -> None:
        self.model, self.settings, self.folder = model, settings, folder
        self.mask_id = tokenizer.mask_token_id
        self.stream = Stream(
            tokenizer,
            settings.seed,
            settings.buckets,
            settings.tokens_per_batch,
            settings.mixture,
            settings.full,
            settings.canvas,
        )
        self.noise = torch.Generator().manual_seed(settings.seed + 1)
        self.optimizers = optimizers(model, settings)
        self.rates = [optimizer.param_groups[0]["lr"] for optimizer in self.optimizers]
        self.step, self.tokens, self.elapsed, self.copied = 0, 0, 0.0, -1
        self.loss = float("nan")
        self.history: list[dict[str, float]] = []

    @property
    def path(self) -> Path:
        return self.folder / "training.pt"

    def _identity(self) -> dict[str, Any]:
        """The settings that a continued run must share with its first part."""
        return {k: v for k, v in asdict(self.settings).items() if k not in FREE}

    def save(self) -> None:
        """Write to a temporary name, then rename: a kill leaves the previous checkpoint whole."""
        state = {
            "settings": self._identity(),
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "stream": self.stream.state_dict(),
            "noise": self.noise.get_state(),
            "counters": (self.step, self.tokens, self.elapsed, self.copied, self.loss),
            "history": self.history,
        }
        temporary = self.path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.path)
        (self.folder / "history.json").write_text(json.dumps(self.history, indent=1) + "\n")

    def load(self) -> bool:
        """Continue where the last checkpoint of this folder stopped; False when there is none."""
        if not self.path.exists():
            return False
        state = torch.load(self.path, weights_only=True)
        for name, value in self._identity().items():
            if state["settings"].get(name) != value:
                raise ValueError(
                    f"{name} must be {state['settings'].get(name)!r} to continue the run in {self.folder}, got {value!r}; "
                    "choose another folder for another run"
                )
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.stream.load_state_dict(state["stream"])
        self.noise.set_state(state["noise"])
        self.step, self.tokens, self.elapsed, self.copied, self.loss = state["counters"]
        self.history = state["history"]
        return True

    @property
    def progress(self) -> float:
        """Share of the schedule that is done, 0 to 1: by steps or by the time spent training."""
        if self.settings.max_steps is not None:
            return min(1.0, self.step / self.settings.max_steps)
        return min(1.0, self.elapsed / self.settings.seconds)

    def rate(self) -> float:
        """Warm-up over 20 steps, constant, then linear to zero."""
        warm = min(1.0, (self.step + 1) / 20)
        constant = self.settings.constant_share
        return warm * min(1.0, (1 - self.progress) / (1 - constant))

    @property
    def copying(self) -> bool:
        return self.copied < 0

    def batch(self) -> Batch:
        if self.copying and (self.loss < self.settings.copy_until or self.progress > self.settings.copy_share):
            self.copied = self.step
            self.loss = float("nan")
        return self.stream.copying() if self.copying else self.stream.next()

    def train_step(self) -> None:
        batch = self.batch()
        hidden, scored = mask_answers(batch, 0.0 if self.copying else self.settings.blockwise, self.noise)
        shown = batch.tokens.masked_fill(hidden, self.mask_id)
        logits = self.model.logits(scored_states(self.model, shown, scored))
        loss = F.cross_entropy(logits.float(), batch.tokens[scored])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * self.rate()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        self.loss = value if math.isnan(self.loss) else 0.95 * self.loss + 0.05 * value
        self.step += 1
        self.tokens += batch.tokens.numel()


def train(run: Run, validate: Callable[[], None]) -> None:
    """Steps until the schedule ends; resumes first when there is something to resume.

    `validate` is called at every `validate_every` of the schedule; the time it takes does not count.
    """
    if run.load():
        log.info("resumed at step %d, %.0f s", run.step, run.elapsed)
    saved, validated = run.elapsed, run.progress // run.settings.validate_every
    while run.progress < 1.0:
        began = time.monotonic()
        run.train_step()
        run.elapsed += time.monotonic() - began
        if run.step % run.settings.log_every == 0:
            report(run)
        if run.progress // run.settings.validate_every > validated:
            validated = run.progress // run.settings.validate_every
            validate()
        if run.elapsed - saved >= run.settings.save_every:
            run.save()
            saved = run.elapsed
    report(run)
    run.save()


def report(run: Run) -> None:
    """One line of progress with the time that is left."""
    speed = run.tokens / max(run.elapsed, 1e-9)
    left = run.elapsed / max(run.progress, 1e-9) * (1 - run.progress)
    run.history.append({"step": run.step, "tokens": run.tokens, "seconds": run.elapsed, "loss": run.loss})
    phase = "copy" if run.copying else "mix"
    log.info(
        "%s step %d  %5.1f %%  loss %.3f  rate %.2f  %.2fM tokens  %.0f tok/s  %.0f s left",
        phase, run.step, 100 * run.progress, run.loss, run.rate(), run.tokens / 1e6, speed, left,
    )  # fmt: skip
