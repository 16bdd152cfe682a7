"""The command `dinfer-prompt`: show exactly what a model will read for the samples of a task. Loads no weights."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.errors import ConfigError

if TYPE_CHECKING:
    from experiments.prompts import Prompt, Prompter

USAGE = "dinfer-prompt task=… [task.style=…] [model=… | model.path=…] [limit=N] [--json]"
ABOUT = """\
Print the prompts of a benchmark as the model reads them, after templating, with their token counts, special tokens, stop
strings, answer budget and hashes. The words are those of the command dinfer, whose prompts these are: the same
configuration gives the same hashes in its record (prompt_sha256 of a line, prompts_sha256 of the manifest). Without
limit=N the first sample is shown."""


def main() -> None:
    """Entry point; arguments are those of the process."""
    raise SystemExit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    from experiments.run import set_up_logging

    set_up_logging()
    parser = argparse.ArgumentParser(
        "dinfer-prompt", usage=USAGE, description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="configuration, as of dinfer (see dinfer --help)")
    parser.add_argument("--json", action="store_true", help="one JSON line a sample, with the token ids")
    arguments = parser.parse_intermixed_args(list(words))
    try:
        sys.stdout.write(show(arguments.words, as_json=arguments.json))
    except ConfigError as error:
        sys.stderr.write(f"dinfer-prompt: {error}\n")
        return 2
    except BrokenPipeError:
        return 0
    return 0


def show(words: Sequence[str], *, as_json: bool = False) -> str:
    """The prompts of the configuration that `words` make, as text or JSON lines. ConfigError naming the field."""
    from experiments.build import build
    from experiments.compose import compose
    from experiments.identity import digest
    from experiments.prompts import Prompter, check_template
    from experiments.samples import load_samples
    from experiments.schema import check_root

    for word in words:
        if "=" not in word and not word.startswith("~"):
            raise ConfigError(f"{word!r} is not key=value; usage: {USAGE}")
    if not any(word.startswith(("limit=", "+limit=")) for word in words):
        words = [*words, "limit=1"]
    config, _ = compose(words)
    check_root(config)
    task, source = build(config["task"], "task"), build(config["model"], "model")
    samples = load_samples(task, config["limit"])
    budget = config["max_tokens"] or task.max_tokens
    prompter = Prompter(source.read_tokenizer(), source.spec())
    check_template(prompter, samples)
    prompts = prompter.encode_all(samples, budget)
    if as_json:
        return "".join(line(prompt, task, budget) for prompt in prompts)
    together = f"prompts_sha256  {digest([prompt.sha256 for prompt in prompts])} (of all {len(prompts)} shown)\n"
    return "".join(block(prompt, prompter, task, budget) for prompt in prompts) + together


def line(prompt: Prompt, task: Any, budget: int) -> str:
    facts = {
        "id": prompt.id,
        "text": prompt.text,
        "tokens": list(prompt.ids),
        "prompt_tokens": len(prompt.ids),
        "prompt_sha256": prompt.sha256,
        "stop": list(task.stop),
        "max_tokens": budget,
    }
    return json.dumps(facts, ensure_ascii=False) + "\n"


def block(prompt: Prompt, prompter: Prompter, task: Any, budget: int) -> str:
    """One prompt between rules, and what belongs to it."""
    stops = ", ".join(json.dumps(stop, ensure_ascii=False) for stop in task.stop) or "none"
    return (
        f"--- {prompt.id}\n{prompt.text}\n---\n"
        f"tokens          {len(prompt.ids)}\n"
        f"special tokens  {special_tokens(prompt, prompter)}\n"
        f"stop strings    {stops}\n"
        f"max_tokens      {budget}\n"
        f"prompt_sha256   {prompt.sha256}\n\n"
    )


def special_tokens(prompt: Prompt, prompter: Prompter) -> str:
    """The special tokens among a prompt's ids, in order of appearance and counted; text that only looks like one is none."""
    known = {index: token.content for index, token in prompter.tokenizer.added_tokens_decoder.items()}
    found = Counter(known[index] for index in prompt.ids if index in known)
    return ", ".join(f"{text} × {count}" if count > 1 else text for text, count in found.items()) or "none"


if __name__ == "__main__":
    main()
