"""The 25 verifiable instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911), each a function of a response.

A checker takes the response and the arguments that the data gives, by name, and returns a `Finding`. The rules are those
of the official evaluation, with two differences: an argument the data lacks is an error instead of a random choice, and
`keywords:letter_frequency` counts a symbol as itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from evals.instructions import formats, keywords, language, lengths, shape
from evals.instructions.finding import Finding

__all__ = ["CHECKERS", "Finding", "arguments", "check"]

Checker = Callable[..., Finding]

#: Checker by instruction id, as the data spells it.
CHECKERS: Mapping[str, Checker] = {
    "keywords:existence": keywords.existence,
    "keywords:frequency": keywords.frequency,
    "keywords:forbidden_words": keywords.forbidden_words,
    "keywords:letter_frequency": keywords.letter_frequency,
    "language:response_language": language.response_language,
    "change_case:english_capital": language.english_capital,
    "change_case:english_lowercase": language.english_lowercase,
    "change_case:capital_word_frequency": language.capital_word_frequency,
    "length_constraints:number_sentences": lengths.number_sentences,
    "length_constraints:number_paragraphs": lengths.number_paragraphs,
    "length_constraints:number_words": lengths.number_words,
    "length_constraints:nth_paragraph_first_word": lengths.nth_paragraph_first_word,
    "detectable_content:number_placeholders": formats.number_placeholders,
    "detectable_content:postscript": formats.postscript,
    "detectable_format:number_bullet_lists": formats.number_bullet_lists,
    "detectable_format:constrained_response": formats.constrained_response,
    "detectable_format:number_highlighted_sections": formats.number_highlighted_sections,
    "detectable_format:multiple_sections": formats.multiple_sections,
    "detectable_format:json_format": formats.json_format,
    "detectable_format:title": formats.title,
    "combination:two_responses": shape.two_responses,
    "combination:repeat_prompt": shape.repeat_prompt,
    "startend:end_checker": shape.end_checker,
    "startend:quotation": shape.quotation,
    "punctuation:no_comma": shape.no_comma,
}


def arguments(instruction: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `given` without nulls (some loaders fill in those of every other instruction).

    ValueError naming the instruction when it is unknown or its arguments do not fit.
    """
    if instruction not in CHECKERS:
        raise ValueError(f"unknown instruction {instruction!r}, known are {', '.join(CHECKERS)}")
    present = {name: value for name, value in given.items() if value is not None}
    try:
        inspect.signature(CHECKERS[instruction]).bind("", **present)
    except TypeError as error:
        raise ValueError(f"instruction {instruction}: {error}, got {present}") from error
    return present


def check(instruction: str, given: Mapping[str, Any], response: str) -> Finding:
    """Whether `response` follows `instruction`; a blank response follows none."""
    present = arguments(instruction, given)
    if not response.strip():
        return Finding(False, "the response is empty")
    return CHECKERS[instruction](response, **present)
