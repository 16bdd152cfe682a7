"""The engine as a model of lm-eval, named `dinfer`: importing this module registers it.

Asks lm-eval's questions of the engine and of the likelihood estimate; decodes and scores nothing itself.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from dinfer.cache import Window
from dinfer.decoding import Steps
from dinfer.engine import Engine
from dinfer.guidance import Guided
from dinfer.iteration import Blockwise
from dinfer.likelihood import Estimate, Pair, log_likelihoods
from dinfer.types import Recipe, Request
from evals.task import Sample
from experiments import identity
from experiments.answers import cut
from experiments.build import build
from experiments.compose import compose
from experiments.errors import ConfigError, one_line
from experiments.generate import GROUPS
from experiments.lm_eval_arguments import checked, heated, words
from experiments.plan import make_recipe
from experiments.progress import tracked
from experiments.prompts import Prompter
from experiments.schema import check_root

log = logging.getLogger(__name__)

#: Generation arguments of lm-eval that mean the answer budget, and those that are understood besides.
BUDGETS = ("max_gen_toks", "max_new_tokens", "max_tokens")
UNDERSTOOD = (*BUDGETS, "until", "do_sample", "temperature")
#: Likelihoods estimated between two reports of progress.
CHUNK = 32


class Contexts(Prompter):
    """Encodes texts into which lm-eval has already rendered the chat template."""

    def _render(self, sample: Sample) -> str:
        return str(sample.text)

    def mark(self, text: str) -> str:
        """`text` with what looks like a special token set apart, so that it stays text."""
        return self._mark(text)


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: the engine's request, where its answer is cut, and at which temperature it is drawn."""

    request: Request
    until: tuple[str, ...]
    temperature: float


