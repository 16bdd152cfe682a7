"""What a tiny model scores: a task decoded with the library's own engine, and the numbers that its card shows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from dinfer.engine import Engine
from dinfer.types import DiffusionModel, Recipe, Request
from evals.builtin.base import BuiltinTask
from evals.task import Answer, Sample


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: right or not, whether it ended by EOS, and the forwards of its row."""

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


def request(sample: Sample, tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Request:
    """The sample's chat prompt in ids."""
    chat = [{"role": message.role, "content": message.content} for message in sample.messages]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    return Request(sample.id, tuple(tokenizer(text, add_special_tokens=False)["input_ids"]), max_tokens)


def evaluate(
    model: DiffusionModel, tokenizer: PreTrainedTokenizerFast, task: BuiltinTask, recipe: Recipe, batch_size: int = 16
) -> list[Outcome]:
    """Decode and judge every sample of `task`, in the order in which answers were finished."""
    samples = {sample.id: sample for sample in task.samples()}
    asked = [request(sample, tokenizer, task.max_tokens) for sample in samples.values()]
    outcomes = []
    for result in Engine(model, batch_size=batch_size, lockstep=False).generate(asked, recipe):
        sample = samples[result.id]
        text = str(tokenizer.decode(list(result.tokens), skip_special_tokens=True))
        answer = Answer(text, result.finish, model.spec.mask_id in result.tokens)
        names = sample.reference["task"], sample.reference["kind"]
        value = task.score(sample, answer).value
        outcomes.append(Outcome(*names, value, result.finish == "eos", result.trace.forwards, text))
    return outcomes
