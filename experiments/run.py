"""The command `dinfer`: a Hydra application. One run a command, or with -m one run a cell of a sweep.

Exit codes: 0 done, 1 something failed while running, 2 the command is wrong.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.errors import Busy, CellsFailed, ConfigError, choices, one_line, suggestion
from experiments.explain import explain, not_an_override
from experiments.help import help_text
from experiments.options import options, owners, root_keys
from experiments.schema import GROUPS

log = logging.getLogger("experiments.run")

CONFIG_PATH, CONFIG_NAME = "pkg://conf", "run"
COMMANDS = ("generate", "report", "score", "prompt")
NO_OPTION = re.compile(rf"({'|'.join(GROUPS)})=(null|true|false|[-+.\d]*)", re.IGNORECASE)
NESTED = re.compile(r"(decoding|iteration|cache)\.inner=([\w,]+)")


def main() -> None:
    """Entry point; arguments are those of the process."""
    share_processor()
    raise SystemExit(run(sys.argv[1:]))


def share_processor() -> None:
    """Let waiting OpenMP threads sleep: spinning ones cost a busy machine ten times the work. Before torch is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code. Messages for the user go to standard error in one line each."""
    set_up_logging()
    try:
        arguments = parse(words)
        if arguments is None:
            return 0
        result = launch(words)
        return complain(result["error"], result["code"]) if result.get("error") else 0
    except ConfigError as error:
        return complain(str(error), 2)
    except (HydraException, OmegaConfBaseException) as error:
        return complain(explain(error, owners()), 2)
    except CellsFailed as error:
        return complain(str(error), 1)
    except KeyboardInterrupt:
        return complain("interrupted; the same command continues", 130)


def complain(message: str, code: int) -> int:
    sys.stderr.write(f"dinfer: {message}\n")
    return code


def set_up_logging() -> None:
    """Warnings of all, news of this project, to standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for package in ("experiments", "evals", "dinfer"):
        logging.getLogger(package).setLevel(logging.INFO)


def parse(words: Sequence[str]) -> argparse.Namespace | None:
    """The command's flags and overrides; None when it was answered by the help text. ConfigError when it is no command."""
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        flag = re.search(r"unrecognized arguments: (--?[\w-]+)(=\S*)?", message)
        if not flag:
            raise ConfigError(message)
        name = flag.group(1).lstrip("-").replace("-", "_")
        keys = [key.name for key in root_keys()] + list(GROUPS)
        near = f" (write {name}=…)" if name in keys else suggestion(name, keys)
        raise ConfigError(f"{flag.group(1)} is not a flag{near}; options are written key=value, see dinfer --help")

    parser.error = refuse  # type: ignore[method-assign]
    arguments = parser.parse_args(list(words))
    if arguments.help:
        sys.stdout.write(help_text([arguments.config_dir] if arguments.config_dir else []) + "\n")
        return None
    for word in arguments.overrides:
        if "=" not in word and not word.startswith("~"):
            raise ConfigError(stray(word, words))
        if no_option := NO_OPTION.fullmatch(word):
            group, given = no_option.groups()
            known = [option.name for option in options() if option.group == group]
            raise ConfigError(f"{group} must be one of {choices(known)}; got {given or 'nothing'}")
    return arguments


def stray(word: str, words: Sequence[str]) -> str:
    """The line for a word that is not key=value: most often it belongs to another command."""
    if word in COMMANDS:
        return f"{word!r} is a command of its own: dinfer-{word} {' '.join(words[words.index(word) + 1:])}".rstrip()
    if " " in word or word.endswith("?"):
        return f"{word!r} is a prompt, not key=value; decode it with: dinfer-generate --model PATH {word!r}"
    if Path(word).is_dir():
        return f"{word!r} is a folder; for a table of records: dinfer-report {word}, for a checkpoint: model.path={word}"
    return not_an_override(word)


def launch(words: Sequence[str]) -> dict[str, Any]:
    """Hand the command to Hydra, whose errors are to reach this module unchanged; returns what the (last) run returned."""
    kept, shown = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sweeping = bool({"-m", "--multirun"} & set(words))
    words = [NESTED.sub(r"\1@\1.inner=\2", word) for word in words]
    sys.argv = [kept[0], *(as_sweep(word) if sweeping else word for word in words)]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    result: dict[str, Any] = {}

    def task(config: DictConfig) -> dict[str, Any]:
        result.update(job(config))
        return result

    try:
        run_with_hydra = hydra.main(version_base="1.3", config_path=CONFIG_PATH, config_name=CONFIG_NAME)
        run_with_hydra(job if sweeping else task)()
    finally:
        sys.argv = kept
        if shown is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = shown
    return result


def as_sweep(word: str) -> str:
    """An override of one value as a sweep over that value, so that Hydra judges it within a cell: before cells are made the
    group it belongs to still has its default option. All other words stay as they are."""
    key, equals, value = word.partition("=")
    if not equals or not value or "." not in key or word.startswith(("-", "~", "hydra")):
        return word
    override = OverridesParser.create().parse_override(word)
    return word if override.is_sweep_override() else f"{key}=choice({value})"


def job(config: DictConfig) -> dict[str, Any]:
    """One run. Returns plain data (`folder` and `fresh`, or `error` and `code`), for it may be called in another process."""
    set_up_logging()
    try:
        return attempt(config)
    except ConfigError as error:
        return {"error": str(error), "code": 2}
    except Busy as error:
        return {"error": str(error), "code": 1}
    except Exception as error:
        log.exception("the run failed; the same command continues it once the cause is gone")
        return {"error": f"{type(error).__name__}: {one_line(error)}", "code": 1}


def attempt(config: DictConfig) -> dict[str, Any]:
    from experiments.plan import make_plan, plain_config

    state = HydraConfig.get()
    plan = make_plan(plain_config(config), {str(k): str(v) for k, v in state.runtime.choices.items()})

    from experiments.cell import run_cell
    from experiments.report import print_table

    outcome = run_cell(plan)
    log.info("%s %s", "done" if outcome.fresh else "done before", outcome.folder)
    if state.mode == RunMode.RUN:
        print_table([outcome.folder])
    return {"folder": str(outcome.folder), "fresh": outcome.fresh}


if __name__ == "__main__":
    main()
