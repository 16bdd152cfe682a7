"""The exact denoiser of list tasks: not a network but the posterior itself, so that success rates have closed forms.

For every masked column it answers with the marginal distribution of that column's token given the prompt and the tokens
shown so far, over all right answers, each equally likely. What decoding then gets wrong is decoding's own doing. The
tasks are those of ParallelBench's waiting line (arXiv:2510.04767). Letters: B rows, Q queried columns, V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dinfer.canvas import Canvas
from dinfer.types import ModelSpec

#: Log-probability that stands for impossible; finite, so that guidance and credit can calculate with it.
IMPOSSIBLE = -1e4
#: Places of a list that are equally sure are told apart: each leaves so much more than the one before to the mask token.
#: The mask cannot be chosen, so no draw changes; but strategies take all confidences within 1e-5 of the best at once.
TILT = 2e-4

#: A distribution over token ids.
Marginal = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be done with a list: its kind, and the name and place it speaks of where it speaks of any."""

    kind: str
    word: int = -1
    index: int = -1


@dataclass(frozen=True, slots=True)
class Grammar:
    """How prompts and answers look in token ids.

    `asks` maps everything that may stand before the list's `opening` to what it asks. A list is `opening`, names with
    `separator` between them, `closing`; names are the ids in `order`, which is also the order of sorting.
    """

    asks: Mapping[tuple[int, ...], Ask]
    opening: int
    separator: int
    closing: int
    order: tuple[int, ...]


