"""Lays out a few-shot prompt: as one plain text, as one chat turn, or as a chat turn for every example.

The layouts are those of lm-eval: without a chat template, with `--apply_chat_template`, and with
`--fewshot_as_multiturn` as well. Nothing here knows a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evals.task import Message

#: `text`: one plain text, no template. `chat`: everything in one user turn. `turns`: each example a user and an
#: assistant turn.
LAYOUTS = ("text", "chat", "turns")


@dataclass(frozen=True, slots=True)
class Shot:
    """A worked example: what was asked, as the prompt asks it, and the answer the model is shown."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A laid-out prompt: exactly one of `messages` and `text` is set, as in `Sample`."""

    messages: tuple[Message, ...] = ()
    text: str | None = None


def lay_out(question: str, shots: Sequence[Shot], layout: str, *, answer_gap: str = " ", shot_gap: str = "\n\n") -> Prompt:
    """The prompt for `question` after `shots`. `answer_gap` stands between an example's question and its answer and
    `shot_gap` behind each example; neither is used in the layout `turns`. ValueError for an unknown layout."""
    if layout == "turns":
        turns = [message for shot in shots for message in (Message("user", shot.question), Message("assistant", shot.answer))]
        return Prompt(messages=(*turns, Message("user", question)))
    text = "".join(f"{shot.question}{answer_gap}{shot.answer}{shot_gap}" for shot in shots) + question
    if layout == "text":
        return Prompt(text=text)
    if layout == "chat":
        return Prompt(messages=(Message("user", text),))
    raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
