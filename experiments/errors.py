"""What a user can get wrong, said in one line that names the field, what was given and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A configuration that cannot run. The message is one line for a person; no traceback is wanted."""


class Busy(RuntimeError):
    """A record that another process is writing."""


class CellsFailed(RuntimeError):
    """Some cells of a sweep failed; the others have their records."""


def one_line(text: object) -> str:
    """`text` with its line breaks and repeated blanks folded away."""
    return " ".join(str(text).split())


def suggestion(word: str, known: Iterable[str]) -> str:
    """" (did you mean x?)" for the known word nearest to `word`, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near and near[0] != word else ""


def choices(known: Iterable[str]) -> str:
    """The known words as a list for a message; "none" when there are none."""
    return ", ".join(sorted(known)) or "none"
