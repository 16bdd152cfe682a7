"""From a benchmark's sample to token ids, and from visible ids back to text.

A prompt's words are data: text that looks like one of the tokenizer's special tokens is encoded letter by letter, so it can
neither end a turn nor be taken for a mask. Only the chat template writes special tokens.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from dinfer.types import ModelSpec
from evals.task import Sample
from experiments.errors import ConfigError, one_line

log = logging.getLogger(__name__)

#: Private-use characters that stand for a literal special token while the template is rendered.
OPEN, CLOSE = "\ue0f0", "\ue0f1"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads for one sample: the rendered text and its ids."""

    id: str
    text: str
    ids: tuple[int, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class Prompter:
    """Encodes samples for one checkpoint and decodes its answers."""

    def __init__(self, tokenizer: Any, spec: ModelSpec) -> None:
        self.tokenizer = tokenizer
        self.spec = spec

    @property
    def has_template(self) -> bool:
        return bool(getattr(self.tokenizer, "chat_template", None))

    def encode(self, sample: Sample) -> Prompt:
        """ConfigError, naming the sample, when its prompt is empty or cannot be encoded."""
        marked = self._render(sample)
        pieces = re.split(f"{OPEN}(\\d+){CLOSE}", marked)
        ids: list[int] = []
        text: list[str] = []
        for place, piece in enumerate(pieces):
            if place % 2:
                literal = self._literals[int(piece)]
                ids += self._as_text(literal, sample.id)
                text.append(literal)
            elif piece:
                ids += self.tokenizer(piece, add_special_tokens=False)["input_ids"]
                text.append(piece)
        if not ids:
            raise ConfigError(f"sample {sample.id!r} has an empty prompt; there is nothing to answer")
        return Prompt(sample.id, "".join(text), tuple(ids))

    def encode_all(self, samples: Iterable[Sample], max_tokens: int) -> list[Prompt]:
        """Prompts in order. ConfigError naming the first sample that does not fit the model with its answer."""
        prompts = [self.encode(sample) for sample in samples]
        for prompt in prompts:
            if len(prompt.ids) + max_tokens > self.spec.max_length:
                raise ConfigError(
                    f"max_tokens {max_tokens} and the {len(prompt.ids)} prompt tokens of sample {prompt.id!r} exceed the "
                    f"model's {self.spec.max_length} positions"
                )
        return prompts

    def decode(self, ids: Sequence[int]) -> str:
        """Visible ids to text, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _render(self, sample: Sample) -> str:
        if sample.text is not None:
            return self._mark(sample.text) + self._mark(sample.prefill)
        turns = [{"role": m.role, "content": self._mark(m.content)} for m in sample.messages]
        if not any(m.content.strip() for m in sample.messages):
            return ""
        if not self.has_template:
            return "\n\n".join(turn["content"] for turn in turns) + self._mark(sample.prefill)
        try:
            rendered = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates raise whatever their author chose
            raise ConfigError(f"the checkpoint's chat template refuses sample {sample.id!r}: {one_line(error)}") from error
        return str(rendered) + self._mark(sample.prefill)

    @cached_property
    def _literals(self) -> list[str]:
        """Texts that must not reach the tokenizer or the template as they are, the longest first."""
        control = {self.spec.mask_id, *self.spec.eos_ids}
        added = self.tokenizer.added_tokens_decoder.items()
        texts = {token.content for index, token in added if token.special or index in control} | {OPEN, CLOSE}
        return sorted(texts, key=lambda t: (-len(t), t))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._literals)))

    def _mark(self, text: str) -> str:
        return self._pattern.sub(lambda m: f"{OPEN}{self._literals.index(m.group())}{CLOSE}", text)

    def _as_text(self, literal: str, sample: str) -> list[int]:
        """Ids of a special token's text as plain text: no special id among them, and they decode to the same text."""
        special = {i for i, t in self.tokenizer.added_tokens_decoder.items() if t.content in self._literals}
        for parts in ([literal[:1], literal[1:]], list(literal)):
            ids = [i for part in parts if part for i in self.tokenizer(part, add_special_tokens=False)["input_ids"]]
            if not special.intersection(ids) and self.tokenizer.decode(ids) == literal:
                return ids
        raise ConfigError(f"sample {sample!r} contains {literal!r}, which this tokenizer cannot write as plain text")


def check_template(prompter: Prompter, samples: Sequence[Sample]) -> None:
    """Say so when chat messages will be joined as plain text because the checkpoint has no chat template."""
    if not prompter.has_template and any(s.text is None and s.messages for s in samples):
        _say("the checkpoint has no chat template: messages are joined as plain text, as for a base model")


@lru_cache(maxsize=16)
def _say(warning: str) -> None:
    """Log a warning once a process: a sweep would repeat it for every cell."""
    log.warning("%s", warning)
