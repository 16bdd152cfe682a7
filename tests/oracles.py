"""Replay recorded decodings of the public implementations: `python -m tests.oracles FOLDER…`.

A folder holds `config.json`, `model.safetensors`, `logits.safetensors` and `traces.json`. Tokens must be equal (up to the
first end-of-sequence token where a case stops early), our forwards must not exceed theirs, and float32 logits must agree
within 1e-5 of the largest magnitude. Prints `matched N of M` per folder; exit status 1 on any mismatch.

Traces are replayed with float64 weights, norms and rotations in float32 as in the public classes: they were kept only where
the references gave the same tokens in float32 and float64, and smoothing feeds rounding back into the network (it grows
about twofold a step), so that two float32 runs of one network can part ways.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from dinfer.cache import Window
from dinfer.decoding import Credit, Hierarchy, Steps, Threshold
from dinfer.iteration import Blockwise, Smooth
from dinfer.loop import decode
from dinfer.models import Backbone, load_model
from dinfer.models.attention import KVCache, visible_keys
from dinfer.types import CachePolicy, DecodingStrategy, IterationManager, Recipe, Request

WINDOWS = {None: (None, None), "none": (None, None), "prefix": (0, None), "dual": (0, 0)}


def recipe_of(trace: Mapping[str, Any]) -> Recipe:
    """Our settings for a trace of any known family."""
    params, family = trace["params"], trace["family"]
    if family == "llada_official":
        iteration = Blockwise(block_length=trace["block_length"], early_stop=False)
        return Recipe(Steps(tokens_per_step=params["tokens_per_step"]), iteration, Window(), params["cfg_scale"])
    if family == "fast_dllm":
        decoding: DecodingStrategy = (
            Steps(tokens_per_step=params["tokens_per_step"])
            if params["threshold"] is None
            else Threshold(threshold=params["threshold"])
        )
        before, after = WINDOWS[params["cache"]]
        iteration = Blockwise(block_length=trace["block_length"], early_stop=False)
        return Recipe(decoding, iteration, Window(before=before, after=after))
    if family == "dinfer":
        return Recipe(_dinfer_decoding(params), _dinfer_iteration(trace), _dinfer_cache(params))
    raise ValueError(f"trace {trace['name']}: family {family!r} is not known here")


def _dinfer_decoding(params: Mapping[str, Any]) -> DecodingStrategy:
    if params["decoder"].startswith("hierarchy"):
        return Hierarchy(threshold=params["threshold"], low_threshold=params["low_threshold"])
    plain = Threshold(threshold=params["threshold"])
    if params["decoder"].startswith("credit"):
        return Credit(inner=plain, alpha=params["credit_alpha"], gamma=params["boost_gamma"], beta=params["decay_beta"])
    return plain


def _dinfer_iteration(trace: Mapping[str, Any]) -> IterationManager:
    params = trace["params"]
    common = {"block_length": trace["block_length"], "early_stop": params["early_stop"]}
    if not params["iteration"].startswith("smooth"):
        return Blockwise(**common)
    return Smooth(
        **common,
        weight=params["cont_weight"],
        weight_init=params["cont_weight_init"],
        weight_growth=params["cont_weight_growth"],
        threshold_decay=params["threshold_decay"],
    )


def _dinfer_cache(params: Mapping[str, Any]) -> CachePolicy:
    if params["iteration"].endswith("vicinity"):
        return Window(before=params["prefix_look"], after=params["after_look"], warmup=params["warmup_steps"])
    before, after = WINDOWS[params["cache"]]
    return Window(before=before, after=after, refresh_every=params.get("cache_update_freq"))


def replay(model: Backbone, trace: Mapping[str, Any]) -> str | None:
    """Why a trace does not match, or None."""
    recipe = recipe_of(trace)
    request = Request(trace["name"], tuple(trace["prompt"]), trace["gen_length"])
    (ours,) = decode(model, [request], recipe)
    got, expected = list(ours.tokens), list(trace["output"])
    if trace["params"].get("early_stop"):
        eos = model.spec.eos_ids[0]
        got, expected = (t[: t.index(eos)] if eos in t else t for t in (got, expected))
    if got != expected:
        pairs = enumerate(zip(got, expected, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(expected)))
        return f"token {at} of {len(expected)} differs: {got[at : at + 3]}, expected {expected[at : at + 3]}"
    if ours.trace.forwards > trace["num_forwards"]:
        return f"{ours.trace.forwards} forwards, the reference took {trace['num_forwards']}"
    return None


def logit_gap(model: Backbone, folder: Path) -> dict[str, float]:
    """Largest difference over largest magnitude for every recorded logits tensor."""
    recorded = load_file(folder / "logits.safetensors")
    ids = recorded.pop("input_ids").long()
    slots = torch.arange(ids.shape[1]).expand_as(ids)
    end = torch.full((len(ids),), ids.shape[1])
    gaps = {}
    for name, expected in recorded.items():
        cache = KVCache.allocate(model.arch, ids.shape[0], ids.shape[1], model.embedding)
        with torch.inference_mode():
            visible = visible_keys(slots, end, ids.shape[1], model.spec.block, True)
            ours = model.logits(model(model.embed(ids), slots, cache, visible))
        gaps[name] = float((ours - expected).abs().max() / expected.abs().max())
    return gaps


def check(folder: Path) -> tuple[int, int, list[str]]:
    """Matched and total comparisons of one folder, and what went wrong."""
    traces = json.loads((folder / "traces.json").read_text())
    problems = []
    gaps = logit_gap(load_model(folder), folder)
    for name, gap in gaps.items():
        if not gap <= 1e-5:
            problems.append(f"{folder.name}/{name}: relative difference {gap:.2g}")
    exact = load_model(folder, dtype="float64", exact="float32")
    for trace in traces:
        why = replay(exact, trace)
        if why:
            problems.append(f"{folder.name}/{trace['name']}: {why}")
    total = len(gaps) + len(traces)
    return total - len(problems), total, problems


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: python -m tests.oracles FOLDER…", file=sys.stderr)
        return 2
    failed = False
    for name in arguments:
        matched, total, problems = check(Path(name))
        for problem in problems:
            print(problem)
        print(f"{Path(name).name}: matched {matched} of {total}")
        failed |= bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
