"""What every benchmark is: samples with prompts, and a scorer that turns one answer into one verdict.

Nothing here generates text. A task is a frozen dataclass whose fields are its configuration, so that its `repr`
is the part of a run's identity that belongs to the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

#: Every verdict is exactly one of these. `right` and `wrong` answered the question; the others did not.
OUTCOMES = ("right", "wrong", "empty", "truncated", "no_answer", "mask", "timeout", "crashed")

#: How an answer ended: an end-of-sequence token, the token budget, or a stop string.
FINISHES = ("eos", "length", "stop")


@dataclass(frozen=True, slots=True)
class Message:
    """One chat turn; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One question.

    `messages` is the conversation to answer (rendered by the checkpoint's chat template, or joined as plain text when
    it has none); `prefill` is text the answer is made to start with: the model continues it, it is not part of the
    answer. `text`, when set, is the whole prompt as plain text and no template is applied (base-model style).
    `reference` is whatever the scorer needs; it must survive a round trip through JSON.
    """

    id: str
    messages: tuple[Message, ...] = ()
    prefill: str = ""
    text: str | None = None
    reference: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote for one sample, special tokens removed, cut at the first stop string."""

    text: str
    finish: str = "eos"
    has_mask: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict on one answer.

    `value` in [0, 1] is what accuracy averages; `metrics` holds further named numbers (`strict`, `flexible`, …), each
    averaged over the run; `answer` is what was extracted; `explanation` is one line a person can act on.
    """

    value: float
    outcome: str
    answer: str | None = None
    explanation: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """A benchmark. Implementations are frozen dataclasses that validate in `__post_init__` (ValueError) and read no
    data before `samples` is called."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever a verdict can change; part of a score's identity."""
        ...

    @property
    def max_tokens(self) -> int:
        """Default answer budget, in tokens."""
        ...

    @property
    def stop(self) -> Sequence[str]:
        """Strings at which an answer is cut."""
        ...

    def samples(self) -> list[Sample]:
        """All samples, in a fixed order, ids unique. ValueError naming path and field when the data is unusable."""
        ...

    def provenance(self) -> dict[str, Any]:
        """Where the rows came from: source, revision, rows, sha256, notes on what differs from the published set."""
        ...

    def score(self, sample: Sample, answer: Answer) -> Score:
        """Judge one answer. Safe to call from several processes; runs model-written code only in the sandbox."""
        ...
