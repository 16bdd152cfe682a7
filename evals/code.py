"""Finds the program in what a model wrote: fenced blocks, prose around them, bare continuations, cut-off ends.

Nothing here runs a program, except to let the Python compiler say whether a text is one.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

#: Written end marks; what a model writes behind one is no part of its answer.
_END = re.compile(
    r"<[|｜](?:endoftext|eot_id|eot|eom_id|end_of_text|im_end|role_end|end|end_of_turn|end▁of▁sentence|eos|return)[|｜]>"
    r"|</s>|<eos>|<end_of_turn>|\[EOS\]"
)
_SPECIAL = re.compile(r"<[|｜][^<>|｜\n]{1,40}[|｜]>|</?s>|<(?:pad|bos|eos|unk)>|\[(?:EOS|BOS|PAD)\]")
_OPEN = re.compile(r"^(?P<before>.*?)(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[ \t]*(?P<rest>[^`]*)$")
#: Languages of a fence that may hold Python.
PYTHON = ("", "python", "python3", "py", "py3", "python2", "ipython", "pycon", "code")
_CODE_LINE = re.compile(r"^(?:from\s+[\w.]+\s+import\b|import\s+\w|def\s+\w|async\s+def\s|class\s+\w|@\w|if __name__)")
_STATEMENT_LINE = re.compile(r"^(?:[A-Za-z_][\w.,\s\[\]]*=[^=]|for\s.+:|while\s.+:|if\s.+:|try:|with\s.+:|print\(|\w+\()")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language as written (lower case), its text, and whether the closing fence was there."""

    language: str
    text: str
    closed: bool


def clean(text: str) -> str:
    """`text` with plain line ends, cut at the first written end mark, without special tokens at either end."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    start = re.match(rf"(?:\s*(?:{_SPECIAL.pattern})(?:assistant\b)?)+\n?", text)
    if start is not None:
        text = text[start.end() :]
    end = _END.search(text)
    if end is not None:
        text = text[: end.start()]
    while True:
        shorter = re.sub(rf"(?:{_SPECIAL.pattern})\s*\Z", "", text)
        if shorter == text:
            return text
        text = shorter


def blocks(text: str, *, inside: bool = False) -> list[Block]:
    """The fenced blocks of `text` in order.

    With `inside` it begins in one, whose fence a prompt has opened, unless it opens that fence again.
    """
    found: list[Block] = []
    first = next((line for line in text.split("\n") if line.strip()), "")
    inside = inside and re.match(r"\s*(?:```|~~~)", first) is None
    marks, language, lines = ("```", "", []) if inside else (None, "", [])
    for line in text.split("\n"):
        if marks is None:
            opened = _OPEN.match(line)
            if opened is not None:
                marks, language = opened["marks"], opened["language"].lower()
                lines = [opened["rest"]] if opened["rest"].strip() else []
            continue
        bare = line.strip()
        if bare.startswith(marks) and not bare.strip(marks[0]):
            found.append(Block(language, "\n".join(lines), closed=True))
            marks = None
        elif bare.endswith(marks) and marks not in bare[: -len(marks)]:
            lines.append(line.rstrip()[: -len(marks)])
            found.append(Block(language, "\n".join(lines), closed=True))
            marks = None
        else:
            lines.append(line)
    if marks is not None and any(line.strip() for line in lines):
        found.append(Block(language, "\n".join(lines), closed=False))
    return found


def compiles(text: str) -> bool:
    """Whether `text` is a Python program with at least one statement."""
    if not parsed(text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "answer", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def parsed(text: str) -> list[ast.stmt]:
    """The statements of `text`; none when it is no Python program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []


def defines(text: str, name: str) -> bool:
    """Whether `text` defines or assigns `name` at its top level; by its look where it does not compile."""
    body = parsed(text)
    if not body:
        return re.search(rf"^(?:async\s+)?(?:def|class)\s+{re.escape(name)}\b", text, re.MULTILINE) is not None
    return name in _defined(body)


def extract(text: str, *, entry: str | None = None, inside: bool = False) -> str | None:
    """The program in `text`, or None when there is none to be seen.

    Among fenced Python blocks: the last that defines `entry` (the last that compiles when no entry is asked for),
    preceded by those earlier blocks whose definitions it needs. Without a fence: the text itself, or what is left of
    it between a line that looks like code and the last line with which it compiles.
    """
    text = clean(text)
    found = [block for block in blocks(text, inside=inside) if block.language in PYTHON]
    python = [_dedent(block.text) for block in found if block.text.strip()]
    if not python:
        return _in_prose(text) if "```" not in text and "~~~" not in text else None
    wanted = [code for code in python if entry is not None and defines(code, entry)]
    good = [code for code in wanted if compiles(code)] or wanted or [code for code in python if compiles(code)] or python
    chosen = good[-1]
    return _with_needed(chosen, python[: python.index(chosen)])


def _defined(body: Iterable[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return names


def _with_needed(code: str, earlier: list[str]) -> str:
    """`code` behind those of the `earlier` blocks that define, by `def`, `class` or `import`, what it lacks."""
    needed: list[str] = []
    for block in reversed(earlier):
        body = parsed(block)
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
        if not body or not all(isinstance(statement, kinds) for statement in body):
            continue
        tree = parsed(code)
        used = {node.id for statement in tree for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if (used - _defined(tree) - set(dir(builtins))) & _defined(body):
            needed.insert(0, block)
            code = block + "\n\n" + code
    return code


def _dedent(text: str) -> str:
    """`text` moved to the left as a whole, when its first line of code is indented and it compiles only then."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    width = len(first) - len(first.lstrip())
    if width == 0 or compiles(text):
        return text
    moved = "\n".join(line[width:] if line[:width].isspace() else line for line in text.split("\n"))
    return moved if compiles(moved) else text


def _in_prose(text: str) -> str | None:
    if compiles(text) and not _is_words(text):
        return text
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _CODE_LINE.match(line)]
    starts = starts[:1] or [number for number, line in enumerate(lines) if _STATEMENT_LINE.match(line)][:1]
    if not starts:
        return None
    for end in range(len(lines), starts[0], -1):
        part = "\n".join(lines[starts[0] : end])
        if compiles(part):
            return part
    return "\n".join(lines[starts[0] :])


def _is_words(text: str) -> bool:
    """Whether a text that happens to compile (`Sorry`, `None`) is too little to be a program."""
    body = parsed(text)
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Name | ast.Constant | ast.Tuple) for s in body)


def called_names(tests: str) -> list[str]:
    """Names that `tests` calls or loads at any depth, in order of appearance."""
    found = [node for statement in parsed(tests) for node in ast.walk(statement) if isinstance(node, ast.Name)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in found if isinstance(node.ctx, ast.Load)))
