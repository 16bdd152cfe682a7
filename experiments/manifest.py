"""What a record says of its circumstances: code, libraries, machine, command."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("dinfer", "torch", "transformers", "tokenizers", "hydra-core", "datasets", "evaluate")


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@lru_cache(maxsize=1)
def git() -> dict[str, Any] | None:
    """Commit of the checkout this code runs from and whether it was changed since; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        run = [["git", "-C", str(root), *words] for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])]
        commit, changed = (subprocess.run(c, capture_output=True, text=True, timeout=10, check=True).stdout for c in run)
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.strip(), "changed": bool(changed.strip())}


def session() -> dict[str, Any]:
    """This process as one entry of the manifest's `sessions`."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "git": git(),
        "versions": versions(),
    }


def sandbox() -> dict[str, str] | None:
    """The layers that isolate model-written programs here; None when the task at hand runs none."""
    module = sys.modules.get("evals.sandbox")
    return module.layers() if module else None
