"""GSM8K: grade-school maths problems with one number as the answer (Cobbe et al. 2021, arXiv:2110.14168).

Judges by number, not by string, and always with both filters that published results name: `strict` (the number stands
behind the mark that the prompt asks for) and `flexible` (the last number of the answer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evals import extract
from evals.data import HubSource, Rows, load_rows
from evals.gsm8k_styles import STYLES, Style, shot_picker
from evals.styles import LAYOUTS, lay_out
from evals.task import Answer, Sample, Score

#: openai/gsm8k at this commit has the rows of the original release.
REVISION = "740312add88f781978c0658806c59bc2815b9866"
SPLITS = {"test": 1319, "train": 7473}
METRICS = ("flexible", "strict", "stated")
_COLUMNS = ("question", "answer")


@dataclass(frozen=True, slots=True)
class Gsm8k:
    """Fields:

    - `source`: `hub` or `sample` (a few rows of the package); `path`: a file of rows instead (question, answer).
    - `split`: `test` or `train`, of the hub.
    - `style`: a name of `gsm8k_styles.STYLES`; the default asks for its mark in words and needs no examples. `shots`
      and `layout` (`text`, `chat`, `turns`) replace what it says.
    - `train_path`: a file of rows for examples. The style picks among them as among the published train split; for
      `lm_eval_cot` and `dream_base`, whose examples are no train rows, the first ones are taken.
    - `seed`: draws the examples of styles that draw them; 1234 is lm-eval's.
    - `metric`: what counts as accuracy: `flexible`, `strict` or `stated` (the number of an explicit final statement
      in any form, else the last number). The default is `flexible` because it is what published numbers of diffusion
      models report and the only one that does not depend on whether the prompt taught the mark.
    - `max_tokens`: answer budget; `extra_stop`: stop strings besides the style's.
    """

    source: str = "hub"
    path: str | None = None
    split: str = "test"
    style: str = "opencompass_boxed"
    shots: int | None = None
    layout: str | None = None
    train_path: str | None = None
    seed: int = 1234
    metric: str = "flexible"
    max_tokens: int = 512
    extra_stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        for field, value, allowed in (
            ("split", self.split, tuple(SPLITS)),
            ("style", self.style, tuple(STYLES)),
            ("metric", self.metric, METRICS),
            ("layout", self.layout or LAYOUTS[0], LAYOUTS),
            ("source", self.source, ("hub", "sample")),
        ):
            if value not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, got {value!r}")
        if self.shots is not None and not 0 <= self.shots <= 64:
            raise ValueError(f"shots must lie in [0, 64], got {self.shots}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if isinstance(self.extra_stop, str) or not all(isinstance(s, str) and s for s in self.extra_stop):
            raise ValueError(f"extra_stop must be a list of non-empty strings, got {self.extra_stop!r}")
        object.__setattr__(self, "extra_stop", tuple(self.extra_stop))

    @property
    def name(self) -> str:
        return "gsm8k"

    @property
    def version(self) -> str:
        return "1"

    @property
    def stop(self) -> Sequence[str]:
        return (*self._style.stop, *self.extra_stop)

    @property
    def _style(self) -> Style:
        return STYLES[self.style]

    @property
    def _count(self) -> int:
        return self._style.shots if self.shots is None else self.shots

    def samples(self) -> list[Sample]:
        style, loaded = self._style, self._rows()
        train = self._train()
        pick = shot_picker(style, train.rows if train else [], self._count, self.seed, in_order=self._shots_in_order())
        return [self._sample(index, row, pick()) for index, row in enumerate(loaded.rows)]

    def _sample(self, index: int, row: dict[str, Any], shots: Sequence[Any]) -> Sample:
        where = f"gsm8k row {index}"
        question, answer = row["question"], row["answer"]
        if not isinstance(question, str) or not isinstance(answer, str):
            raise ValueError(f"{where}: question and answer must be strings, got {question!r} and {answer!r}")
        gold = extract.first_number(answer.rpartition("####")[2]) if "####" in answer else None
        if gold is None:
            raise ValueError(f"{where}: answer must end with '#### ' and a number, got {answer[-40:]!r}")
        style = self._style
        prompt = lay_out(style.ask(question), shots, self.layout or style.layout, answer_gap=style.answer_gap)
        return Sample(
            id=f"gsm8k-{self.split}-{index}",
            messages=prompt.messages,
            text=prompt.text,
            reference={"answer": gold.text, "solution": answer},
        )

    def provenance(self) -> dict[str, Any]:
        train = self._train()
        return {**self._rows().provenance, "shots": train.provenance if train else None}

    def reference_answer(self, sample: Sample) -> str | None:
        """The data's own solution, ending as the style wants answers to end."""
        solution = sample.reference.get("solution")
        return None if solution is None else self._style.reference(solution)

    def score(self, sample: Sample, answer: Answer) -> Score:
        expected = extract.first_number(str(sample.reference["answer"]))
        if expected is None:
            raise ValueError(f"{sample.id}: reference answer {sample.reference['answer']!r} is no number")
        text = extract.strip_special_tokens(answer.text)
        stated = extract.stated_answer(text)
        last = extract.last_number(text)
        found = {"strict": extract.marked_number(text, self._style.mark), "flexible": last, "stated": stated or last}
        right = {
            name: float(not answer.has_mask and got is not None and extract.same_number(got, expected))
            for name, got in found.items()
        }
        chosen = found[self.metric]
        value = right[self.metric]
        said = "nothing" if chosen is None else chosen.text
        if answer.has_mask:
            outcome, why = "mask", "the answer still holds mask tokens"
        elif not text.strip():
            outcome, why = "empty", "the answer is empty"
        elif value == 1.0:
            outcome, why = "right", f"{self.metric} filter found {said}"
        elif answer.finish == "length" and (chosen is None or stated is None):
            outcome, why = "truncated", f"cut at the token budget before an answer was stated, expected {expected.text}"
        elif chosen is None:
            outcome, why = "no_answer", f"the {self.metric} filter found no number, expected {expected.text}"
        else:
            outcome, why = "wrong", f"the {self.metric} filter found {said}, expected {expected.text}"
        metrics = {**right, "strict_found": float(found["strict"] is not None)}
        return Score(value, outcome, None if chosen is None else chosen.text, why, metrics)

    def run_notes(self, scores: Iterable[Score]) -> list[str]:
        """What a reader of the whole run has to know: a filter that never found anything says more about the prompt
        than about the model."""
        listed = list(scores)
        if not listed or any(score.metrics.get("strict_found", 0.0) for score in listed):
            return []
        return [
            f"strict filter matched 0 of {len(listed)} answers: none has the mark {self._style.mark!r} that style "
            f"{self.style!r} expects, so `strict` says nothing about the model"
        ]

    def _rows(self) -> Rows:
        return load_rows(
            "gsm8k",
            source=self.source,
            path=self.path,
            hub=HubSource("openai/gsm8k", "main", self.split, REVISION),
            columns=_COLUMNS,
            known_rows=SPLITS[self.split],
        )

    def _train(self) -> Rows | None:
        """The rows that examples come from; None when there are none or lm-eval has them."""
        if self._count == 0 or (self._style.pick == "lm_eval" and self.train_path is None and self.source != "sample"):
            return None
        try:
            return load_rows(
                "gsm8k_train",
                source=self.source,
                path=self.train_path,
                hub=HubSource("openai/gsm8k", "main", "train", REVISION),
                columns=_COLUMNS,
                known_rows=SPLITS["train"] if self.train_path is None else None,
            )
        except ValueError as error:
            raise ValueError(
                f"style {self.style} shows {self._count} examples from the train split: give task.train_path=FILE or "
                f"task.shots=0 ({error})"
            ) from error

    def _shots_in_order(self) -> bool:
        sample_rows = self.source == "sample" and self.train_path is None
        return sample_rows or (self._style.pick == "lm_eval" and self.train_path is not None)
