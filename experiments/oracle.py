"""`model=oracle_lists`: the exact denoiser of `task=builtin_lists`, speaking the tokenizer of another checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evals.builtin import lists
from evals.builtin.vocab import NAMES
from experiments.checkpoint import Checkpoint
from experiments.errors import ConfigError

if TYPE_CHECKING:
    from dinfer.models.oracle_lists import Ask, Grammar
    from dinfer.types import DiffusionModel, ModelSpec


@dataclass(frozen=True, slots=True)
class Oracle:
    """A model source without weights. `tokenizer` is a checkpoint folder, named as in `Checkpoint.path`, whose tokenizer
    writes every name as one token."""

    tokenizer: str = "pkg:dinfer/assets/tiny"

    def spec(self) -> ModelSpec:
        spec = Checkpoint(self.tokenizer).spec()
        return replace(spec, hidden=spec.vocab)

    def load(self, dtype: str, device: str) -> DiffusionModel:
        from dinfer.models.oracle_lists import OracleLists

        return OracleLists(grammar(self.read_tokenizer()), self.spec(), device)

    def read_tokenizer(self) -> Any:
        return Checkpoint(self.tokenizer).read_tokenizer()

    def identity(self) -> dict[str, Any]:
        return {"oracle": "lists", "version": lists.BuiltinLists().version, **Checkpoint(self.tokenizer).identity()}


def grammar(tokenizer: Any) -> Grammar:
    """The prompts of `builtin_lists` and their answers in the ids of `tokenizer`. ConfigError when a name is not one token."""
    from dinfer.models.oracle_lists import Grammar

    opening, separator, closing = (_one(tokenizer, text) for text in ('["', '", "', '"]'))
    order = tuple(_one(tokenizer, name) for name in NAMES)
    return Grammar(_asks(tokenizer, dict(zip(NAMES, order, strict=True)), opening), opening, separator, closing, order)


def _one(tokenizer: Any, text: str) -> int:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise ConfigError(f"model.tokenizer must write {text!r} as one token for the oracle, got {len(ids)}")
    return int(ids[0])


def _asks(tokenizer: Any, names: Mapping[str, int], opening: int) -> dict[tuple[int, ...], Ask]:
    """Everything that may stand before a list in a prompt, with what it asks."""
    from dinfer.models.oracle_lists import Ask

    asks = {}
    for kind, text in lists.ASKS.items():
        words = NAMES if "{word}" in text else ("",)
        indices = range(lists.LONGEST + 1) if "{index}" in text else (-1,)
        for word in words:
            for index in indices:
                prompt = f'{text.format(word=word, index=index)}\n["'
                asks[_before_list(tokenizer, prompt, opening)] = Ask(kind, names.get(word, -1), index)
    return asks


def _before_list(tokenizer: Any, prompt: str, opening: int) -> tuple[int, ...]:
    chat = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return tuple(ids[: ids.index(opening)])
