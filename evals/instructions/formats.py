"""Marked-up content: placeholders, postscripts, bullets, highlights, sections, JSON, titles, fixed answers."""

from __future__ import annotations

import json
import re

from evals.instructions.finding import Finding

#: One of these has to occur when a response is constrained; the data gives no others.
CONSTRAINED_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")

_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}


def number_placeholders(response: str, *, num_placeholders: int) -> Finding:
    """At least so many texts in square brackets."""
    return _at_least(len(re.findall(r"\[.*?\]", response)), num_placeholders, "placeholders")


def postscript(response: str, *, postscript_marker: str) -> Finding:
    """The marker occurs, in any case; the usual two also with spaces between their letters."""
    marker = postscript_marker.strip()
    pattern = _POSTSCRIPTS.get(marker, re.escape(marker.lower()))
    followed = re.search(pattern, response.lower()) is not None
    return Finding(followed, f"postscript {marker} {'found' if followed else 'missing'}")


def number_bullet_lists(response: str, *, num_bullets: int) -> Finding:
    """Exactly so many lines that begin with one asterisk or with a hyphen."""
    stars = re.findall(r"^\s*\*[^*].*$", response, re.MULTILINE)
    hyphens = re.findall(r"^\s*-.*$", response, re.MULTILINE)
    count = len(stars) + len(hyphens)
    return Finding(count == num_bullets, f"{count} bullet points, wanted exactly {num_bullets}")


def constrained_response(response: str) -> Finding:
    """One of the fixed answers occurs."""
    followed = any(answer in response for answer in CONSTRAINED_ANSWERS)
    return Finding(followed, "a fixed answer found" if followed else "none of the fixed answers found")


def number_highlighted_sections(response: str, *, num_highlights: int) -> Finding:
    """At least so many non-empty texts between single or double asterisks on one line."""
    single = re.findall(r"\*[^\n*]*\*", response)
    double = re.findall(r"\*\*[^\n*]*\*\*", response)
    count = sum(bool(text.strip("*").strip()) for text in (*single, *double))
    return _at_least(count, num_highlights, "highlighted sections")


def multiple_sections(response: str, *, section_spliter: str, num_sections: int) -> Finding:
    """At least so many headings made of the given word and a number."""
    heading = rf"\s?{re.escape(section_spliter.strip())}\s?\d+\s?"
    return _at_least(len(re.findall(heading, response)), num_sections, f"sections headed {section_spliter}")


def json_format(response: str) -> Finding:
    """The whole response is JSON, in a code fence or bare."""
    body = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        body = body.removeprefix(fence)
    body = body.removesuffix("```").strip()
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        return Finding(False, f"not JSON: {type(error).__name__}: {error}")
    return Finding(True, "JSON")


def title(response: str) -> Finding:
    """A non-empty text in double angular brackets on one line."""
    followed = any(found.lstrip("<").rstrip(">").strip() for found in re.findall(r"<<[^\n]+>>", response))
    return Finding(followed, "title found" if followed else "no title in << >>")


def _at_least(count: int, bound: int, what: str) -> Finding:
    return Finding(count >= bound, f"{count} {what}, wanted at least {bound}")
