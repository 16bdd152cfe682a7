"""The language of a response and its letter case."""

from __future__ import annotations

from evals.instructions.finding import Finding, compare
from evals.instructions.text import capital_words, detect_language


def response_language(response: str, *, language: str) -> Finding:
    """The detected language (ISO 639-1) is the wanted one; text without a detectable language passes."""
    found = detect_language(response)
    return Finding(found in (language, None), f"language {found}, wanted {language}")


def english_capital(response: str) -> Finding:
    """English, and no lower-case letter."""
    return _english(response, response.isupper(), "capitals")


def english_lowercase(response: str) -> Finding:
    """English, and no capital letter."""
    return _english(response, response.islower(), "lower case")


def capital_word_frequency(response: str, *, capital_frequency: int, capital_relation: str) -> Finding:
    """How many words consist of capitals, words in the sense of the Penn Treebank (`DON'T` is two)."""
    return compare(len(capital_words(response)), capital_relation, capital_frequency, "words in capitals")


def _english(response: str, cased: bool, what: str) -> Finding:
    if not cased:
        return Finding(False, f"not all letters are {what}")
    found = detect_language(response)
    return Finding(found in ("en", None), f"all {what}, language {found}")