@register_model("dinfer")
class DinferLM(TemplateLM):
    """`--model_args`:

    - `path`: the checkpoint (as `model.path` of the command dinfer), or `model`: a model option;
    - `decoding`, `iteration`, `cache`, `engine` and their keys (`decoding.threshold=0.9`), `guidance`: as of dinfer;
    - `max_gen_toks`: answer budget of tasks that set none;
    - `mc_num`: draws of the likelihood estimate; `check_greedy=false`: do not decode in order to tell whether a
      continuation is the greedy one, which only a few tasks ask (one forward a token);
    - `seed`: of every random choice.

    `--batch_size` and `--device` are the engine's, unless `engine.batch_size` or `engine.device` are given.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_gen_toks: int = 256,
        mc_num: int = 128,
        check_greedy: bool = True,
        seed: int = 0,
        **overrides: Any,
    ) -> None:
        super().__init__()
        for name, value, low in (("max_gen_toks", max_gen_toks, 1), ("mc_num", mc_num, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ConfigError(f"{name} must be a whole number of at least {low}, got {value!r}")
        # lm-eval names cuda:0 on every machine; our "auto" takes it where there is one. Its batch size may be "auto" too.
        size = int(str(batch_size)) if str(batch_size).isdigit() else None
        driven = {"engine.batch_size": size, "engine.device": None if device in ("cuda", "cuda:0") else device}
        given = {key: value for key, value in driven.items() if value is not None}
        config, _ = compose(words(path, {**given, **overrides}))
        check_root(config)
        parts = {group: build(config[group], group) for group in GROUPS}
        self.recipe = make_recipe(parts["decoding"], parts["iteration"], parts["cache"], config["guidance"])
        self.source = parts["model"]
        self.spec = self.source.spec()
        self.tokenizer = self.source.read_tokenizer()
        self.max_gen_toks, self.mc_num, self.check_greedy, self.seed = max_gen_toks, mc_num, bool(check_greedy), seed
        self.plain, self.rendered = Prompter(self.tokenizer, self.spec), Contexts(self.tokenizer, self.spec)
        self.templated = False
        settings = parts["engine"].resolved()
        self.engine = Engine(
            self.source.load(settings.dtype, settings.device),
            batch_size=settings.batch_size,
            lockstep=settings.lockstep,
            sync_every=settings.sync_every,
        )
        self._device = self.engine.device

    @property
    def eot_token_id(self) -> int:
        return self.spec.eos_ids[0]

    @property
    def max_length(self) -> int:
        return self.spec.max_length

    @property
    def tokenizer_name(self) -> str:
        return f"dinfer-{identity.digest(self.source.identity())[:16]}"

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval writes beside its results: the checkpoint's hash, the recipe and the engine."""
        facts = {"model": self.source.identity(), "recipe": identity.plain(self.recipe), "engine": self.engine.info()}
        return {"dinfer": {**facts, "mc_num": self.mc_num, "seed": self.seed}}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        if not self.plain.has_template:
            raise ConfigError("the checkpoint has no chat template; leave --apply_chat_template out")
        self.templated = True
        turns = [{**turn, "content": self.rendered.mark(turn["content"])} for turn in chat_history]
        return str(
            self.tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **unused: Any) -> list[int]:
        """Ids of a context. Only a chat template writes special tokens; none are added."""
        prompter = self.rendered if self.templated else self.plain
        return list(prompter.encode(Sample("context", text=string)).ids) if string else []

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One answer a request, special tokens removed, cut at the first of its `until` strings."""
        asks = self._asks([request.args for request in requests])
        texts: dict[str, str] = {}
        by_temperature: dict[float, list[Ask]] = defaultdict(list)
        for ask in asks:
            by_temperature[ask.temperature].append(ask)
        for temperature, group in by_temperature.items():
            recipe = replace(self.recipe, decoding=heated(self.recipe.decoding, temperature)) if temperature else self.recipe
            checked(recipe, self.spec, {ask.request.max_tokens for ask in group})
            own = {ask.request.id: ask for ask in group}
            results = self.engine.generate([ask.request for ask in group], recipe)
            for result in tracked(results, total=len(asks), done=len(texts), what="dinfer"):
                text = self.plain.decode(result.tokens)
                texts[result.id] = text[: cut(text, own[result.id].until)]
                self.cache_hook.add_partial("generate_until", requests[int(result.id)].args, texts[result.id])
        return [texts[ask.request.id] for ask in asks]

    def _asks(self, arguments: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Ask]:
        seen: Counter[str] = Counter()
        ignored: set[str] = set()
        shortened, found = 0, []
        for number, (context, given) in enumerate(arguments):
            until = given.get("until") or ()
            budget = next((int(given[name]) for name in BUDGETS if given.get(name)), self.max_gen_toks)
            ids = self.tok_encode(context) or [self.eot_token_id]
            kept = ids[-max(1, self.max_length - budget) :]
            shortened += len(kept) < len(ids)
            seed = identity.sample_seed(self.seed, f"{seen[context]}:{context}")
            seen[context] += 1
            temperature = float(given.get("temperature") or 0.0) if given.get("do_sample") else 0.0
            stops = (until,) if isinstance(until, str) else tuple(until)
            found.append(Ask(Request(str(number), tuple(kept), budget, seed), stops, temperature))
            ignored |= set(given) - set(UNDERSTOOD)
        if shortened:
            log.warning("%d contexts exceed the model's %d positions; their beginnings are cut off", shortened, self.max_length)
        if ignored:
            log.warning("generation arguments that dinfer does not have: %s", ", ".join(sorted(ignored)))
        return found

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **unused: Any
    ) -> list[tuple[float, bool]]:
        """Estimated log-likelihood of each continuation, and whether decoding one token at a time would write it."""
        found: list[tuple[float, bool]] = []
        chunks = [requests[i : i + CHUNK] for i in range(0, len(requests), CHUNK)]
        for chunk in tracked(chunks, total=len(chunks), done=0, what=f"dinfer likelihoods, {CHUNK} at a time"):
            pairs = [self._pair(context, answer) for _, context, answer in chunk]
            estimates = self._estimates(pairs)
            greedy = self._greedy(pairs) if self.check_greedy else [False] * len(pairs)
            for (texts, _, _), estimate, same in zip(chunk, estimates, greedy, strict=True):
                found.append((estimate.value, same))
                self.cache_hook.add_partial("loglikelihood", texts, found[-1])
        return found

    def _estimates(self, pairs: Sequence[Pair]) -> list[Estimate]:
        model = Guided(self.engine.model, self.recipe.guidance) if self.recipe.guidance else self.engine.model
        try:
            return log_likelihoods(model, pairs, draws=self.mc_num, batch_size=self.engine.batch_size, device=self._device)
        except ValueError as error:
            raise ConfigError(one_line(error)) from error

    def _pair(self, context: Sequence[int], answer: Sequence[int]) -> Pair:
        room = self.max_length - len(answer)
        if not answer or room < 1:
            raise ConfigError(f"a continuation must have 1 to {self.max_length - 1} tokens, got {len(answer)}")
        kept = tuple(context[-room:])
        return Pair(kept, tuple(answer), identity.sample_seed(self.seed, f"{kept}{tuple(answer)}"))

    def _greedy(self, pairs: Sequence[Pair]) -> list[bool]:
        """Whether taking the surest token of the whole answer at each step, as LLaDA's evaluation does, gives the answer."""
        same: dict[int, bool] = {}
        for length in {len(pair.answer) for pair in pairs}:
            iteration = Blockwise(block_length=length, early_stop=False)
            recipe = Recipe(Steps(tokens_per_step=1), iteration, Window(), self.recipe.guidance)
            group = {str(i): pair for i, pair in enumerate(pairs) if len(pair.answer) == length}
            questions = [Request(name, pair.prompt, length) for name, pair in group.items()]
            for result in self.engine.generate(questions, recipe):
                same[int(result.id)] = result.tokens == group[result.id].answer
        return [same[i] for i in range(len(pairs))]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, estimated window by window behind the end-of-sequence token."""
        found = []
        for request in requests:
            (text,) = request.args
            windows = get_rolling_token_windows(self.tok_encode(text), self.eot_token_id, self.max_length - 1, 1)
            pairs = [self._pair(*make_disjoint_window(window)) for window in windows]
            found.append(sum(estimate.value for estimate in self._estimates(pairs)))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), found[-1])
        return found
