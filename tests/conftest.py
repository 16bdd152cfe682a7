"""Shared fixtures: one thread, a cache folder of the tests' own, and a tiny random checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing a test derives lands in the user's cache folder."""
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder))
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of benchmark data and reference traces beside the repository; the test is skipped without it."""
    folder = Path(os.environ.get("DINFER_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the shared data folder ({folder}); set DINFER_SHARED to it")
    return folder


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument, not their content: compressed data holds the time, and names must agree between
    the processes that share a run."""
    return argname if isinstance(val, bytes) else None
