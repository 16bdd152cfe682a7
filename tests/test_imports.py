"""Imports point one way: experiments to evals and dinfer; those two know neither each other nor the application's tools."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPLICATION = {"experiments", "conf", "hydra", "omegaconf", "wandb", "rich", "matplotlib"}
FORBIDDEN = {"dinfer": APPLICATION | {"evals", "argparse"}, "evals": APPLICATION | {"dinfer", "torch", "transformers"}}


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_packages_know_only_what_they_may(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert len(files) > 3
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            wrong = {name.split(".")[0] for name in names} & FORBIDDEN[package]
            assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"
