"""The ways GSM8K is asked in published evaluations, by name: wording, worked examples, layout and stop strings.

No worked example is stored here. They are rows of the train split (drawn at random as lm-eval draws them, or the four
rows OpenCompass uses), rows of a file, or those of the task file that an installed lm-eval ships.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evals.styles import Shot

#: How the four train rows begin that OpenCompass (gsm8k_gen_1d7fe4) and dInfer show as examples, in their order.
OPENCOMPASS_ROWS = (
    "Angelo and Melanie want to plan how many hours",
    "Mark's basketball team scores 25 2 pointers",
    "Bella has two times as many marbles as frisbees",
    "A group of 4 fruit baskets contains 9 apples",
)


@dataclass(frozen=True, slots=True)
class Style:
    """One way of asking.

    `question` is the wording with `{question}` in it; `closing` ends an example's solution (None: the row's own
    answer, unchanged); `mark` is what the strict filter looks for (see `extract.marked_number`); `pick` says where
    examples come from: `sampled` (a fresh draw from train for every question), `opencompass` or `lm_eval`.
    """

    question: str
    closing: str | None
    mark: str
    shots: int
    pick: str
    layout: str
    stop: tuple[str, ...]
    answer_gap: str = " "

    def ask(self, question: str) -> str:
        return self.question.replace("{question}", question)

    def work(self, answer: str) -> str:
        """A row's answer as an example shows it."""
        return answer if self.closing is None else _conclude(answer, self.closing)

    def reference(self, answer: str) -> str:
        """A row's answer as this style hopes to get it: with the mark that the strict filter looks for."""
        return _conclude(answer, _CLOSINGS[self.mark])


_CLOSINGS = {"hashes": "\n#### {answer}", "answer_is": "\nThe answer is {answer}.", "boxed": "\n\\boxed{{answer}}"}


def _conclude(answer: str, closing: str) -> str:
    """A row's answer without calculator annotations, its last line replaced by `closing`."""
    solution, _, number = re.sub(r"<<[^<>]*>>", "", answer).rpartition("####")
    return (solution.rstrip() + closing.replace("{answer}", number.strip())).lstrip()


_TAGS = ("</s>", "<|im_end|>")
_LM_EVAL = Style("Question: {question}\nAnswer:", None, "hashes", 5, "sampled", "text", ("Question:", *_TAGS))
_COT = Style("Q: {question}\nA:", " The answer is {answer}.", "answer_is", 8, "lm_eval", "text", ("Q:", *_TAGS))
_OPENCOMPASS = Style(
    "Question: {question}\nLet's think step by step\nAnswer:",
    "\nThe answer is {answer}\n",
    "answer_is",
    4,
    "opencompass",
    "turns",
    ("Question:",),
)

#: `lm_eval`, `lm_eval_cot`, `lm_eval_cot_zeroshot`: lm-eval's gsm8k, gsm8k_cot and gsm8k_cot_zeroshot.
#: `opencompass`: gsm8k_gen_1d7fe4, four examples as turns; `opencompass_boxed`: gsm8k_0shot_v2_gen_a58960.
#: `llada_base`, `dream_base`, `dream_instruct`: the lm-eval tasks those projects run; `llada_instruct`: OpenCompass's.
#: `dinfer`: OpenCompass's examples, all in one turn.
STYLES: Mapping[str, Style] = {
    "lm_eval": _LM_EVAL,
    "lm_eval_cot": _COT,
    "lm_eval_cot_zeroshot": Style(
        "Q: {question}\nA: Let's think step by step.", None, "answer_is", 0, "sampled", "text", ("Q:", *_TAGS)
    ),
    "opencompass": _OPENCOMPASS,
    "opencompass_boxed": Style(
        "{question}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        _CLOSINGS["boxed"],
        "boxed",
        0,
        "sampled",
        "chat",
        (),
    ),
    "llada_base": _LM_EVAL,
    "llada_instruct": _OPENCOMPASS,
    "dream_base": _COT,
    "dream_instruct": replace(_COT, shots=0, layout="chat"),
    "dinfer": replace(_OPENCOMPASS, layout="chat", stop=("Question:", *_TAGS)),
}


def shot_picker(
    style: Style, train: Sequence[Mapping[str, Any]], count: int, seed: int, *, in_order: bool
) -> Callable[[], list[Shot]]:
    """A function that gives the `count` examples of the next question.

    `in_order` takes the first rows of `train` whatever the style says: the rows of a file given for the purpose or of
    the package's samples. ValueError when there are too few rows.
    """
    if count == 0:
        return lambda: []
    if style.pick == "sampled" and not in_order:
        _enough(len(train), count, "train rows")
        # One generator for all questions, as lm-eval's sampler keeps it: the draw depends on the question's index.
        draw = random.Random(seed)
        return lambda: [_shot(style, row) for row in draw.sample(train, count)]
    rows: Sequence[Mapping[str, Any]]
    if in_order:
        rows = train
    elif style.pick == "opencompass":
        rows = [_row_that_begins(train, start) for start in OPENCOMPASS_ROWS]
    else:
        rows = lm_eval_rows()
    _enough(len(rows), count, "examples of this style")
    shots = [_shot(style, row) for row in rows[:count]]
    return lambda: shots


def lm_eval_rows() -> list[dict[str, Any]]:
    """The eight chain-of-thought examples (Wei et al. 2022, arXiv:2201.11903) of the installed lm-eval's gsm8k_cot,
    read from its task file without importing it. ValueError where lm-eval is absent."""
    import yaml

    package = find_spec("lm_eval")
    if package is None or package.origin is None:
        raise ValueError(
            "the examples of this style are read from lm-eval, which is not installed: pip install 'dinfer[lm-eval]', "
            "give train_path=FILE with rows of your own (question, answer), or set shots=0"
        )
    path = Path(package.origin).parent / "tasks" / "gsm8k" / "gsm8k-cot.yaml"
    try:
        samples = yaml.safe_load(path.read_text(encoding="utf-8"))["fewshot_config"]["samples"]
        return [{"question": row["question"], "answer": row["target"]} for row in samples]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"the installed lm-eval has no examples in {path.name} ({error}); give train_path") from error


def _shot(style: Style, row: Mapping[str, Any]) -> Shot:
    answer = str(row["answer"])
    return Shot(style.ask(str(row["question"])), style.work(answer) if "####" in answer else answer)


def _row_that_begins(train: Sequence[Mapping[str, Any]], start: str) -> Mapping[str, Any]:
    for row in train:
        if str(row["question"]).startswith(start):
            return row
    raise ValueError(f"the train rows lack the example that begins {start!r}; give the published train split")


def _enough(have: int, want: int, what: str) -> None:
    if have < want:
        raise ValueError(f"shots must be at most {have}, the number of {what}, got {want}")