def answers(ask: Ask, items: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All right answers but those of `shuffle`, whose n! are never listed. `items` for sorting hold ranks."""
    word, at = (ask.word,), range(len(items))
    if ask.kind == "reverse":
        return [items[::-1]]
    if ask.kind == "sort":
        return [tuple(sorted(items))]
    if ask.kind == "replace_index":
        return [items[: ask.index] + word + items[ask.index + 1 :]]
    if ask.kind == "insert_index":
        return [items[: ask.index] + word + items[ask.index :]]
    if ask.kind == "remove_index":
        return [items[: ask.index] + items[ask.index + 1 :]]
    if ask.kind == "replace_random":
        return [items[:i] + word + items[i + 1 :] for i in at]
    if ask.kind == "insert_random":
        return [items[:i] + word + items[i:] for i in range(len(items) + 1)]
    if ask.kind == "remove_random":
        return [items[:i] + items[i + 1 :] for i in at]
    return [items]


def posterior(ask: Ask, items: tuple[int, ...], shown: Sequence[int | None]) -> list[Marginal]:
    """Marginals of each name of the answer, given those in `shown` (None: masked), one entry a place.

    For `shuffle` all n! orders count, the given one included. When no right answer agrees with what is shown, those
    that agree in most places stand in.
    """
    if ask.kind == "shuffle":
        rest = list((Counter(items) - Counter(name for name in shown if name is not None)).elements())
        pool = Counter(rest or items)
        free = {name: count / pool.total() for name, count in pool.items()}
        return [free if name is None else {name: 1.0} for name in shown]
    right = answers(ask, items)
    agreeing = [sum(a == b for a, b in zip(answer, shown, strict=False)) for answer in right]
    best = [answer for answer, agrees in zip(right, agreeing, strict=True) if agrees == max(agreeing)]
    return [{name: n / len(best) for name, n in Counter(column).items()} for column in zip(*best, strict=True)]


@dataclass(slots=True)
class _Board:
    """What was last shown at each column, as the cache of a network would remember it, and where prompts end."""

    tokens: Tensor
    prompts: list[int]


class OracleLists:
    """A `DiffusionModel` without weights.

    The states it hands out are log-probabilities, [B, Q, V]; their mask column is no belief but the `TILT`.
    """

    def __init__(self, grammar: Grammar, spec: ModelSpec, device: str = "cpu") -> None:
        self.grammar = grammar
        self.spec = spec
        self.device = torch.device(device)
        self.dtype = torch.float32
        self._rank = {name: rank for rank, name in enumerate(grammar.order)}

    def new_cache(self, canvas: Canvas) -> _Board:
        shape = (canvas.rows, canvas.columns + 1)
        return _Board(torch.full(shape, self.spec.mask_id, device=self.device), canvas.prompt.tolist())

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, Q] ids -> one-hot [B, Q, V]."""
        return F.one_hot(tokens, self.spec.vocab).to(self.dtype)

    def blend(self, probs: Tensor) -> Tensor:
        """Probabilities are mixtures of one-hot rows already."""
        return probs.to(self.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def __call__(self, x: Tensor, slots: Tensor, cache: _Board, visible: Tensor | None, want: Tensor | None = None) -> Tensor:
        """Remember what x [B, Q, V] shows at `slots`; the log-marginals of those columns, or of the wanted ones.

        A column counts as a token only where it is purely one: a blend of mask and belief is a mask.
        """
        sure, tokens = x.max(-1)
        cache.tokens.scatter_(1, slots, torch.where(sure > 1 - 1e-6, tokens, self.spec.mask_id))
        shown = cache.tokens.tolist()
        table = torch.stack([self._row(row[:-1], end) for row, end in zip(shown, cache.prompts, strict=True)])
        places = slots if want is None else slots.gather(1, want)
        return table[torch.arange(len(shown), device=self.device)[:, None], places]

    def _row(self, shown: list[int], prompt: int) -> Tensor:
        """[L + 1, V] log-marginals of one row; all tokens alike where the prompt is not understood."""
        table = torch.zeros(len(shown) + 1, self.spec.vocab)
        understood = self._read(shown[:prompt])
        if understood is None:
            table[:, self.spec.mask_id] = IMPOSSIBLE
        else:
            for column, marginal in enumerate(self._answer(*understood, shown[prompt:]), prompt):
                table[column] = IMPOSSIBLE
                table[column, list(marginal)] = torch.tensor(list(marginal.values())).log()
                if len(marginal) > 1 and column > prompt:
                    table[column] += math.log1p(-TILT * (column - prompt))
                    table[column, self.spec.mask_id] = math.log(TILT * (column - prompt))
        return table.to(self.device)

    def _read(self, prompt: list[int]) -> tuple[Ask, tuple[int, ...]] | None:
        """The task and the list of a prompt; None when it is not of this grammar."""
        if self.grammar.opening not in prompt or self.grammar.closing not in prompt:
            return None
        first = len(prompt) - 1 - prompt[::-1].index(self.grammar.opening)
        ask = self.grammar.asks.get(tuple(prompt[:first]))
        inside = prompt[first + 1 : len(prompt) - 1 - prompt[::-1].index(self.grammar.closing)]
        items = tuple(inside[::2])
        if ask is None or not items or any(name not in self._rank for name in items):
            return None
        return ask, items

    def _answer(self, ask: Ask, items: tuple[int, ...], shown: list[int]) -> list[Marginal]:
        """Marginals of every generated column: brackets, names, then end-of-sequence."""
        names, mask = self._rank, self.spec.mask_id
        word = names.get(ask.word, -1)
        ranks = tuple(names[name] for name in items)
        size = len(items) + {"insert": 1, "remove": -1}.get(ask.kind.partition("_")[0], 0)
        seen = [shown[i] if i < len(shown) else mask for i in range(1, 2 * size, 2)]
        known = [None if token == mask else names.get(token, -2) for token in seen]
        grammar, columns = self.grammar, []
        for place, marginal in enumerate(posterior(Ask(ask.kind, word, ask.index), ranks, known)):
            columns.append({grammar.separator if place else grammar.opening: 1.0})
            columns.append({grammar.order[rank]: p for rank, p in marginal.items() if rank >= 0} or {self.spec.eos_ids[0]: 1.0})
        columns.append({grammar.closing if size else self.spec.eos_ids[0]: 1.0})
        padding: list[Marginal] = [{self.spec.eos_ids[0]: 1.0}] * max(0, len(shown) - len(columns))
        return [*columns, *padding][: len(shown)]
