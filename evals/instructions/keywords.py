"""Words and letters that a response has to contain, a number of times or not at all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evals.instructions.finding import Finding, compare


def existence(response: str, *, keywords: Sequence[str]) -> Finding:
    """Every keyword occurs, in any case, also inside a longer word."""
    missing = [word for word in keywords if not _occurrences(word, response)]
    return Finding(not missing, f"missing {missing}" if missing else "all keywords occur")


def frequency(response: str, *, keyword: str, frequency: int, relation: str) -> Finding:
    """How often the keyword occurs, in any case, also inside longer words."""
    return compare(_occurrences(keyword.strip(), response), relation, frequency, f"times {keyword!r}")


def forbidden_words(response: str, *, forbidden_words: Sequence[str]) -> Finding:
    """None of the words occurs as a word of its own, in any case."""
    present = [word for word in forbidden_words if _occurrences(word, response, whole=True)]
    return Finding(not present, f"contains {present}" if present else "none of the words occurs")


def letter_frequency(response: str, *, letter: str, let_frequency: int, let_relation: str) -> Finding:
    """How often the character occurs, in any case.

    A symbol is counted as itself. The official checker puts a random letter in its place, so that its verdict on the
    two rows that ask for symbols (keys 1122 and 1129) changes from run to run.
    """
    if len(letter) != 1:
        raise ValueError(f"letter must be one character, got {letter!r}")
    return compare(response.lower().count(letter.lower()), let_relation, let_frequency, f"times {letter!r}")


def _occurrences(word: str, text: str, *, whole: bool = False) -> int:
    """Matches of `word`. It is a regular expression, as in the official evaluation, unless it is no valid one."""
    try:
        pattern = re.compile(word, re.IGNORECASE)
    except re.error:
        word = re.escape(word)
        pattern = re.compile(word, re.IGNORECASE)
    if whole:
        pattern = re.compile(rf"\b{word}\b", re.IGNORECASE)
    return len(pattern.findall(text))
