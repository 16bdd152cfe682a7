"""Finds numbers and final answers in what a model wrote, and compares them as numbers.

Understands what answers to maths questions really contain: currency and percent signs, thousands separators, LaTeX
(`\\boxed`, `\\frac`, `\\$`), fractions, exponents, units, sentence ends and the text of special tokens. It does not
evaluate expressions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

#: Two numbers are the same when they differ by at most this much, absolutely or relative to the expected one.
TOLERANCE = Fraction(1, 1_000_000)

_MAX_DIGITS = 400  # a longer run of digits is no answer; Python limits and slows integers of thousands of digits

_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,80}\|>"
    r"|</?s>|<(?:pad|eos|bos|unk|mask|sep|cls|eot|eod|endoftext|extra_id_\d+|unused\d+|reserved_\d+)>"
    r"|\[(?:PAD|EOS|BOS|MASK|SEP|CLS)\]",
    re.IGNORECASE,
)

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}(?![0-9])|[0-9]+)"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![\w)\]}}%])-)?    # a minus after a digit, a letter or a bracket is a subtraction or a range
    (?:[$€£¥₹][ ]?(?P<inner>-)?)?
    (?:
      (?<!/)(?P<whole>[0-9]{{1,9}})[ ]{{1,3}}(?P<part>[0-9]{{1,4}})/(?P<parts>[1-9][0-9]{{0,3}})(?![0-9/])   # 3 1/2
      |
      (?<!/)(?P<over>{_DIGITS}(?:\.[0-9]+)?)/[$€£¥₹]?(?P<under>{_DIGITS}(?:\.[0-9]+)?)(?!/?[0-9])   # 3/4, no dates
      |
      (?P<number>{_DIGITS}(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)
      (?:
        [eE](?P<exponent>[+-]?[0-9]{{1,2}})(?!\w)
        | [ ]?(?:[x×*]|\\times|\\cdot)[ ]?10[ ]?\^[ ]?\{{?(?P<power>[+-]?[0-9]{{1,2}})\}}?
      )?
    )
    """,
    re.VERBOSE,
)

_WIDE = {0xFF01 + i: 0x21 + i for i in range(94)}  # full-width forms of the ASCII characters
_BOX = re.compile(r"\\f?boxed\s*")
_STATEMENT = re.compile(r"(?P<hashes>####)|(?P<box>\\f?boxed\b)|\banswer\b\**(?:\s+is\b|(?P<colon>\s*[:=]\**))", re.IGNORECASE)
_MARKS = {"hashes": re.compile(r"#### (-?[0-9.,]+)"), "answer_is": re.compile(r"The answer is (-?[0-9.,]+)")}
_LOOK_BACK = 50  # statements looked at from the end, so that repeated text stays cheap
_LONGEST = 2_000  # characters in which a box or a line has to end


@dataclass(frozen=True, slots=True)
class Number:
    """A number found in a text: its exact value and its digits as written, without grouping, currency and units."""

    value: Fraction
    text: str


def strip_special_tokens(text: str) -> str:
    """`text` without the written form of special tokens (`<|eot_id|>`, `</s>`, `[MASK]` …)."""
    return _SPECIAL.sub(" ", text)


def strip_special_end(text: str) -> str:
    """`text` without special tokens at its end; elsewhere they stay, as part of what the model wrote."""
    end = len(text)
    for match in reversed(list(_SPECIAL.finditer(text))):
        if text[match.end() : end].strip():
            break
        end = match.start()
    return text if end == len(text) else text[:end].rstrip()


def numbers(text: str) -> Iterator[Number]:
    """All numbers of `text` in order."""
    for match in _NUMBER.finditer(_plain(text)):
        found = _number(match)
        if found is not None:
            yield found


def first_number(text: str) -> Number | None:
    return next(numbers(text), None)


def last_number(text: str) -> Number | None:
    found = None
    for found in numbers(text):  # noqa: B007
        pass
    return found


def boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{…}` (braces balanced) or `\boxed 18` of `text`; None without one."""
    for match in reversed(list(_BOX.finditer(text))[-_LOOK_BACK:]):
        content = _braced(text[match.end() : match.end() + _LONGEST])
        if content is not None:
            return content
    return None


def stated_answer(text: str) -> Number | None:
    r"""The number of the last explicit statement of an answer; None when nothing is stated.

    A statement is `\boxed{…}`, "the answer is …" (on the same line; behind the last equals sign if there is one), or
    `####` or "answer:" directly before the number, so that headings and reasoning behind "Answer:" are none.
    """
    for match in reversed(list(_STATEMENT.finditer(text))[-_LOOK_BACK:]):
        rest = text[match.end() : match.end() + _LONGEST].lstrip()
        if match["box"]:
            rest = _braced(rest) or ""
        else:
            rest = _plain(rest.split("\n", 1)[0])
            if match["hashes"] and re.match(r"\W*[0-9]+[.)]\s+\S", rest):
                continue  # a numbered heading
            if (match["hashes"] or match["colon"]) and not re.match(r"[^\w\n]{0,12}[0-9]", rest):
                continue
        found = first_number(rest.rsplit("=", 1)[-1]) or first_number(rest)
        if found is not None:
            return found
    return None


def _braced(text: str) -> str | None:
    """The balanced brace group that `text` starts with, without its braces; else its first word if that has a digit."""
    if not text.startswith("{"):
        word = re.match(r"[^\s\\{}$]*[0-9][^\s\\{}$]*", text)
        return word.group() if word else None
    depth = 0
    for index, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[1:index]
    return None


def marked_number(text: str, mark: str) -> Number | None:
    r"""The number behind a mark that a prompt asked for, and only there.

    `hashes` and `answer_is` follow lm-eval's strict filters of gsm8k and gsm8k_cot: the first "#### 18" or "The answer
    is 18" with nothing between mark and number. `boxed` takes the last `\boxed{…}`. ValueError for an unknown mark.
    """
    if mark == "boxed":
        return first_number(boxed(text) or "")
    if mark not in _MARKS:
        raise ValueError(f"mark must be one of {', '.join((*_MARKS, 'boxed'))}, got {mark!r}")
    match = _MARKS[mark].search(text)
    return first_number(match.group(1).rstrip(".,")) if match else None


def same_number(got: Number, expected: Number) -> bool:
    """Whether two numbers are equal within `TOLERANCE`, so `18.0` equals `18` and `1/3` equals `0.333333333`."""
    return abs(got.value - expected.value) <= TOLERANCE * max(Fraction(1), abs(expected.value))


def _plain(text: str) -> str:
    """`text` with special tokens, LaTeX and typography reduced to plain characters."""
    text = strip_special_tokens(text)
    text = re.sub("(?<=[0-9])[ \u00a0\u2009\u202f]?([¼-¾⅐-⅞])", r" \1", text)  # 3½ is 3 1/2, not 31/2
    text = "".join(unicodedata.normalize("NFKC", c) if "¼" <= c <= "¾" or "⅐" <= c <= "⅞" else c for c in text)
    text = text.replace("\u2044", "/").replace("\u2212", "-").translate(_WIDE)
    text = re.sub(r"(?<=[0-9])(?:\\[,!;:]|\{,\}|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ",", text)
    text = re.sub(r"\\[dtc]?frac\s*\{\s*([0-9.,]+)\s*\}\s*\{\s*([0-9.,]+)\s*\}", r"\1/\2", text)
    text = re.sub(r"\\[dtc]?frac\s*([0-9])\s*([0-9])", r"\1/\2", text)
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r" \1 ", text)
    return re.sub(r"\\([$%#&_ ])", r"\1", text)


def _number(match: re.Match[str]) -> Number | None:
    if len(match.group()) > _MAX_DIGITS:
        return None
    sign = -1 if match["sign"] or match["inner"] else 1
    if match["whole"] is not None:
        text = f"{match['whole']} {match['part']}/{match['parts']}"
        value = int(match["whole"]) + Fraction(int(match["part"]), int(match["parts"]))
    elif match["over"] is not None:
        over, under = match["over"].replace(",", ""), match["under"].replace(",", "")
        if Fraction(under) == 0:
            return Number(Fraction(0), under)
        text, value = f"{over}/{under}", Fraction(over) / Fraction(under)
    else:
        text = match["number"].replace(",", "")
        value = Fraction(text)
        power = match["exponent"] or match["power"]
        if power is not None:
            text, value = f"{text}e{int(power)}", value * Fraction(10) ** int(power)
    return Number(sign * value, f"-{text}" if sign < 0 else text)
