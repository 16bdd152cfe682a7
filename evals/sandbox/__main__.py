"""`python -m evals.sandbox FILE`: run one program under the usual limits and print the result as one JSON line."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from evals.sandbox import Limits, SandboxError, layers, run_program


def main() -> int:
    """0 when the program was run, whatever came of it; 2 when it could not be run."""
    usual = Limits()
    parser = argparse.ArgumentParser(prog="python -m evals.sandbox", description=__doc__)
    parser.add_argument("file", nargs="?", help="the program")
    parser.add_argument("--stdin", metavar="FILE", help="what the program reads from standard input")
    parser.add_argument("--layers", action="store_true", help="print the isolation layers of this machine instead")
    for name, value in asdict(usual).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value}")
    options = parser.parse_args()
    if (options.file is None) != options.layers:
        parser.error("give either FILE or --layers")
    try:
        if options.layers:
            print(json.dumps(layers()))
            return 0
        limits = Limits(**{name: getattr(options, name) for name in asdict(usual)})
        source = Path(options.file).read_bytes().decode("utf-8", "surrogateescape")
        stdin = None if options.stdin is None else Path(options.stdin).read_bytes().decode("utf-8", "replace")
        result = run_program(source, stdin=stdin, limits=limits)
    except (SandboxError, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
