"""How long a response is, in words, sentences and paragraphs."""

from __future__ import annotations

import re

from evals.instructions.finding import Finding, compare
from evals.instructions.text import count_sentences

_WORD_ENDS = frozenset(".,?!'\"")


def number_words(response: str, *, num_words: int, relation: str) -> Finding:
    """Runs of letters, digits and underscores."""
    return compare(len(re.findall(r"\w+", response)), relation, num_words, "words")


def number_sentences(response: str, *, num_sentences: int, relation: str) -> Finding:
    """Sentences as English Punkt splits them."""
    return compare(count_sentences(response), relation, num_sentences, "sentences")


def number_paragraphs(response: str, *, num_paragraphs: int) -> Finding:
    """Paragraphs between dividers of three asterisks; none may be empty but before the first and behind the last."""
    parts = re.split(r"\s?\*\*\*\s?", response)
    if any(not part.strip() for part in parts[1:-1]):
        return Finding(False, "an empty paragraph between two dividers")
    count = sum(bool(part.strip()) for part in parts)
    return Finding(count == num_paragraphs, f"{count} paragraphs, wanted {num_paragraphs}")


def nth_paragraph_first_word(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> Finding:
    """As many paragraphs, divided by empty lines, as wanted, and the nth begins with the word."""
    parts = response.split("\n\n")
    count = sum(bool(part.strip()) for part in parts)
    if not 1 <= nth_paragraph <= count or not parts[nth_paragraph - 1].strip():
        return Finding(False, f"no paragraph {nth_paragraph} among {count}")
    word = _first_word(parts[nth_paragraph - 1])
    return Finding(
        count == num_paragraphs and word == first_word.lower(),
        f"{count} paragraphs, number {nth_paragraph} begins with {word!r}, wanted {num_paragraphs} and {first_word!r}",
    )


def _first_word(paragraph: str) -> str:
    """The first word in lower case, without opening quotes, up to its first punctuation mark."""
    word = paragraph.split(maxsplit=1)[0].lstrip("'").lstrip('"')
    end = next((i for i, char in enumerate(word) if char in _WORD_ENDS), len(word))
    return word[:end].lower()
