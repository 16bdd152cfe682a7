"""The model card of a trained tiny model, written from what the run recorded and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.tiny.evaluate import Summary
from experiments.tiny.scores import Scores

TEXT = """\
# Tiny LLaDA

A masked-diffusion language model in the architecture of LLaDA (arXiv:2502.09992), trained from scratch on the procedural
tasks of `evals.builtin`. It exists so that decoding methods can be tried on a CPU and give answers that depend on them.

## Network
{n_layers} layers, width {d_model}, {n_heads} heads, feed-forward {mlp_hidden_size} (SwiGLU), RMS norm, normalised queries
and keys, rotary positions, tied embeddings, vocabulary {vocab_size}; no causal mask.

## Data
Word problems, functions, output prediction, instructions and list operations, drawn on the fly from the training split. An
instance belongs to the split that a hash of its content names, so no question of the test or validation split can occur in
training, under whatever names its people or variables have.

## Training
Seed {seed}, {steps} steps, {tokens:.1f}M tokens (prompts and padding counted), {minutes:.0f} minutes on {threads} thread(s).
First rows of random tokens to copy or reverse; then the tasks, at a constant rate up to {constant_share:.0%} of the schedule,
then linearly to zero. Muon for the matrices, AdamW for embeddings and norms; {tokens_per_batch} tokens a batch.
Only answers are masked. {random:.0%} of rows follow LLaDA (a ratio t, uniform, and every answer token masked with
probability t); the others show a clean prefix, one partly masked block of 4 to 32 tokens and masks after it. The loss is the
plain mean of the cross-entropy over a batch's masked tokens; LLaDA's weight 1/t is not applied. Answers end in
end-of-sequence tokens up to the end of their canvas.

## Scores on the test split
Questions of `task=builtin`, an equal share of each task; every heading says how many. Greedy, float32, block length 32,
early stop.
Every cell holds the accuracy in percent with its 95 % Wilson interval, and the forwards of an answer after the @.
With {first} and no cache, {stopped:.1%} of answers ended by an end-of-sequence token.

{tables}

## Limits
It knows the formats and the small vocabulary of these tasks and nothing else. Training saw rows of at most {longest} positions;
longer ones are accepted (up to max_sequence_length) but untrained, as are several turns and system prompts.
"""


def write_card(
    path: Path,
    config: Mapping[str, Any],
    described: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
    scores: Scores,
    longest: int = 120,
) -> None:
    """Write the card to `path`."""
    last = history[-1]
    whole = next(iter(next(iter(scores.values())).values()))["builtin"]
    facts = {
        **config,
        **described,
        "steps": int(last["step"]),
        "tokens": last["tokens"] / 1e6,
        "minutes": last["seconds"] / 60,
        "random": 1 - config["blockwise"],
        "first": next(iter(scores)),
        "stopped": whole.stopped,
        "tables": tables(scores),
        "longest": longest,
    }
    path.write_text(TEXT.format(**facts))


def tables(scores: Scores) -> str:
    """A table for each cache: one row a decoding, one column a task."""
    caches = list(next(iter(scores.values())))
    return "\n\n".join(f"### Cache: {cache} ({size(scores, cache)} questions)\n\n{table(scores, cache)}" for cache in caches)


def size(scores: Scores, cache: str) -> int:
    return next(iter(scores.values()))[cache]["builtin"].samples


def table(scores: Scores, cache: str) -> str:
    tasks = list(next(iter(scores.values()))[cache])
    lines = [f"| decoding | {' | '.join(task.removeprefix('builtin_') for task in tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    for decoding, row in scores.items():
        lines.append(f"| {decoding} | {' | '.join(cell(row[cache][task]) for task in tasks)} |")
    return "\n".join(lines)


def cell(summary: Summary) -> str:
    low, mean, high = (100 * share for share in (summary.low, summary.accuracy, summary.high))
    return f"{mean:.1f} [{low:.0f}, {high:.0f}] @{summary.forwards:.1f}"
