"""The grid of the model card: every decoding with every cache on the test split, one cell after the other, resumable."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from dinfer.cache import Window
from dinfer.decoding import Credit, Factor, Hierarchy, Steps, Threshold
from dinfer.iteration import Blockwise
from dinfer.models.checkpoint import load_model
from dinfer.types import CachePolicy, DecodingStrategy, Recipe
from evals.builtin import Builtin
from experiments.tiny.evaluate import Summary, by_task, evaluate, summarise

log = logging.getLogger(__name__)

#: Decoding -> cache -> task -> summary; the whole mix is the task `builtin`.
Scores = dict[str, dict[str, dict[str, Summary]]]

DECODINGS: dict[str, DecodingStrategy] = {
    "1 a step": Steps(tokens_per_step=1),
    "2 a step": Steps(tokens_per_step=2),
    "4 a step": Steps(tokens_per_step=4),
    "8 a step": Steps(tokens_per_step=8),
    "threshold 0.9": Threshold(threshold=0.9),
    "threshold 0.7": Threshold(threshold=0.7),
    "threshold 0.5": Threshold(threshold=0.5),
    "factor 1.0": Factor(factor=1.0),
    "credit": Credit(inner=Threshold(threshold=0.9)),
    "hierarchy": Hierarchy(threshold=0.9, low_threshold=0.4),
}
CACHES: dict[str, CachePolicy] = {
    "none": Window(),
    "prefix": Window(before=0),
    "dual": Window(before=0, after=0),
    "vicinity": Window(before=16, after=16),
}
#: What a smoke run decodes.
FEW_DECODINGS = ("8 a step", "threshold 0.9")
FEW_CACHES = ("none", "dual")


def grid(checkpoint: Path, tokenizer: PreTrainedTokenizerFast, size: int, file: Path, few: bool = False) -> Scores:
    """Scores of the checkpoint as it was written, on `size` questions of the mix; cells already in `file` are read from it."""
    model = load_model(checkpoint)
    scores = read(file)
    for cache in FEW_CACHES if few else CACHES:
        for decoding in FEW_DECODINGS if few else DECODINGS:
            if cache in scores.get(decoding, {}):
                continue
            recipe = Recipe(DECODINGS[decoding], Blockwise(), CACHES[cache])
            outcomes = evaluate(model, tokenizer, Builtin("test", size), recipe)
            parts = {task: summarise(part) for task, part in sorted(by_task(outcomes).items())}
            whole = summarise(outcomes)
            scores.setdefault(decoding, {})[cache] = {"builtin": whole, **parts}
            file.write_text(json.dumps(plain(scores), indent=1) + "\n")
            log.info("test, %s, cache %s: %.3f with %.1f forwards", decoding, cache, whole.accuracy, whole.forwards)
    return scores


def plain(scores: Scores) -> Mapping[str, object]:
    """The same for JSON."""
    return {
        decoding: {cache: {task: asdict(summary) for task, summary in parts.items()} for cache, parts in row.items()}
        for decoding, row in scores.items()
    }


def read(file: Path) -> Scores:
    """What `plain` wrote; nothing when there is no file."""
    if not file.exists():
        return {}
    return {
        decoding: {cache: {task: Summary(**numbers) for task, numbers in parts.items()} for cache, parts in row.items()}
        for decoding, row in json.loads(file.read_text()).items()
    }
