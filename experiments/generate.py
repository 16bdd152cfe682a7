"""The command `dinfer-generate`: decode one prompt and show the answer with what it cost."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from experiments.errors import ConfigError, suggestion
from experiments.options import owners

GROUPS = ("model", "decoding", "iteration", "cache", "engine")
OVERRIDE = re.compile(rf"(?:{'|'.join(GROUPS)}|guidance|max_tokens|seed)[.@\w]*=.*", re.DOTALL)
USAGE = 'dinfer-generate [--model PATH] [decoding=… cache=… decoding.threshold=… max_tokens=…] "prompt"'
#: Words in flags of other tools, and how the same is said here.
OTHERS = {
    "block": "iteration.block_length=32",
    "step": "decoding=steps decoding.tokens_per_step=1",
    "gen_len": "max_tokens=256",
    "max_new": "max_tokens=256",
    "n_predict": "max_tokens=256",
    "cfg": "guidance=1.0",
    "prompt": "the prompt as a word of its own",
}


def main() -> None:
    """Entry point; arguments are those of the process."""
    from experiments.run import share_processor

    share_processor()
    raise SystemExit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    from experiments.run import set_up_logging

    set_up_logging()
    try:
        overrides, prompt = parse(words)
        sys.stdout.write(answer(overrides, prompt) + "\n")
    except ConfigError as error:
        sys.stderr.write(f"dinfer-generate: {error}\n")
        return 2
    return 0


def parse(words: Sequence[str]) -> tuple[list[str], str]:
    """Overrides and the prompt. ConfigError that names the right way for what is not understood."""
    parser = argparse.ArgumentParser(
        "dinfer-generate",
        usage=USAGE,
        description="Decode one prompt. Options are those of dinfer (see dinfer --help), for example decoding=credit.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", metavar="PATH", help="checkpoint folder, hub id, or the name of a model option")
    parser.add_argument("--max-tokens", metavar="N", help="answer budget in tokens (default 128)")
    parser.add_argument("words", nargs="*", metavar="WORD", help="overrides and the prompt; - reads it from standard input")
    arguments, unknown = parser.parse_known_intermixed_args(list(words))
    for flag in unknown:
        if flag.startswith("-"):
            raise ConfigError(foreign(flag))
    overrides = [word for word in arguments.words if OVERRIDE.fullmatch(word)]
    prompt = " ".join(word for word in arguments.words if not OVERRIDE.fullmatch(word))
    if prompt == "-":
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise ConfigError(f"the prompt is empty; usage: {USAGE}")
    if re.fullmatch(r"(task|limit|logger|name|runs|experiment|workers)[.\w]*=\S*", prompt):
        raise ConfigError(f"{prompt!r} belongs to a run over a benchmark: dinfer {' '.join([*overrides, prompt])}")
    if arguments.model:
        overrides.insert(0, f"model.path={quoted(arguments.model)}" if not is_option(arguments.model) else
                         f"model={arguments.model}")
    if arguments.max_tokens:
        overrides.append(f"max_tokens={arguments.max_tokens}")
    return overrides, prompt


def is_option(name: str) -> bool:
    from experiments.options import options

    return name in [option.name for option in options() if option.group == "model"]


def quoted(value: str) -> str:
    """`value` as Hydra reads one string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def foreign(flag: str) -> str:
    """The line for a flag that is not ours."""
    name = flag.lstrip("-").partition("=")[0].replace("-", "_")
    keys = owners()
    if name in keys:
        group = keys[name][0].partition("=")[0]
        return f"{flag} is not a flag; write {f'{group}.' if group else ''}{name}=…; usage: {USAGE}"
    for part, ours in OTHERS.items():
        if part in name:
            return f"{flag} is not a flag; write {ours}; usage: {USAGE}"
    return f"{flag} is not a flag{suggestion(name, keys)}; usage: {USAGE}"


def answer(overrides: Sequence[str], prompt: str) -> str:
    """Decode `prompt` with the parts that `overrides` choose; the text and one line of figures."""
    from dinfer.types import Request
    from evals.task import Message, Sample
    from experiments.build import build
    from experiments.compose import compose
    from experiments.engines import engine_for
    from experiments.plan import check_fit, make_recipe, warn_hasty
    from experiments.prompts import Prompter, check_template
    from experiments.schema import check_root

    config, _ = compose(overrides)
    check_root(config)
    source, settings, decoding, iteration, cache = (
        build(config[group], group) for group in ("model", "engine", "decoding", "iteration", "cache")
    )
    budget = config["max_tokens"] or 128
    recipe = make_recipe(decoding, iteration, cache, config["guidance"])
    spec = check_fit(recipe, source, budget)
    warn_hasty(recipe)
    prompter = Prompter(source.read_tokenizer(), spec)
    sample = Sample("prompt", (Message("user", prompt),))
    check_template(prompter, [sample])
    ids = prompter.encode_all([sample], budget)[0].ids
    request = Request("prompt", ids, budget, config["seed"])
    engine = engine_for(source, settings.resolved())
    engine.warm_up([request], recipe)
    result = next(iter(engine.generate([request], recipe)))
    return f"{prompter.decode(result.tokens)}\n\n{figures(result, len(ids))}"


def figures(result: Any, prompt_tokens: int) -> str:
    """What an answer cost, in one line."""
    n, trace = len(result.tokens), result.trace
    kinds = [(trace.full, "full"), (trace.refresh, "refresh"), (trace.window, "window")]
    split = ", ".join(f"{count} {name}" for count, name in kinds if count)
    per_forward = f"{n / trace.forwards:.2f}" if trace.forwards else "N/A"
    rate = f"{n / result.seconds:.1f}" if result.seconds > 0 else "N/A"
    return (
        f"{prompt_tokens} prompt tokens, {n} answer tokens ({result.finish}), {trace.steps} steps, "
        f"{trace.forwards} forwards ({split}), {per_forward} tokens/forward, {result.seconds:.2f} s, {rate} tokens/s"
    )


if __name__ == "__main__":
    main()
