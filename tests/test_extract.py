"""Numbers and final answers as models really write them."""

from __future__ import annotations

import time

import pytest

from evals.extract import (
    boxed,
    first_number,
    last_number,
    marked_number,
    same_number,
    stated_answer,
    strip_special_tokens,
)

LAST = {
    "$1,234.50": "1234.50",
    "18.": "18",
    "18...": "18",
    "#### 18": "18",
    "The answer is 18.": "18",
    r"\boxed{18}": "18",
    r"so \boxed{\frac{1}{2}}": "1/2",
    r"\dfrac{3}{4}": "3/4",
    r"\frac12": "1/2",
    "-5": "-5",
    "-$5": "-5",
    "$-5": "-5",
    "x = -5": "-5",
    "\u22127": "-7",
    "16-3": "3",
    "5 - 3": "3",
    "pages 5-10": "10",
    "20%": "20",
    r"20\%": "20",
    r"\$18": "18",
    r"\$1,234.50": "1234.50",
    "$18$": "18",
    r"\(18\)": "18",
    "3/4": "3/4",
    "-3/4": "-3/4",
    "3 1/2": "3 1/2",
    "3½": "3 1/2",
    "½": "1/2",
    "18 dollars": "18",
    "18kg": "18",
    "the 18th": "18",
    "**18**": "18",
    "1.5e3": "1.5e3",
    r"1.5 \times 10^{3}": "1.5e3",
    "2 * 10^3 = 2000": "2000",
    "1e999999": "999999",
    "18<|eot_id|>": "18",
    "18 <|reserved_token_126081|><|endoftext|>": "18",
    "18</s>": "18",
    "18 <extra_id_0>": "18",
    "...18": "18",
    "$.50": ".50",
    "1,00,000": "100000",
    "1,2,3": "3",
    "1{,}234": "1234",
    r"1\,234": "1234",
    "4\u202f000": "4000",
    "１８": "18",
    "9/11/2001": "2001",
    "5/0": "0",
    "12:30": "30",
    r"\text{total: 7}": "7",
}


@pytest.mark.parametrize(("text", "number"), LAST.items())
def test_last_number(text: str, number: str) -> None:
    found = last_number(text)
    assert found is not None
    assert found.text == number


@pytest.mark.parametrize("text", ["", "eighteen", "...", "$", "#### ", "<|reserved_token_126081|>", "9" * 5000])
def test_no_number(text: str) -> None:
    assert last_number(text) is None
    assert first_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 18\nHe has 5 left.", "18"),
        ("#### $18", "18"),
        ("The answer is 5 + 13 = 18.", "18"),
        ("The answer is: $18 for 2 days", "18"),
        ("the final answer is **18** eggs over 3 days", "18"),
        ("**Answer:** 18 and no 2", "18"),
        ("**Final Answer:**\n18\n\nin 3 days", "18"),
        (r"The answer is $\boxed{12}$ in 5 days", "12"),
        (r"\boxed{x = 3} and 4", "3"),
        ("#### 4\nno, wait\n#### 18\n7 more", "18"),
        ("#### Step 3: add\n20 eggs", None),
        ("#### 1. Count the eggs\nThere are 20", None),
        ("Answer: Janet has 16 eggs", None),
        ("She has 18 dollars", None),
        ("", None),
    ],
)
def test_stated_answer(text: str, number: str | None) -> None:
    found = stated_answer(text)
    assert (None if found is None else found.text) == number


@pytest.mark.parametrize(
    ("text", "mark", "number"),
    [
        ("#### 18 and #### 20", "hashes", "18"),
        ("#### -1,234.", "hashes", "-1234"),
        ("#### 18 dollars", "hashes", "18"),
        ("#### $18", "hashes", None),
        ("####18", "hashes", None),
        ("The answer is 18.", "hashes", None),
        ("#### ...", "hashes", None),
        ("The answer is 18.", "answer_is", "18"),
        ("The answer is 18", "answer_is", "18"),
        ("the answer is 18.", "answer_is", None),
        ("The answer is $18.", "answer_is", None),
        (r"\boxed{\$1,800} or 5", "boxed", "1800"),
        ("18", "boxed", None),
    ],
)
def test_marked_number(text: str, mark: str, number: str | None) -> None:
    found = marked_number(text, mark)
    assert (None if found is None else found.text) == number


def test_an_unknown_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="mark must be one of hashes, answer_is, boxed, got 'x'"):
        marked_number("1", "x")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{18}", "18"),
        (r"\boxed{1} \boxed{ \frac{3}{4} }", r" \frac{3}{4} "),
        (r"\boxed 18 eggs", "18"),
        (r"\fbox{18}", None),
        (r"\boxed{18", None),
        ("18", None),
    ],
)
def test_boxed(text: str, content: str | None) -> None:
    assert boxed(text) == content


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        ("18.0", "18", True),
        ("18.00", "18", True),
        ("1,234.5", "1234.50", True),
        ("0.3333333333", "1/3", True),
        ("1.8e1", "18", True),
        ("18.001", "18", False),
        ("-18", "18", False),
        ("1000000.5", "1000000", True),
        ("1000002", "1000000", False),
    ],
)
def test_numbers_are_compared_as_numbers(got: str, expected: str, same: bool) -> None:
    a, b = first_number(got), first_number(expected)
    assert a is not None
    assert b is not None
    assert same_number(a, b) is same


def test_only_special_tokens_are_stripped() -> None:
    text = "if a<b and b>c: print('<html>', [1], <|x y|>)"
    assert strip_special_tokens(text) == text
    assert strip_special_tokens("a<|eot_id|></s>[MASK]").strip() == "a"


@pytest.mark.parametrize(
    "text",
    ["1,", "1", "\\boxed{", "answer is ", "-", "1 1/", "{", "#### \n", ". ", "\\frac{1", "1.1/", "<|a", "1,111"],
)
def test_hostile_repetition_takes_linear_time(text: str) -> None:
    started = time.perf_counter()
    for function in (last_number, stated_answer, boxed):
        function(text * (60_000 // len(text)))
    assert time.perf_counter() - started < 5
