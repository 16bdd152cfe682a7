"""Finding the program in answers as models write them."""

from __future__ import annotations

import pytest

from evals.code import blocks, called_names, clean, compiles, defines, extract
from evals.completion import continue_function

PROMPT = '''from typing import List


def helper(x: int) -> int:
    return x + 1


def double_all(items: List[int]) -> List[int]:
    """Double each item.

    >>> double_all([1])
    [2]
    """
'''
BODY = "    out = []\n    for item in items:\n        out.append(2 * item)\n    return out\n"
WHOLE = "def double_all(items: List[int]) -> List[int]:\n" + BODY


def runs(program: str | None) -> bool:
    assert program is not None
    space: dict[str, object] = {}
    exec(program, space)
    return space["double_all"]([1, 2]) == [2, 4]  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        BODY.rstrip(),
        "\n" + BODY,
        BODY.lstrip(),
        BODY.replace("    out = []", " out = []", 1),
        BODY.replace("    out = []", "   out = []", 1),
        BODY.replace("    ", "\t"),
        BODY.replace("    ", "  "),
        BODY.replace("\n", "\r\n"),
        "out = []\nfor item in items:\n    out.append(2 * item)\nreturn out\n",
        BODY + "\n\ndef other():\n    return 1\n",
        BODY + "\n\nThis function doubles all the items.",
        BODY + "```\n\nThis doubles the items.",
        BODY + "\nprint(double_all([1",
        BODY + "\n# Test\nassert double_all(",
        BODY + "<|endoftext|>",
        BODY + "<|eot_id|><|eot_id|>",
        BODY + "<|role_end|><|endoftext|>garbage(",
        BODY + "</s>",
        BODY + "<|endoftext|><|mdm_mask|><|mdm_mask|>",
        f"```python\n{BODY}```",
        f"```\n{BODY}```\nDone.",
    ],
)
def test_continuation_of_a_function(text: str) -> None:
    assert runs(continue_function(PROMPT, "double_all", text))


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        PROMPT + BODY,
        f"```python\n{WHOLE}```",
        f"```\n{WHOLE}```",
        f"```py\n{WHOLE}\n```\n",
        f"```Python\n{WHOLE}\n```\n",
        f"~~~python\n{WHOLE}~~~",
        f"````python\n{WHOLE}````",
        f"Sure! Here is the function:\n\n```python\n{WHOLE}```\n\nIt goes through the items.",
        f"Sure! Here it is: ```python\n{WHOLE}```",
        f"Here's a Python function:\n```python\nfrom typing import List\n\n{WHOLE}",
        f"```python\n{WHOLE}",
        f"```python\n{WHOLE}<|eot_id|>",
        f"```python\n{WHOLE.rstrip()}```",
        f"```python\n{WHOLE}```<|im_end|>\n<|im_start|>user\nmore```python\nx(",
        f"<|im_start|>assistant\n```python\n{WHOLE}```",
        f"```python\n{WHOLE}```".replace("\n", "\r\n"),
        f"First install it:\n```bash\npip install x\n```\nThen:\n```python\n{WHOLE}```\nOutput:\n```\n[2, 4]\n```",
        f"```python\n{WHOLE}```\nUse it so:\n```python\nprint(double_all([1, 2]))\n```",
        f"```python\ndef double_all(items):\n    return items\n```\nWait, that is wrong. Better:\n```python\n{WHOLE}```",
        f"```python\n{WHOLE}```\nA variant that is cut off:\n```python\ndef double_all(items):\n    return [2 *",
        f"1. The code:\n\n    ```python\n{''.join('    ' + line for line in WHOLE.splitlines(keepends=True))}    ```\n",
        f"Here is the code.\n\n{WHOLE}\nThis function doubles.",
        f"{WHOLE}\n\nif __name__ == '__main__':\n    print(double_all([1]))",
        f"import math\n{WHOLE}",
        "```python\nfrom typing import List\n```\n```python\n" + WHOLE + "```",
    ],
)
def test_whole_function(text: str) -> None:
    assert runs(continue_function(PROMPT, "double_all", text))


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        BODY + "```",
        BODY + "```\n\nThe function doubles each item.\n```python\nprint(double_all([1]))\n```",
        BODY.lstrip() + "\n```\n",
        WHOLE + "```\nExplanation.",
        "```python\n" + WHOLE + "```",
        PROMPT + BODY + "\n```\n",
    ],
)
def test_answer_that_goes_on_inside_a_fence(text: str) -> None:
    assert runs(continue_function(PROMPT, "double_all", text, inside=True))


