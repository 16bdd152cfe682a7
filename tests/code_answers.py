"""Shared by the tests of the code benchmarks: scoring many answers at a time, and solutions made wrong on purpose."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from evals.task import Answer, Sample, Score

_SPOIL = """
def _spoil(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, (list, tuple)):
        return value + type(value)([None])
    return 0 if value is None else None
"""


def score_all(task: Any, samples: Sequence[Sample], answer: Callable[[Sample], str | None]) -> dict[str, Score]:
    """The verdict on the answer to each sample, two at a time."""

    def one(sample: Sample) -> Score:
        text = answer(sample)
        assert text is not None
        return task.score(sample, Answer(text))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip((sample.id for sample in samples), pool.map(one, samples), strict=True))


def failures(scores: dict[str, Score]) -> dict[str, str]:
    """What was not right, and why."""
    return {name: f"{s.outcome}: {s.explanation[:300]}" for name, s in scores.items() if s.value != 1.0}


def spoilt(program: str, entry: str) -> str:
    """`program` with every value that function `entry` returns replaced by another of its kind."""

    class Returns(ast.NodeTransformer):
        def visit_Return(self, node: ast.Return) -> ast.Return:
            value = node.value or ast.Constant(None)
            node.value = ast.Call(ast.Name("_spoil", ast.Load()), [value], [])
            return node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
            return node

        visit_Lambda = visit_FunctionDef

    tree = ast.parse(program)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry)
    function.body = [Returns().visit(statement) for statement in function.body]
    return f"{_SPOIL}\n{ast.unparse(ast.fix_missing_locations(tree))}\n"
