"""The nouns that cross component borders: what is asked, what is answered, and the protocols of the four parts.

Shape letters used everywhere: B rows of a batch, L columns of the canvas (column = position = cache slot),
Q queried columns of one forward, K columns a strategy looks at, V vocabulary, D hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

if TYPE_CHECKING:
    from dinfer.cache.policy import Plan
    from dinfer.canvas import Canvas
    from dinfer.decoding.view import BlockView, Choice


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What the loop must know of a checkpoint. All ids come from the checkpoint's own files.

    `eos_ids[0]` is the end-of-sequence token; further ids end a turn and end an answer just the same. `block` is the
    width of block-causal attention (None: every position sees every other). `shift` = 1 when the logits at column
    j - 1 score column j (Dream).
    """

    vocab: int
    hidden: int
    mask_id: int
    eos_ids: tuple[int, ...]
    max_length: int
    block: int | None = None
    shift: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.mask_id < self.vocab:
            raise ValueError(f"mask_id must lie in [0, {self.vocab}), got {self.mask_id}")
        if not self.eos_ids:
            raise ValueError("eos_ids must name at least one token id, got none")
        for eos in self.eos_ids:
            if not 0 <= eos < self.vocab:
                raise ValueError(f"eos_ids must lie in [0, {self.vocab}), got {eos}")
        if self.mask_id in self.eos_ids:
            raise ValueError(f"mask_id and eos_ids must differ, both hold {self.mask_id}")
        if self.shift not in (0, 1):
            raise ValueError(f"shift must be 0 or 1, got {self.shift}")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue. `max_tokens` is the number of generated columns, exactly, whatever the batch."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens} (request {self.id!r})")
        if not self.prompt:
            raise ValueError(f"prompt must hold at least one token, got none (request {self.id!r})")


@dataclass(frozen=True, slots=True)
class Trace:
    """How one row was decoded, counted for that row alone.

    `committed[i]` tokens were taken at step i; `queried` columns were recomputed in total; `full`, `refresh` and
    `window` count the forwards this row took part in: all columns because nothing is cached, all columns to renew the
    cache, and a window of columns only. With guidance each of them ran the network twice.
    """

    committed: tuple[int, ...]
    queried: int
    full: int = 0
    refresh: int = 0
    window: int = 0

    @property
    def steps(self) -> int:
        return len(self.committed)

    @property
    def forwards(self) -> int:
        return self.full + self.refresh + self.window


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """One answer.

    `tokens` are the visible ids: from the prompt's end to the first end-of-sequence id (exclusive), never padding.
    `finish` is "eos" when an end-of-sequence id was generated, else "length". `canvas` generated columns were reserved,
    `filled` of them decoded, `eos` of those hold an end-of-sequence id. `batch` numbers the batch within its engine, `rows`
    is that batch's size; `seconds` runs from the batch's start to this row's end on a synchronised clock, so the batch's own
    time is the largest `seconds` of its rows; likewise `batch_forwards` counts the batch's model calls until then.
    """

    id: str
    tokens: tuple[int, ...]
    finish: str
    canvas: int
    filled: int
    eos: int
    trace: Trace
    batch: int
    rows: int
    seconds: float
    batch_forwards: int


@runtime_checkable
class DiffusionModel(Protocol):
    """A network over token columns with a key/value buffer that is written in place."""

    spec: ModelSpec

    def new_cache(self, canvas: Canvas) -> Any:
        """Buffers for this canvas' rows and columns; opaque to everyone else."""
        ...

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, Q] ids -> [B, Q, D]."""
        ...

    def blend(self, probs: Tensor) -> Tensor:
        """[..., V] probabilities -> [..., D], the expected embedding."""
        ...

    def __call__(self, x: Tensor, slots: Tensor, cache: Any, visible: Any, want: Tensor | None = None) -> Tensor:
        """[B, Q, D] inputs at `slots` [B, Q] -> hidden [B, Q, D], or [B, K, D] at the `want` [B, K] places of Q."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        ...


class DecodingStrategy(Protocol):
    """Which positions take which token. Frozen; state lives in the memo."""

    def begin(self, canvas: Canvas, spec: ModelSpec) -> Any: ...

    def select(self, view: BlockView, memo: Any) -> Choice: ...


class IterationManager(Protocol):
    """Which block is decoded, and what the model is shown of it."""

    @property
    def observes(self) -> bool:
        """Whether `observe` wants the hidden states of all queried columns that are still masked."""
        ...

    def begin(self, canvas: Canvas, model: DiffusionModel) -> Any: ...

    def moving(self, canvas: Canvas, spec: ModelSpec) -> Tensor:
        """[B] bool: rows with work left in their open block."""
        ...

    def advance(self, canvas: Canvas, spec: ModelSpec, lockstep: bool) -> None:
        """Close and open blocks, finish rows; called between steps, never within one."""
        ...

    def floor(self, canvas: Canvas) -> Tensor:
        """[B]: confidence below which only a row's best column may be taken."""
        ...

    def inputs(self, memo: Any, model: DiffusionModel, tokens: Tensor, slots: Tensor) -> Tensor: ...

    def observe(self, memo: Any, model: DiffusionModel, hidden: Tensor, canvas: Canvas, slots: Tensor) -> None: ...


class CachePolicy(Protocol):
    """Which columns are recomputed; all others are read from the cache."""

    def plan(self, canvas: Canvas, spec: ModelSpec) -> Plan: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to decode: data that travels with each batch to a loaded engine.

    `guidance` is the scale of classifier-free guidance (0: none), LLaDA arXiv:2502.09992.
    """

    decoding: DecodingStrategy
    iteration: IterationManager
    cache: CachePolicy
    guidance: float = field(default=0.0)

    def __post_init__(self) -> None:
        if not self.guidance >= 0:
            raise ValueError(f"guidance must be at least 0, got {self.guidance}")