def test_imports_and_helpers_of_the_prompt_come_along() -> None:
    program = continue_function(
        PROMPT, "double_all", "```python\ndef double_all(x: List[int]):\n    return [helper(i) for i in x]\n```"
    )
    assert program is not None
    assert program.startswith("from typing import List")
    assert "def helper" in program
    assert compiles(program)


def test_imports_cut_off_by_a_stop_string_leave_a_program_that_fails_by_name() -> None:
    program = continue_function(PROMPT, "double_all", "```python\nfrom typing import List\n")
    assert program is not None
    assert not runs_safely(program)


def runs_safely(program: str) -> bool:
    try:
        return runs(program)
    except Exception:
        return False


def test_helpers_in_earlier_blocks_are_taken_along() -> None:
    text = (
        "A helper:\n```python\ndef twice(x):\n    return 2 * x\n```\nThe rest:\n```python\ndef f(x):\n    return twice(x)\n```"
    )
    program = extract(text, entry="f")
    assert program is not None
    space: dict[str, object] = {}
    exec(program, space)
    assert space["f"](3) == 6  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "  \n", "I cannot do that.", "Sorry", "None", "```\n```", "```json\n{}\n```"])
def test_no_program(text: str) -> None:
    assert extract(text) is None


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("n = int(input())\nprint(n)", "n = int(input())\nprint(n)"),
        ("Here:\nn = int(input())\nprint(n)\nThat reads n.", "n = int(input())\nprint(n)"),
        ("```python\na = 1\n```\nor\n```python\na = 2\n```", "a = 2"),
        ("```python\na = 1\n```\nor\n```python\na = (", "a = 1"),
        ("```\nprint(1)\n```", "print(1)"),
        ("print(1)<|endoftext|>", "print(1)"),
    ],
)
def test_script(text: str, program: str) -> None:
    found = extract(text)
    assert found is not None
    assert found.strip() == program


def test_blocks_keep_language_and_closing() -> None:
    found = blocks("a\n```python\nx\n```\n~~~ text\ny\n")
    assert [(block.language, block.text.strip(), block.closed) for block in found] == [
        ("python", "x", True),
        ("text", "y", False),
    ]
    assert [block.text for block in blocks("x\n```\ny", inside=True)] == ["x"]


def test_clean_keeps_what_is_no_special_token() -> None:
    assert clean("a < b | c > d") == "a < b | c > d"
    assert clean("x = '<|'\n") == "x = '<|'\n"
    assert clean("<|im_start|>assistant\nx<|im_end|>") == "x"
    assert clean("a\r\nb\rc") == "a\nb\nc"


def test_names() -> None:
    assert defines("def f(): pass", "f")
    assert defines("import f", "f")
    assert defines("f = 1", "f")
    assert not defines("def g(): f = 1", "f")
    assert defines("def f(:\n", "f")
    assert called_names("assert g(f(1)) == x") == ["g", "f", "x"]


def test_odd_texts_do_not_break_it() -> None:
    for text in ("\0", "(" * 1000, "```python\n" * 50, "\ud800", "`" * 1000, "def f(" * 200):
        extract(text, entry="f")
        continue_function(PROMPT, "double_all", text)
        continue_function(PROMPT, "double_all", text, inside=True)
