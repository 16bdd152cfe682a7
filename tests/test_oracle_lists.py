"""The exact denoiser: its posteriors by enumeration, and success rates of decoding against closed forms (ParallelBench)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise, permutations

import pytest
import torch

from dinfer.cache import Window
from dinfer.canvas import Canvas
from dinfer.decoding import Steps, Threshold
from dinfer.iteration import Blockwise, Smooth
from dinfer.loop import Decoder
from dinfer.models.oracle_lists import Ask, Grammar, OracleLists, answers, posterior
from dinfer.types import DecodingStrategy, DiffusionModel, IterationManager, ModelSpec, Recipe, Request

EOS, MASK, OPEN, SEPARATOR, CLOSE, FIRST = 0, 1, 2, 3, 4, 20
NAMES = tuple(range(30, 40))
WORD = NAMES[-1]
CHANGES = ("replace_index", "replace_random", "insert_index", "insert_random", "remove_index", "remove_random")
KINDS = ("copy", "reverse", "sort", "shuffle", *CHANGES)
ASKS: dict[tuple[int, ...], Ask] = {(FIRST + i,): Ask(kind, WORD, 1) for i, kind in enumerate(KINDS)}
MODEL = OracleLists(Grammar(ASKS, OPEN, SEPARATOR, CLOSE, NAMES), ModelSpec(40, 40, MASK, (EOS,), 64))
NOTHING = Window()


def written(names: Iterable[int]) -> list[int]:
    listed = [token for name in names for token in (SEPARATOR, name)]
    return [OPEN, *listed[1:], CLOSE]


def decode(
    kind: str,
    size: int,
    decoding: DecodingStrategy,
    rows: int = 1,
    padding: int = 1,
    iteration: IterationManager | None = None,
    cache: Window = NOTHING,
) -> list[tuple[int, ...]]:
    """Names of each row's answer, `padding` end-of-sequence tokens after it; () where it is no list."""
    items = NAMES[size - 1 :: -1]
    prompt = (FIRST + KINDS.index(kind), *written(items))
    length = size + {"insert": 1, "remove": -1}.get(kind.partition("_")[0], 0)
    requests = [Request(str(seed), prompt, 2 * length + 1 + padding, seed) for seed in range(rows)]
    recipe = Recipe(decoding, iteration or Blockwise(block_length=64), cache)
    done = sorted(Decoder(MODEL, requests, recipe, torch.device("cpu"), False).run(), key=lambda d: d.row)
    found = [tuple(d.tokens[1 : 2 * length : 2]) for d in done]
    return [f if [*written(f), *[EOS] * padding] == list(d.tokens) else () for f, d in zip(found, done, strict=True)]


def success(kind: str, size: int, decoding: DecodingStrategy, padding: int, rows: int = 800) -> float:
    items = NAMES[size - 1 :: -1]
    right = set(permutations(items)) if kind == "shuffle" else set(answers(Ask(kind, WORD, 1), items))
    return sum(found in right for found in decode(kind, size, decoding, rows, padding)) / rows


def close(rate: float, expected: float, rows: int = 800) -> bool:
    """Within three standard errors; exactly where nothing is left to chance."""
    return abs(rate - expected) <= 3 * math.sqrt(expected * (1 - expected) / rows) + 1e-12


def shuffled(size: int, steps: Iterable[int]) -> float:
    """P = prod over steps of perm(m, k) / m^k: all names drawn at once must differ."""
    p, left = 1.0, size
    for k in steps:
        p *= math.perm(left, k) / left**k
        left -= k
    return p


def replaced(size: int, steps: Iterable[int]) -> float:
    """S += A (k/m)(1 - 1/m)^(k-1) and A *= (1 - 1/m)^k: exactly one of all draws must be the new name."""
    s, a, left = 0.0, 1.0, size
    for k in steps:
        s += a * (k / left) * (1 - 1 / left) ** (k - 1)
        a *= (1 - 1 / left) ** k
        left -= k
    return s


def mixed(size: int, columns: int, k: int, kind: str) -> float:
    """The same when every step takes k of all columns left at random, names among them or not."""
    if size == 0:
        return 1.0 if kind == "shuffle" else 0.0
    k = min(k, columns)
    p = 0.0
    for names in range(max(0, k - (columns - size)), min(size, k) + 1):
        chance = math.comb(size, names) * math.comb(columns - size, k - names) / math.comb(columns, k)
        if kind == "shuffle":
            p += chance * math.perm(size, names) / size**names * mixed(size - names, columns - k, k, kind)
        else:
            once = names / size * (1 - 1 / size) ** (names - 1) if names else 0.0
            p += chance * (once + (1 - 1 / size) ** names * mixed(size - names, columns - k, k, kind))
    return p


def test_it_is_a_model() -> None:
    assert isinstance(MODEL, DiffusionModel)


