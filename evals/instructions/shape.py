"""The shape of a whole response: how it begins and ends, two answers in one, no commas."""

from __future__ import annotations

from evals.instructions.finding import Finding


def two_responses(response: str) -> Finding:
    """Two different texts with six asterisks between them."""
    parts = response.split("******")
    if any(not part.strip() for part in parts[1:-1]):
        return Finding(False, "an empty response between two dividers")
    texts = [part.strip() for part in parts if part.strip()]
    return Finding(len(texts) == 2 and texts[0] != texts[1], f"{len(texts)} responses, wanted two different ones")


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> Finding:
    """Begins with the prompt, in any case."""
    followed = response.strip().lower().startswith(prompt_to_repeat.strip().lower())
    return Finding(followed, f"the prompt is {'' if followed else 'not '}repeated first")


def end_checker(response: str, *, end_phrase: str) -> Finding:
    """Ends with the phrase, in any case, quotation marks around the response aside."""
    end = response.strip().strip('"').lower()
    return Finding(end.endswith(end_phrase.strip().lower()), f"ends with {end[-60:]!r}, wanted {end_phrase!r}")


def quotation(response: str) -> Finding:
    """Wrapped in double quotation marks."""
    text = response.strip()
    followed = len(text) > 1 and text.startswith('"') and text.endswith('"')
    return Finding(followed, f"{'' if followed else 'not '}wrapped in quotation marks")


def no_comma(response: str) -> Finding:
    """Free of commas."""
    return Finding("," not in response, f"{response.count(',')} commas, wanted none")
