"""The command `dinfer-lm-eval`: lm-eval's own command line, which knows the model `dinfer` besides its own.

lm-eval looks models up in a table of its own and offers packages no way to add to it, so somebody must import ours first.
"""

from __future__ import annotations

import sys

from experiments.errors import ConfigError


def main() -> None:
    """Entry point; arguments are those of lm_eval. Exit code 2 when the model's arguments are wrong."""
    from experiments.run import share_processor

    share_processor()
    try:
        import experiments.lm_eval_model  # noqa: F401 (registers the model)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "lm_eval":
            raise
        sys.stderr.write("dinfer-lm-eval: needs lm-eval: pip install 'dinfer[lm-eval]'\n")
        raise SystemExit(2) from error
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except ConfigError as error:
        sys.stderr.write(f"dinfer-lm-eval: {error}\n")
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