@pytest.mark.parametrize("kind", KINDS)
def test_posteriors_are_those_of_enumeration(kind: str) -> None:
    """Every marginal, for every pattern of what is shown, counted over all right answers."""
    items = (4, 2, 7, 1)
    right = list(permutations(items)) if kind == "shuffle" else answers(Ask(kind, 9, 1), items)
    for truth in right[:6]:
        for pattern in range(2 ** len(truth)):
            shown = [name if pattern >> i & 1 else None for i, name in enumerate(truth)]
            agree = [a for a in right if all(s is None or s == name for s, name in zip(shown, a, strict=True))]
            for place, marginal in enumerate(posterior(Ask(kind, 9, 1), items, shown)):
                counts = {name: sum(a[place] == name for a in agree) / len(agree) for name in {a[place] for a in agree}}
                assert marginal == pytest.approx(counts)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("index")] + ["copy", "reverse", "sort"])
def test_tasks_with_one_answer_survive_any_parallelism(kind: str) -> None:
    for decoding in (Steps(tokens_per_step=1), Steps(tokens_per_step=4), Steps(tokens_per_step=64), Threshold(threshold=0.1)):
        assert decode(kind, 5, decoding) == answers(Ask(kind, WORD, 1), NAMES[4::-1])


def test_the_closed_forms_have_the_known_values() -> None:
    assert [round(shuffled(4, s), 4) for s in ([4], [2, 2], [1] * 4)] == [0.0938, 0.375, 1.0]
    assert [round(shuffled(6, s), 4) for s in ([6], [3, 3])] == [0.0154, 0.1235]
    assert [replaced(4, s) for s in ([4], [2, 2])] == pytest.approx([0.4219, 0.6563], abs=1e-4)
    assert replaced(1000, [1000]) == pytest.approx(math.exp(-1), abs=1e-3)


@pytest.mark.parametrize(("size", "k", "padding"), [(4, 16, 1), (4, 2, 1), (4, 1, 1), (6, 3, 2), (6, 2, 1)])
def test_shuffle_with_fixed_steps(size: int, k: int, padding: int) -> None:
    """Brackets and padding are sure and are taken first, a whole number of steps; then k names at a time."""
    steps = [size] if k > size else [k] * (size // k)
    rate = success("shuffle", size, Steps(tokens_per_step=k, temperature=1.0), padding)
    assert close(rate, shuffled(size, steps))


@pytest.mark.parametrize("kind", ["shuffle", "replace_random"])
@pytest.mark.parametrize("k", [1, 3, 5, 16])
def test_fixed_steps_at_random_places(kind: str, k: int) -> None:
    rate = success(kind, 4, Steps(tokens_per_step=k, temperature=1.0, remasking="random"), padding=1)
    assert close(rate, mixed(4, 10, k, kind))


@pytest.mark.parametrize(("threshold", "steps"), [(0.9, [1, 1, 1, 1]), (0.4, [1, 1, 2]), (0.3, [1, 3]), (0.24, [4])])
def test_shuffle_with_a_threshold(threshold: float, steps: list[int]) -> None:
    """m names left are each 1/m likely: below the threshold one is taken, else all at once."""
    assert close(success("shuffle", 4, Threshold(threshold=threshold, temperature=1.0), 1), shuffled(4, steps))


def test_replace_random_with_a_threshold() -> None:
    """At 0.7 every place that drew its old name (probability 3/4) is taken at once; all four doing so is the only failure."""
    all_new = 0.25**4
    expected = (1 - 0.75**4 - all_new) / (1 - all_new)
    assert close(success("replace_random", 4, Threshold(threshold=0.7, temperature=1.0), 1), expected)
    assert success("replace_random", 4, Threshold(threshold=0.9, temperature=1.0), 1) == 1.0


def test_the_draws_are_exact_although_confidences_are_told_apart() -> None:
    """The tilt lies on the mask token alone: without it every place of a shuffle is exactly uniform."""
    request = Request("x", (FIRST + KINDS.index("shuffle"), *written(NAMES[:4])), 10)
    canvas = Canvas.build([request], MODEL.spec, "cpu")
    slots = torch.arange(canvas.columns)[None]
    logits = MODEL.logits(MODEL(MODEL.embed(canvas.tokens[:, :-1]), slots, MODEL.new_cache(canvas), None))[0]
    confidence = logits.softmax(-1)[len(request.prompt) + 1 : -2 : 2, NAMES[0]].tolist()
    assert all(a - b > 2e-5 for a, b in pairwise(confidence))
    logits[:, MASK] = -torch.inf
    assert torch.equal(logits.softmax(-1)[len(request.prompt) + 1 : -2 : 2, list(NAMES[:4])], torch.full((4, 4), 0.25))


@pytest.mark.parametrize("cache", [Window(before=0), Window(before=0, after=0), Window(before=16, after=16)])
@pytest.mark.parametrize("iteration", [Blockwise(block_length=4), Smooth(block_length=4)])
def test_caches_change_nothing_for_a_sequential_oracle(cache: Window, iteration: IterationManager) -> None:
    items = NAMES[4::-1]
    found = decode("shuffle", 5, Threshold(threshold=1.0, temperature=1.0), 40, 1, iteration, cache)
    assert all(sorted(names) == sorted(items) for names in found)
    assert len(set(found)) > 5


def test_a_prompt_it_does_not_understand_gives_a_flat_distribution() -> None:
    request = Request("x", (5, 6, 7), 4)
    recipe = Recipe(Threshold(), Blockwise(), NOTHING)
    (done,) = Decoder(MODEL, [request], recipe, torch.device("cpu"), False).run()
    assert MASK not in done.tokens
