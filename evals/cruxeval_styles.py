"""The ways CRUXEval is asked, by name, for predicting an output and for finding an input.

`direct` and `cot` are in our own words. The others follow lm-eval's task files and the original prompts (Gu et al. 2024,
arXiv:2401.03065), whose wording and examples are read from the installed lm-eval; nothing of it is stored here.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STOP = ("[/ANSWER]",)


@dataclass(frozen=True, slots=True)
class Style:
    """One way of asking: the whole question from (`output` or `input`, code, what is known), the layout it is meant
    for (`text` or `chat`), and whether the model is to think aloud first."""

    ask: Callable[[str, str, str], str]
    layout: str
    thinks: bool


def _claim(predict: str, known: str) -> str:
    return f"assert f({known}) == ??" if predict == "output" else f"assert f(??) == {known}"


_WANTED = {
    "output": "Work out what f returns for the argument in the assertion, exactly as the code is written, and replace "
    "?? by it, as a Python literal.",
    "input": "Find arguments for which f returns the value in the assertion, and replace ?? by them. Any that fit "
    "will do; give one.",
}
_EXAMPLE = "def f(words):\n    return [word[::-1] for word in words if len(word) > 2]"
_SHOWN = {
    "output": ("['abc', 'no', 'wxyz']", "assert f(['abc', 'no', 'wxyz']) == ['cba', 'zyxw']"),
    "input": ("['cba', 'zyxw']", "assert f(['abc', 'wxyz']) == ['cba', 'zyxw']"),
}
_THOUGHT = {
    "output": "The word 'no' has two letters and is dropped. 'abc' reversed is 'cba', 'wxyz' reversed is 'zyxw'.",
    "input": "Each word comes out reversed, if it is long enough, so 'abc' and 'wxyz' give 'cba' and 'zyxw'.",
}


def _own(predict: str, code: str, known: str, *, thinks: bool) -> str:
    form = "Write the completed assertion between [ANSWER] and [/ANSWER]"
    form = f"First think step by step. Then {form[0].lower()}{form[1:]}." if thinks else f"{form} and nothing else."
    shown, answer = _SHOWN[predict]
    thought = f"{_THOUGHT[predict]}\n" if thinks else ""
    example = f"```python\n{_EXAMPLE}\n{_claim(predict, shown)}\n```\n{thought}[ANSWER]\n{answer}\n[/ANSWER]"
    question = f"```python\n{code}\n{_claim(predict, known)}\n```"
    return f"{_WANTED[predict]} {form}\n\nFor example:\n{example}\n\nNow this one:\n{question}\n"


def _lm_eval(predict: str, code: str, known: str) -> str:
    config, examples = _files(predict, "")
    shots = "".join(
        f"[PYTHON]\n{row['code']}\n{_claim(predict, row['input' if predict == 'output' else 'output'])}\n[/PYTHON] "
        f"\n[ANSWER]\nassert f({row['input']}) == {row['output']}\n[/ANSWER]\n\n"
        for row in examples
    )
    return f"{config['description']}{shots}[PYTHON]\n{code}\n{_claim(predict, known)}\n[/PYTHON]"


def _original(predict: str, code: str, known: str) -> str:
    config, examples = _files(predict, "")
    shown = [{name: _literal(row[name]) for name in ("input", "output")} | {"code": row["code"]} for row in examples]
    shots = "".join(
        f"[PYTHON]\n{row['code']}\n{_claim(predict, row['input' if predict == 'output' else 'output'])}\n[/PYTHON]\n"
        f"[ANSWER]\nassert f({row['input']}) == {row['output']}\n[/ANSWER]\n\n"
        for row in shown
    )
    return f"{config['description']}\n{shots}[PYTHON]\n{code}\n{_claim(predict, known)}\n[/PYTHON]\n[ANSWER]\n"


def _thought_aloud(predict: str, code: str, known: str) -> str:
    config, _ = _files(predict, "_cot")
    return f"{config['description']}[PYTHON]\n{code}\n{_claim(predict, known)}\n[/PYTHON]\n[THOUGHT]\n"


#: `direct`, `cot`: our own words, for chat models. `lm_eval`: lm-eval's cruxeval_input and cruxeval_output with two
#: examples; `original`: the same with the examples' quotes in place and the answer's tag opened, as its authors ask.
#: `lm_eval_cot`: lm-eval's …_cot tasks, which are the authors' prompts.
STYLES: Mapping[str, Style] = {
    "direct": Style(lambda predict, code, known: _own(predict, code, known, thinks=False), "chat", False),
    "cot": Style(lambda predict, code, known: _own(predict, code, known, thinks=True), "chat", True),
    "lm_eval": Style(_lm_eval, "text", False),
    "lm_eval_cot": Style(_thought_aloud, "text", True),
    "original": Style(_original, "text", False),
}


def _literal(text: str) -> str:
    """`text` if it is Python arguments; in quotes otherwise (lm-eval's copies of two examples lost theirs)."""
    try:
        ast.literal_eval(f"[{text}]")
    except (SyntaxError, ValueError):
        return json.dumps(text)
    return text


@cache
def _files(predict: str, kind: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The task file and the worked examples of the installed lm-eval, read without importing it.

    ValueError where lm-eval is absent or has no such files.
    """
    import yaml

    package = find_spec("lm_eval")
    if package is None or package.origin is None:
        raise ValueError(
            "this style's wording is read from lm-eval, which is not installed: pip install 'dinfer[lm-eval]', or set "
            "task.style=direct or task.style=cot"
        )
    folder = Path(package.origin).parent / "tasks" / "cruxeval"
    try:
        text = (folder / f"cruxeval_{predict}{kind}.yaml").read_text(encoding="utf-8")
        # The file names Python functions, which a plain loader need not know.
        lines = [line for line in text.split("\n") if "!function" not in line]
        config = yaml.safe_load("\n".join(lines))
        for node in ast.parse((folder / "utils.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == f"list_fewshot_samples_{predict}":
                returned = next(item for item in node.body if isinstance(item, ast.Return) and item.value is not None)
                return config, ast.literal_eval(returned.value)  # type: ignore[arg-type]
        raise KeyError(f"list_fewshot_samples_{predict}")
    except (OSError, KeyError, ValueError, StopIteration, SyntaxError, yaml.YAMLError) as error:
        raise ValueError(f"the installed lm-eval has no usable CRUXEval task ({error}); set task.style=direct") from error
