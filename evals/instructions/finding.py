"""What a checker returns, and the comparison that most instructions share."""

from __future__ import annotations

from typing import NamedTuple

RELATIONS = ("less than", "at least")


class Finding(NamedTuple):
    """Whether an instruction was followed, and what was found, for a person to read."""

    followed: bool
    found: str


def compare(count: int, relation: str, bound: int, what: str) -> Finding:
    """`count` against `bound` under one of `RELATIONS`; ValueError for another relation."""
    if relation not in RELATIONS:
        raise ValueError(f"relation must be one of {', '.join(RELATIONS)}, got {relation!r}")
    followed = count < bound if relation == "less than" else count >= bound
    return Finding(followed, f"{count} {what}, wanted {relation} {bound}")
