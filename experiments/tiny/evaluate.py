"""What a tiny model scores: a task decoded with the library's own loop, and the numbers that its card shows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from dinfer.loop import Decoder
from dinfer.models.backbone import Backbone
from dinfer.types import Recipe, Request
from evals.builtin.base import BuiltinTask
from evals.task import Answer, Sample


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: right or not, whether it ended by EOS, and the steps of its row."""

    task: str
    kind: str
    value: float
    stopped: bool
    forwards: int
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Accuracy with its 95 % Wilson interval, share of answers ended by EOS, mean forwards of an answer."""

    samples: int
    accuracy: float
    low: float
    high: float
    stopped: float
    forwards: float


def wilson(share: float, samples: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a share."""
    centre = share + z * z / (2 * samples)
    spread = z * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples))
    return (centre - spread) / (1 + z * z / samples), (centre + spread) / (1 + z * z / samples)


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    count = len(outcomes)
    accuracy = sum(outcome.value for outcome in outcomes) / count
    return Summary(
        count,
        accuracy,
        *wilson(accuracy, count),
        sum(outcome.stopped for outcome in outcomes) / count,
        sum(outcome.forwards for outcome in outcomes) / count,
    )


def by_task(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes of each task of a mix."""
    parts: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        parts[outcome.task].append(outcome)
    return dict(parts)


def requests(
    samples: Sequence[Sample], tokenizer: PreTrainedTokenizerFast, max_tokens: int
) -> Iterator[tuple[Sample, Request]]:
    """Each sample with its chat prompt in ids."""
    for sample in samples:
        chat = [{"role": message.role, "content": message.content} for message in sample.messages]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        yield sample, Request(sample.id, tuple(tokenizer(text, add_special_tokens=False)["input_ids"]), max_tokens)


def evaluate(
    model: Backbone, tokenizer: PreTrainedTokenizerFast, task: BuiltinTask, recipe: Recipe, batch_size: int = 16
) -> list[Outcome]:
    """Decode and judge every sample of `task`; batches hold prompts of similar length."""
    pairs = sorted(requests(task.samples(), tokenizer, task.max_tokens), key=lambda pair: len(pair[1].prompt))
    outcomes = []
    for first in range(0, len(pairs), batch_size):
        batch = pairs[first : first + batch_size]
        decoder = Decoder(model, [request for _, request in batch], recipe, torch.device("cpu"), lockstep=False)
        for done in decoder.run():
            sample = batch[done.row][0]
            ids, stopped = _cut(done.tokens, model.spec.eos_ids)
            text = str(tokenizer.decode(ids, skip_special_tokens=True))
            answer = Answer(text, "eos" if stopped else "length", model.spec.mask_id in ids)
            value = task.score(sample, answer).value
            names = sample.reference["task"], sample.reference["kind"]
            outcomes.append(Outcome(*names, value, stopped, done.trace.steps, text))
    return outcomes


def _cut(tokens: Sequence[int], ends: Sequence[int]) -> tuple[list[int], bool]:
    """Tokens before the first end-of-sequence id, and whether there was one."""
    for place, token in enumerate(tokens):
        if token in ends:
            return list(tokens[:place]), True
    return list(tokens), False
