"""Time recipes against each other: `python -m experiments.bench [options] [RECIPE…]`, a recipe being words of overrides.

    python -m experiments.bench "cache=none" "cache=dual decoding=threshold" --batch 1,4

All recipes and batch sizes run interleaved in one process, so that ratios mean something on a busy machine; each figure is
the median of the repeats. `plain` is a loop written as LLaDA's own sampler is (arXiv:2502.09992): every step runs the whole
sequence and makes all logits. `outside` is the share of time not spent in the network, `peak` the most tensor memory alive at
once beyond weights and key/value cache. Without `--model` a random LLaDA of 35.8 M parameters is built in memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from dinfer.decoding import Steps
from dinfer.engine import Engine
from dinfer.loop import decode
from dinfer.models import Backbone, load_model
from dinfer.models.architecture import Architecture
from dinfer.types import ModelSpec, Recipe, Request
from experiments.build import build
from experiments.compose import compose
from experiments.errors import ConfigError
from experiments.meter import PeakMemory, TimedModel

DEFAULT = ("cache=none", "cache=prefix", "cache=dual")
COMMON = ("decoding=steps", "decoding.tokens_per_step=4")


@dataclass(slots=True)
class Case:
    """One recipe at one batch size, and what its runs took."""

    label: str
    batch: int
    run: Callable[[list[Request]], None]
    model: TimedModel
    tokens: int
    seconds: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    forwards: int = 0
    peak: int = 0

    def once(self, requests: list[Request]) -> None:
        self.model.reset()
        start = time.perf_counter()
        self.run(requests)
        self.seconds.append(time.perf_counter() - start)
        self.inside.append(self.model.seconds)
        self.forwards = self.model.forwards

    @property
    def typical(self) -> float:
        return median(self.seconds)


def random_llada(*, hidden: int, layers: int, heads: int, ffn: int, vocab: int, seed: int = 0) -> Backbone:
    """A LLaDA with random weights, in memory; the last two ids are end-of-text and mask."""
    arch = Architecture(
        vocab=vocab, hidden=hidden, layers=layers, heads=heads, kv_heads=heads, head_dim=hidden // heads, ffn=ffn,
        rope_theta=5e5, norm_eps=1e-5, max_length=4096,
    )  # fmt: skip
    model = Backbone(arch, ModelSpec(vocab, hidden, vocab - 1, (vocab - 2,), arch.max_length))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
    return model.requires_grad_(False).eval()


@torch.inference_mode()
def plain_loop(model: TimedModel, requests: list[Request], block: int, per_step: int) -> Tensor:
    """LLaDA's sampler without guidance or noise, for equal prompt lengths: ids [B, L]."""
    network, spec = model.model, model.spec
    assert isinstance(network, Backbone)
    first, length = len(requests[0].prompt), requests[0].max_tokens
    x = torch.full((len(requests), first + length), spec.mask_id, device=network.device)
    x[:, :first] = torch.tensor([r.prompt for r in requests], device=network.device)
    for start in range(first, first + length, block):
        stop = min(start + block, first + length)
        for _ in range(-(-(stop - start) // per_step)):
            model.forwards += 1
            logits = model._timed(lambda ids: network.logits(network.full(network.embed(ids))), x)
            logits[..., spec.mask_id] = -torch.inf
            guess = logits.argmax(-1)
            sure = torch.softmax(logits, dim=-1).gather(-1, guess[..., None])[..., 0]
            masked = x == spec.mask_id
            guess = torch.where(masked, guess, x)
            sure = torch.where(masked, sure, -torch.inf)
            sure[:, stop:] = -torch.inf
            for row in range(len(requests)):
                best = sure[row].topk(min(per_step, stop - start)).indices
                x[row, best] = guess[row, best]
    return x


def recipe_of(words: str) -> Recipe:
    """The recipe that these overrides name, on top of four tokens a step in blocks."""
    config, _ = compose([*COMMON, *words.split()])
    parts = {group: build(config[group], group) for group in ("decoding", "iteration", "cache")}
    return Recipe(**parts, guidance=float(config["guidance"]))


def requests_of(spec: ModelSpec, rows: int, prompt: int, new: int) -> list[Request]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, min(spec.vocab, spec.mask_id, *spec.eos_ids), (rows, prompt), generator=generator).tolist()
    return [Request(str(i), tuple(row), new) for i, row in enumerate(ids)]


def cases_of(network: Backbone, options: argparse.Namespace) -> list[Case]:
    cases = []
    for batch in options.batch:
        rows = batch * options.new
        recipes = [
            (words, recipe_of(f"iteration.block_length={options.block} iteration.early_stop=false {words}"))
            for words in options.recipe
        ]
        steps = recipes[0][1].decoding
        if options.plain and isinstance(steps, Steps) and steps.tokens_per_step:
            timed, per_step = TimedModel(network), steps.tokens_per_step

            def run_plain(requests: list[Request], timed: TimedModel = timed, k: int = per_step) -> None:
                plain_loop(timed, requests, options.block, k)

            cases.append(Case("plain", batch, run_plain, timed, rows))
        for words, recipe in recipes:
            timed = TimedModel(network)
            engine = Engine(timed, batch_size=batch, sync_every=options.sync_every)

            def run(requests: list[Request], engine: Engine = engine, recipe: Recipe = recipe) -> None:
                for _ in engine.generate(requests, recipe):
                    pass

            cases.append(Case(words, batch, run, timed, rows))
    return cases


def same_tokens(network: Backbone, options: argparse.Namespace) -> bool:
    """Whether `plain` and the first recipe, which must recompute everything, give the same ids."""
    requests = requests_of(network.spec, 1, options.prompt, options.new)
    recipe = recipe_of(f"iteration.block_length={options.block} iteration.early_stop=false cache=none")
    assert isinstance(recipe.decoding, Steps)
    expected = plain_loop(TimedModel(network), requests, options.block, recipe.decoding.tokens_per_step or 1)
    (ours,) = decode(network, requests, recipe, device=network.device)
    return expected[0, options.prompt :].tolist() == list(ours.tokens)


def measure(cases: Sequence[Case], network: Backbone, options: argparse.Namespace) -> None:
    """A warm-up that also weighs memory, then the repeats, case after case in turn."""
    column = network.arch.kv_bytes(network.embedding.element_size())
    for case in cases:
        requests = requests_of(network.spec, case.batch, options.prompt, options.new)
        cache = 0 if case.label == "plain" else case.batch * (options.prompt + options.new + 1) * column
        if network.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(network.device)
            before = torch.cuda.memory_allocated(network.device)
            case.run(requests)
            case.peak = torch.cuda.max_memory_allocated(network.device) - before - cache
        else:
            with PeakMemory() as meter:
                case.run(requests)
            case.peak = meter.peak - cache
    for _ in range(options.repeats):
        for case in cases:
            case.once(requests_of(network.spec, case.batch, options.prompt, options.new))


def table(cases: Sequence[Case]) -> str:
    heads = ("batch", "forwards", "ms/forward", "outside", "tokens/s", "peak MiB", "speed")
    lines = [f"{'recipe':<44} " + " ".join(f"{head:>10}" for head in heads)]
    base = {case.batch: case for case in reversed(cases)}
    for case in cases:
        outside = 1 - median(i / s for i, s in zip(case.inside, case.seconds, strict=True))
        ratio = median(b / s for b, s in zip(base[case.batch].seconds, case.seconds, strict=True))
        cells = (
            f"{case.batch}",
            f"{case.forwards}",
            f"{1000 * case.typical / case.forwards:.2f}",
            f"{outside:.1%}",
            f"{case.tokens / case.typical:.1f}",
            f"{case.peak / 2**20:.1f}",
            f"{ratio:.2f}x",
        )
        lines.append(f"{case.label:<44} " + " ".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("recipe", nargs="*", default=list(DEFAULT), help="overrides of one recipe, in quotes")
    parser.add_argument("--model", type=Path, help="checkpoint folder; without it a random LLaDA of 35.8 M parameters")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompt", type=int, default=128, help="prompt tokens")
    parser.add_argument("--new", type=int, default=256, help="tokens to generate, all of them")
    parser.add_argument("--block", type=int, default=32, help="block length")
    parser.add_argument("--batch", type=lambda text: [int(n) for n in text.split(",")], default=[1], help="sizes: 1,4")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sync-every", type=int, default=1)
    parser.add_argument("--no-plain", dest="plain", action="store_false", help="leave out the plain loop")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    torch.set_num_threads(options.threads)
    try:
        if options.model:
            network = load_model(options.model, dtype=options.dtype, device=options.device)
        else:
            network = random_llada(hidden=384, layers=6, heads=6, ffn=1024, vocab=32768).to(options.device)
        cases = cases_of(network, options)
    except (ConfigError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    parameters = sum(p.numel() for p in network.parameters()) / 1e6
    print(f"{parameters:.1f} M parameters, {options.dtype}, {options.device}, {options.threads} thread(s)")
    print(f"prompt {options.prompt}, {options.new} new tokens, blocks of {options.block}, median of {options.repeats}")
    measure(cases, network, options)
    print(table(cases))
    if cases[0].label == "plain":
        print(f"tokens of the plain loop and of cache=none: {'equal' if same_tokens(network, options) else 'DIFFERENT'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
