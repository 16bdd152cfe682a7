"""The ways LiveCodeBench problems are asked, by name. The wording is that of the official repository's chat prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests."
)
_WITH_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within delimiters."
)
_WITHOUT_STARTER = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows."
)


@dataclass(frozen=True, slots=True)
class Style:
    """One way of asking: a system turn (None: none), and whether a chat template is meant."""

    system: str | None
    is_chat: bool = True


#: `official`: the checker's own chat prompt; `official_strict`: its system turn with one more sentence, as its earlier
#: versions and OpenCompass's copy have it. `opencompass`, `llada_instruct`: the question without a system turn, as
#: OpenCompass asks. `plain`: that question as plain text, for base models. Neither lm-eval nor the published
#: evaluations of Dream and dInfer have a prompt of their own for this benchmark.
STYLES: Mapping[str, Style] = {
    "official": Style(_SYSTEM),
    "official_strict": Style(f"{_SYSTEM} You will NOT return anything except for the program."),
    "opencompass": Style(None),
    "llada_instruct": Style(None),
    "plain": Style(None, is_chat=False),
}


def question(content: str, starter: str | None) -> str:
    """The question as the official prompt words it."""
    code = starter or "# YOUR CODE HERE"
    form = _WITH_STARTER if starter else _WITHOUT_STARTER
    return (
        f"### Question:\n{content}\n\n### Format: {form}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    )
