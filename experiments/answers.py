"""From a generation result to the line that is kept of it: visible text, its tokens, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evals.task import Answer

if TYPE_CHECKING:
    from dinfer.types import GenerationResult
    from experiments.prompts import Prompt

Decode = Callable[[Sequence[int]], str]


def cut(text: str, stops: Sequence[str]) -> int | None:
    """Where the first stop string starts, or None."""
    found = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return min(found, default=None)


def tokens_before(tokens: Sequence[int], place: int, decode: Decode) -> int:
    """The fewest leading tokens whose text reaches `place` characters."""
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if len(decode(tokens[:middle])) >= place:
            high = middle
        else:
            low = middle + 1
    return low


def line(
    result: GenerationResult, prompt: Prompt, decode: Decode, *, stops: Sequence[str], mask_id: int, start: str
) -> dict[str, Any]:
    """The record of one answer. `n_tokens` counts visible tokens up to the stop string; `batch` is unique over resumed
    processes because `start` stamps this one."""
    tokens, finish = result.tokens, result.finish
    text = decode(tokens)
    place = cut(text, stops)
    if place is not None:
        tokens, text, finish = tokens[: tokens_before(tokens, place, decode)], text[:place], "stop"
    trace = result.trace
    return {
        "id": result.id,
        "text": text,
        "n_tokens": len(tokens),
        "finish": finish,
        "steps": trace.steps,
        "committed": list(trace.committed),
        "forwards": {"full": trace.full, "refresh": trace.refresh, "window": trace.window},
        "queried": trace.queried,
        "canvas": result.canvas,
        "filled": result.filled,
        "eos": result.eos,
        "mask": mask_id in result.tokens,
        "batch": f"{start}-{result.batch}",
        "rows": result.rows,
        "seconds": result.seconds,
        "batch_forwards": result.batch_forwards,
        "prompt_tokens": len(prompt.ids),
        "prompt_sha256": prompt.sha256,
        "tokens": list(tokens),
    }


def answer(kept: dict[str, Any]) -> Answer:
    """What the scorer sees of a kept line."""
    return Answer(text=kept["text"], finish=kept["finish"], has_mask=bool(kept["mask"]))
