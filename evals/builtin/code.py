"""Functions from a signature and a docstring, in the format of HumanEval: the answer is the body.

Every instance has several equally good bodies (loop or expression, free names of variables), so an answer whose parts
were chosen independently of each other is likely to be broken Python.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from evals.builtin.base import BuiltinTask
from evals.builtin.instance import Instance
from evals.sandbox import Limits, run_program
from evals.task import Answer, Sample, Score

KINDS = ("reduce", "list", "string")
FUNCTIONS = ("f", "solve", "run", "calc", "pick", "work")
ARGUMENTS = ("xs", "nums", "values", "data")
TEXTS = ("s", "text", "word")
LOOP_NAMES = ("x", "n", "v", "i")
RESULT_NAMES = ("out", "res", "acc", "t")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LIMITS = Limits(wall_s=5.0, cpu_s=3.0, memory_mb=256)
REDUCERS = {"sum": "the sum", "len": "the count", "max": "the largest", "min": "the smallest"}


def draw(rng: random.Random, kind: str) -> Instance:
    return _string(rng) if kind == "string" else _numbers(rng, kind)


def _filter(rng: random.Random) -> tuple[str, str]:
    """Words for a condition and its source, over `@`, the variable."""
    k = rng.randint(1, 9)
    options = (
        ("even numbers", "@ % 2 == 0"),
        ("odd numbers", "@ % 2 == 1"),
        (f"numbers above {k}", f"@ > {k}"),
        (f"numbers below {k}", f"@ < {k}"),
        (f"multiples of {k % 7 + 3}", f"@ % {k % 7 + 3} == 0"),
        (f"numbers other than {k}", f"@ != {k}"),
    )
    return rng.choice(options)


def _map(rng: random.Random) -> tuple[str, str]:
    k = rng.randint(2, 9)
    options = (
        (f"plus {k}", f"@ + {k}"),
        (f"minus {k}", f"@ - {k}"),
        (f"times {k}", f"@ * {k}"),
        ("squared", "@ * @"),
        (f"modulo {k}", f"@ % {k}"),
    )
    return rng.choice(options)


def _numbers(rng: random.Random, kind: str) -> Instance:
    """A filter, a map and, for `reduce`, a reducer over a list of integers."""
    words, condition = _filter(rng) if rng.random() < 0.85 else ("numbers", "")
    phrase, value = _map(rng)
    reducer = rng.choice(tuple(REDUCERS)) if kind == "reduce" else ""
    if reducer == "len":
        phrase, value = "", "@"
        if not condition:
            words, condition = _filter(rng)
    argument = rng.choice(ARGUMENTS)
    what = f"{REDUCERS[reducer]} of" if reducer else "a list of"
    docstring = f"Return {what} the {words} in {argument}{', each ' + phrase if phrase else ''}."
    solution = rng.choice((_expression, _loop))(rng, argument, condition, value, reducer)
    reference = _expression(random.Random(0), argument, condition, value, reducer)
    tests = _number_tests(rng, argument, reference)
    key = f"code|{reducer}|{condition}|{value}"
    return _assemble(rng, kind, key, argument, docstring, solution, tests)


def _expression(rng: random.Random, argument: str, condition: str, value: str, reducer: str) -> str:
    name = rng.choice(LOOP_NAMES)
    inner = f"{value} for @ in {argument}{' if ' + condition if condition else ''}".replace("@", name)
    if reducer in ("", "len"):
        return f"    return {'len(' if reducer else ''}[{inner}]{')' if reducer else ''}"
    return f"    return {reducer}({inner})"


def _loop(rng: random.Random, argument: str, condition: str, value: str, reducer: str) -> str:
    name, result = rng.choice(LOOP_NAMES), rng.choice(RESULT_NAMES)
    adds = reducer in ("sum", "len")
    lines = [f"    {result} = {'0' if adds else '[]'}", f"    for {name} in {argument}:"]
    indent = "        "
    if condition:
        lines.append(f"{indent}if {condition}:".replace("@", name))
        indent += "    "
    if adds:
        lines.append(f"{indent}{result} += {'1' if reducer == 'len' else value.replace('@', name)}")
    else:
        lines.append(f"{indent}{result}.append({value.replace('@', name)})")
    lines.append(f"    return {reducer}({result})" if reducer in ("max", "min") else f"    return {result}")
    return "\n".join(lines)


def _number_tests(rng: random.Random, argument: str, body: str) -> list[str]:
    """Four calls with their results; inputs hold all digits, so that no condition leaves nothing over."""
    space: dict[str, object] = {}
    exec(f"def reference({argument}):\n{body}", space)
    function = space["reference"]
    assert callable(function)
    tests = []
    for _ in range(4):
        numbers = [*range(13), *(rng.randint(0, 40) for _ in range(6))]
        rng.shuffle(numbers)
        tests.append(f"({numbers}) == {function(numbers)!r}")
    return tests


def _string_step(rng: random.Random) -> tuple[str, str]:
    """Words for one operation on a string and its source after `@`."""
    a, b = rng.sample(LETTERS, 2)
    k = rng.randint(2, 5)
    options = (
        (f"replace '{a}' by '{b}'", f"@.replace('{a}', '{b}')"),
        (f"remove every '{a}'", f"@.replace('{a}', '')"),
        ("reverse it", "@[::-1]"),
        ("make it upper case", "@.upper()"),
        (f"repeat it {k} times", f"@ * {k}"),
        (f"keep the first {k} letters", f"@[:{k}]"),
        (f"drop the first {k} letters", f"@[{k}:]"),
        (f"append '{a}'", f"@ + '{a}'"),
    )
    return rng.choice(options)


def _string(rng: random.Random) -> Instance:
    """Two operations on a string, one after the other."""
    argument = rng.choice(TEXTS)
    (first_words, first), (second_words, second) = _string_step(rng), _string_step(rng)
    docstring = f"Take {argument}, {first_words}, then {second_words}."
    name = rng.choice((argument, *RESULT_NAMES))
    if rng.random() < 0.5:
        once = first.replace("@", argument)
        inner = f"({once})" if " " in once and not once.endswith(")") else once
        solution = f"    return {second.replace('@', inner)}"
    else:
        solution = f"    {name} = {first.replace('@', argument)}\n    return {second.replace('@', name)}"
    tests = []
    for _ in range(4):
        text = "".join(rng.choice(LETTERS) for _ in range(9)) + "".join(c for c in first + second if c in LETTERS)
        once = eval(first.replace("@", repr(text)))
        tests.append(f"({text!r}) == {eval(second.replace('@', repr(once)))!r}")
    return _assemble(rng, "string", f"code|{first}|{second}", argument, docstring, solution, tests)


def _assemble(
    rng: random.Random, kind: str, key: str, argument: str, docstring: str, solution: str, tests: list[str]
) -> Instance:
    function = rng.choice(FUNCTIONS)
    prompt = f'def {function}({argument}):\n    """{docstring}"""\n'
    checks = [f"assert {function}{test}" for test in tests]
    return Instance(kind, key, prompt, solution, {"prompt": prompt, "tests": checks})


def program(prompt: str, answer: str) -> str:
    """The function to run: the answer is its body, or the whole of it when it starts with `def`."""
    body = answer.rstrip()
    if body.lstrip().startswith("def "):
        return f"{body.lstrip()}\n"
    if not body.startswith(" "):  # leading blanks were stripped on the way
        body = f"    {body}"
    return f"{prompt}{body}\n"


@dataclass(frozen=True)
class BuiltinCode(BuiltinTask):
    """Small functions; right when every test passes in the sandbox."""

    @property
    def name(self) -> str:
        return "builtin_code"

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def draw(self, rng: random.Random, kind: str) -> Instance:
        return draw(rng, kind)

    def judge(self, sample: Sample, answer: Answer) -> Score:
        run = run_program(
            program(sample.reference["prompt"], answer.text), tests="\n".join(sample.reference["tests"]), limits=LIMITS
        )
        outcome = "right" if run.passed else "timeout" if run.reason == "timeout" else "wrong"
        return Score(float(run.passed), outcome, answer.text, run.explanation)
