"""The command `dinfer-doctor`: what this machine and installation offer, and what they lack. Changes nothing."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

from experiments.manifest import git, versions

#: Optional packages and what they are for.
OPTIONAL = {
    "wandb": "logger=wandb",
    "langdetect": "task=ifeval",
    "punkt": "task=ifeval",
    "lm_eval": "dinfer-lm-eval, prompt styles of lm-eval",
    "hydra_plugins.hydra_joblib_launcher": "hydra/launcher=joblib",
    "hydra_plugins.hydra_submitit_launcher": "hydra/launcher=submitit_slurm",
    "hydra_plugins.hydra_ray_launcher": "hydra/launcher=ray",
}


def main() -> None:
    """Entry point; arguments are those of the process."""
    raise SystemExit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    parser = argparse.ArgumentParser("dinfer-doctor", description="Versions, devices, optional packages, sandbox layers.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    found = examine()
    if parser.parse_args(list(words)).json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return 0
    for part, facts in found.items():
        sys.stdout.write(f"{part}\n")
        for name, fact in facts.items():
            sys.stdout.write(f"  {name:<40} {fact}\n")
    return 0


def examine() -> dict[str, dict[str, Any]]:
    """Everything the command shows, by part."""
    return {
        "versions": {**versions(), "checkout": (git() or {}).get("commit", "none")},
        "devices": devices(),
        "optional packages": {name: f"{available(name)} ({use})" for name, use in OPTIONAL.items()},
        "sandbox": sandbox(),
    }


def devices() -> dict[str, Any]:
    """Processors and accelerators torch sees."""
    import torch

    found: dict[str, Any] = {
        "cpu": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "cuda": "available" if torch.cuda.is_available() else f"not available (torch {torch.__version__})",
    }
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        found[f"cuda:{index}"] = f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB"
    return found


def available(package: str) -> str:
    try:
        return "installed" if importlib.util.find_spec(package) else "not installed"
    except ModuleNotFoundError:
        return "not installed"


def sandbox() -> dict[str, str]:
    """The layers around model-written programs, and whether they suffice to run any."""
    from evals.sandbox import SandboxError, layers, run_program

    found = dict(layers())
    try:
        result = run_program("print('here')")
        found["trial program"] = "ran" if result.passed else f"did not pass: {result.reason}"
    except SandboxError as error:
        found["trial program"] = f"refused: {error}"
    return found
