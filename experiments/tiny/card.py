"""The model card of a trained tiny model, written from what the run recorded and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.tiny.evaluate import Summary

TEXT = """\
# Tiny LLaDA

A masked-diffusion language model in the architecture of LLaDA (arXiv:2502.09992), trained from scratch on the procedural
tasks of `evals.builtin`. It exists so that decoding methods can be tried on a CPU and give answers that depend on them.

## Network
{layers} layers, width {d_model}, {n_heads} heads, feed-forward {mlp_hidden_size} (SwiGLU), RMS norm, normalised queries and
keys, rotary positions, tied embeddings, vocabulary {vocab_size}; no causal mask.

## Data
{tasks} drawn on the fly from the training split. An instance belongs to the split that a hash of its content names, so no
question of the test or validation split can occur in training, under whatever names its people or variables have.

## Training
Seed {seed}, {steps} steps, {tokens:.1f}M tokens (prompts and padding counted), {minutes:.0f} minutes on {threads} processor
thread(s).
First rows of random tokens to copy or reverse; then the tasks, at a constant rate up to {constant_share:.0%} of the schedule,
then linearly to zero. Muon for the matrices, AdamW for embeddings and norms; {tokens_per_batch} tokens a batch.
Only answers are masked. {random:.0%} of rows follow LLaDA (a ratio t, uniform, and every answer token masked with
probability t); the others show a clean prefix, one partly masked block of 4 to 32 tokens and masks after it. The loss is the
plain mean of the cross-entropy over a batch's masked tokens; LLaDA's weight 1/t is not applied. Answers end in
end-of-sequence tokens up to the end of their canvas.

## Scores on the test split
Greedy, block length 32, no cache; 95 % Wilson intervals; forwards per answer.

{table}

## Limits
It knows the formats and the small vocabulary of these tasks and nothing else. Positions beyond {longest} were not seen in
training, nor were several turns or system prompts.
"""


def write_card(
    path: Path,
    config: Mapping[str, Any],
    described: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
    results: Mapping[str, Mapping[str, Summary]],
    longest: int = 100,
) -> None:
    """Write the card to `path`."""
    last = history[-1] if history else {"step": 0, "tokens": 0, "seconds": 0.0}
    facts = {
        **config,
        **described,
        "layers": described["n_layers"],
        "tasks": "Word problems, functions, output prediction, instructions and list operations,",
        "steps": int(last["step"]),
        "tokens": last["tokens"] / 1e6,
        "minutes": last["seconds"] / 60,
        "random": 1 - config["blockwise"],
        "table": table(results),
        "longest": longest,
    }
    path.write_text(TEXT.format(**facts))


def table(results: Mapping[str, Mapping[str, Summary]]) -> str:
    """One row a decoding, one column a task: accuracy, interval, forwards."""
    tasks = list(next(iter(results.values())))
    lines = [f"| decoding | {' | '.join(tasks)} | ended by EOS |", f"|---{'|---' * (len(tasks) + 1)}|"]
    for name, scores in results.items():
        cells = (cell(scores[task]) for task in tasks)
        lines.append(f"| {name} | {' | '.join(cells)} | {scores[tasks[0]].stopped:.1%} |")
    return "\n".join(lines)


def cell(summary: Summary) -> str:
    return f"{summary.accuracy:.3f} [{summary.low:.2f}, {summary.high:.2f}] at {summary.forwards:.1f}"
