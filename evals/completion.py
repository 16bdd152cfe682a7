"""Puts a function together from the prompt that begins it and the answer that completes it.

Also where the answer starts over, or a tokenizer has eaten the first line's indentation, or prose follows.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from evals.code import PYTHON, blocks, clean, compiles, defines, extract, parsed

#: At the start of a line these end the body of a function that a model is continuing.
_AFTER_BODY = re.compile(r"\n(?=(?:class|def|#|if|print|@|```|assert|from|import)\b|[#@`])")


def continue_function(prompt: str, entry: str, text: str, *, inside: bool = False) -> str | None:
    """The program that `text` makes of `prompt`, which ends in the header and docstring of function `entry`.

    `text` may be a whole function (fenced or not): then what stands before the function in `prompt`, imports and
    helpers, comes first. Or it is the rest of the function: then it follows `prompt`, its first line put right when
    a tokenizer has eaten the indentation. None when there is no code in it.
    """
    for reading in dict.fromkeys((False, inside)):
        whole = extract(text, entry=entry, inside=reading)
        if whole is not None and defines(whole, entry) and (compiles(whole) or reading == inside):
            return _before(prompt, entry) + whole
    text = clean(text)
    fenced = [block.text for block in blocks(text, inside=inside) if block.language in PYTHON]
    before_fence = re.split(r"^.*(?:```|~~~)", text, maxsplit=1, flags=re.MULTILINE)[0]
    bodies = [body for body in (*fenced, before_fence, text) if body.strip()]
    for body in bodies:
        start = prompt.rstrip() + "\n"
        for program in (prompt + body, *(start + reading for reading in _readings(body.rstrip() + "\n"))):
            if compiles(program) and _has_body(program, entry):
                return program
    return prompt.rstrip() + "\n" + bodies[0] if bodies else None


def _before(prompt: str, entry: str) -> str:
    """Imports and helpers of `prompt`: all that precedes the function `entry`, if that much compiles."""
    match = re.search(rf"^(?:@.*\n)*(?:async\s+)?def\s+{re.escape(entry)}\b", prompt, re.MULTILINE)
    before = prompt[: match.start()] if match is not None else ""
    return before if compiles(before) else ""


def _readings(body: str) -> Iterator[str]:
    """What a continuation may have meant, the most literal first: as it is; without what follows the function;
    with the first line's indentation put right; with all of it moved to where the body of a function belongs."""
    yield body
    cut = _AFTER_BODY.split(body, maxsplit=1)[0] + "\n"
    inner = _indented_part(body)
    texts = dict.fromkeys((cut, inner))
    yield from texts
    for text in dict.fromkeys((body, cut, inner)):
        for fixed in (_first_line_right(text), text):
            yield "".join("    " + line for line in textwrap.dedent(fixed.expandtabs(4)).splitlines(keepends=True))
        yield "".join("    " + line for line in text.splitlines(keepends=True))


def _indented_part(body: str) -> str:
    """The lines up to the first one that starts at the margin after others did not."""
    kept: list[str] = []
    for line in body.split("\n"):
        if line.strip() and not line[:1].isspace() and any(other[:1].isspace() and other.strip() for other in kept):
            break
        kept.append(line)
    return "\n".join(kept).rstrip() + "\n"


def _first_line_right(text: str) -> str:
    """`text` with its first line indented as the least indented of those behind it."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    rest = [line[: len(line) - len(line.lstrip())] for line in lines[first + 1 :] if line.strip()]
    lines[first] = min(rest, key=len, default="") + lines[first].lstrip()
    return "\n".join(lines)


def _has_body(program: str, entry: str) -> bool:
    """Whether function `entry` has a statement besides its docstring."""
    for statement in parsed(program):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == entry:
            first = statement.body[0]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            return len(statement.body) > 1 or not is_text
    return False
