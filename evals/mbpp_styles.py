"""The ways MBPP is asked in published evaluations, by name: wording, worked examples, layout and stop strings.

The worked examples are the rows with task ids 2, 3 and 4 of the same data, as everywhere; none is stored here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evals.styles import Shot

#: The rows that published few-shot prompts show, in their order.
SHOT_IDS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Style:
    """One way of asking.

    `question` has `{text}` and `{tests}` in it, `{first}` for the first test alone; `tests` is how many tests are
    shown (None: all); `answer` shows the code of an example in place of `{code}`; `prefill` starts the answer.
    """

    question: str
    answer: str
    layout: str = "chat"
    tests: int | None = None
    prefill: str = ""
    shots: int = 0
    stop: tuple[str, ...] = ()

    def ask(self, text: str, tests: Sequence[str]) -> str:
        shown = "\n".join(tests[: self.tests])
        return self.question.replace("{text}", text).replace("{tests}", shown).replace("{first}", tests[0])

    def shot(self, text: str, tests: Sequence[str], code: str) -> Shot:
        return Shot(self.ask(text, tests), self.answer.replace("{code}", code))


_EXPERT = "You are an expert Python programmer, and here is your task:"
_LM_EVAL = Style(
    f"{_EXPERT} {{text}} Your code should pass these tests:\n\n{{tests}}\n[BEGIN]\n",
    "{code}\n[DONE]",
    layout="text",
    tests=3,
    shots=3,
    stop=("[DONE]",),
)
_LM_EVAL_INSTRUCT = Style(
    f"{_EXPERT}\n{{text}}\nYour code should pass these tests:\n{{tests}}",
    "\n```python\n{code}\n```",
    tests=3,
    prefill="\n```python\n",
    shots=3,
)
_OPENCOMPASS = Style(
    f"{_EXPERT} {{text}} Your code should pass these tests:\n\n {{tests}}  \n",
    "[BEGIN]\n '{code}' \n[DONE] \n\n ",
    layout="turns",
    prefill="[BEGIN]\n",
    shots=3,
    stop=("[DONE]",),
)
_FENCE = "Please enclose your code within delimiters as follows:\n```python\n# YOUR CODE HERE\n```\n\n"

#: `lm_eval`, `llada_base`, `dream_base`: lm-eval's mbpp, three examples as plain text. `lm_eval_instruct`: its
#: mbpp_instruct; `dream_instruct`: the same without examples. `opencompass`, `llada_instruct`: OpenCompass
#: mbpp_gen_830460, three examples as turns; `opencompass_fenced`: its sanitized_mbpp_mdblock_gen_a447ff.
#: `dinfer`: dInfer's mbpp_sanitized_llada, no examples. `evalplus`: EvalPlus's own chat prompt.
STYLES: Mapping[str, Style] = {
    "lm_eval": _LM_EVAL,
    "llada_base": _LM_EVAL,
    "dream_base": _LM_EVAL,
    "lm_eval_instruct": _LM_EVAL_INSTRUCT,
    "dream_instruct": replace(_LM_EVAL_INSTRUCT, shots=0),
    "opencompass": _OPENCOMPASS,
    "llada_instruct": _OPENCOMPASS,
    "opencompass_fenced": Style(
        f"{_EXPERT}\n{{text}}\nYour code should pass these tests:\n\n{{tests}}\n",
        "```python\n{code}```",
        layout="turns",
        shots=3,
    ),
    "dinfer": Style(
        f"{_EXPERT} {{text}} Your code should pass these tests:\n\n{{tests}}\n\n{_FENCE}", "```python\n{code}\n```"
    ),
    "evalplus": Style(
        "Please provide a self-contained Python script that solves the following problem in a markdown code block:\n"
        '```\n"""\n{text}\n{first}\n"""\n```\n',
        "```python\n{code}\n```",
        prefill="Below is a Python script with a self-contained function that solves the problem and passes "
        "corresponding tests:\n```python\n",
    ),
}
