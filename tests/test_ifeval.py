"""IFEval: every checker, the published responses, and equality with lm-eval's checkers."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from evals.ifeval import IfEval
from evals.instructions import CHECKERS, arguments, check
from evals.instructions import text as text_tools
from evals.instructions.text import capital_words, count_sentences, detect_language
from evals.task import Answer, Sample, Score, Task

SYMBOL_KEYS = (1122, 1129)
HAS_LM_EVAL = all(importlib.util.find_spec(name) for name in ("lm_eval", "nltk", "immutabledict"))

CASES: list[tuple[str, dict[str, Any], str, bool]] = [
    ("keywords:existence", {"keywords": ["sea", "Salt"]}, "SEAsalt", True),
    ("keywords:existence", {"keywords": ["sea", "salt"]}, "the sea", False),
    ("keywords:existence", {"keywords": ["c++("]}, "I like c++(", True),
    ("keywords:frequency", {"keyword": "river", "frequency": 2, "relation": "at least"}, "River rivers", True),
    ("keywords:frequency", {"keyword": "river", "frequency": 2, "relation": "less than"}, "River rivers", False),
    ("keywords:forbidden_words", {"forbidden_words": ["snow"]}, "snowy days", True),
    ("keywords:forbidden_words", {"forbidden_words": ["snow"]}, "Snow, again", False),
    ("keywords:letter_frequency", {"letter": "Z", "let_frequency": 2, "let_relation": "at least"}, "zZ", True),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 4, "let_relation": "at least"}, "#a #b #c #d", True),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 6, "let_relation": "at least"}, "!!!!!", False),
    ("keywords:letter_frequency", {"letter": "a", "let_frequency": 1, "let_relation": "less than"}, "xyz", True),
    ("language:response_language", {"language": "de"}, "Das ist ein ganz gewöhnlicher deutscher Satz.", True),
    ("language:response_language", {"language": "fr"}, "This is a perfectly plain English sentence.", False),
    ("language:response_language", {"language": "fr"}, "123 456", True),
    ("change_case:english_capital", {}, "THIS IS A PLAIN ENGLISH SENTENCE FOR YOU.", True),
    ("change_case:english_capital", {}, "This IS A PLAIN ENGLISH SENTENCE.", False),
    ("change_case:english_capital", {}, "DAS IST EIN GEWÖHNLICHER DEUTSCHER SATZ.", False),
    ("change_case:english_lowercase", {}, "this is a plain english sentence for you.", True),
    ("change_case:english_lowercase", {}, "this is a Plain english sentence.", False),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "DON'T go", True),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "GO on", True),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"}, "DON'T go", False),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, "Dr. Li is in. Go.", True),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "Dr. Li is in. Go.", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\na\n***\nb\n***", True),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\n\n***\nb", False),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n\nb", False),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "well-known it's", True),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "two words", True),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "now three words", False),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Elm"},
        'a\n\n"elm, and',
        True,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "elm"},
        "a\n\nelms",
        False,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "elm"},
        "a\n\n\n\nelm",
        False,
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 1, "nth_paragraph": 3, "first_word": "elm"},
        "elm",
        False,
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] [date]", True),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name\n] [date]", False),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "bye\np. s. thanks", True),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.S. thanks", False),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S thanks", True),
    ("detectable_content:postscript", {"postscript_marker": "Note"}, "bye\nNOTE: x", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b\n**c**", True),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b\n - c", False),
    ("detectable_format:constrained_response", {}, "Well: My answer is maybe.", True),
    ("detectable_format:constrained_response", {}, "maybe", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and *b*", True),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and * *", False),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "**a**", True),
    ("detectable_format:multiple_sections", {"section_spliter": "Day", "num_sections": 2}, "Day 1\na\nDay 2\nb", True),
    ("detectable_format:multiple_sections", {"section_spliter": "Day", "num_sections": 2}, "day 1 day 2", False),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', True),
    ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
    ("detectable_format:json_format", {}, "[" * 100_000, False),
    ("detectable_format:title", {}, "<<my title>>\ntext", True),
    ("detectable_format:title", {}, "<< >>", False),
    ("combination:two_responses", {}, "one\n******\ntwo", True),
    ("combination:two_responses", {}, "one******one", False),
    ("combination:two_responses", {}, "one******\n******two", False),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say Hi. "}, "say hi. Hi!", True),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Sure. Say hi.", False),
    ("startend:end_checker", {"end_phrase": "The End"}, '"it is the end"', True),
    ("startend:end_checker", {"end_phrase": "The End"}, "the end.", False),
    ("startend:quotation", {}, ' "all of it" ', True),
    ("startend:quotation", {}, '"', False),
    ("startend:quotation", {}, '"a" b', False),
    ("punctuation:no_comma", {}, "no commas here", True),
    ("punctuation:no_comma", {}, "one, here", False),
]


@pytest.mark.parametrize(("instruction", "given", "response", "followed"), CASES)
def test_checkers(instruction: str, given: dict[str, Any], response: str, followed: bool) -> None:
    finding = check(instruction, given, response)
    assert finding.followed is followed
    assert finding.found
    assert not check(instruction, given, " \n").followed


def test_every_instruction_of_the_benchmark_has_cases_both_ways() -> None:
    assert len(CHECKERS) == 25
    assert {name for name, _, _, followed in CASES if followed} == set(CHECKERS)
    assert {name for name, _, _, followed in CASES if not followed} == set(CHECKERS)


@pytest.mark.parametrize(
    ("instruction", "given", "message"),
    [
        ("keywords:nothing", {}, "unknown instruction 'keywords:nothing', known are keywords:existence"),
        ("punctuation:no_comma", {"num_words": 3}, "punctuation:no_comma: .*unexpected keyword argument 'num_words'"),
        ("length_constraints:number_words", {"num_words": 3}, "number_words: missing a required .*'relation'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(instruction: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arguments(instruction, given)
    assert arguments("punctuation:no_comma", {"num_words": None}) == {}


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="relation must be one of less than, at least, got 'about'"):
        check("length_constraints:number_words", {"num_words": 3, "relation": "about"}, "a")
    with pytest.raises(ValueError, match="letter must be one character, got 'ab'"):
        check("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}, "a")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("THE U.S. and NATO/UN", ["THE", "U.S.", "NATO/UN"]),
        ("DON'T, I'M. It's JOHN'S A-B", ["DO", "N'T", "I", "'M", "JOHN", "'S", "A-B"]),
        ("I'm IT\u2019S", ["I", "IT", "S"]),
        ("CANNOT (OK) **YES**: 3D", ["CAN", "NOT", "OK", "YES", "3D"]),
        ("A,B C,1 D--E F...G", ["A", "B", "C,1", "D", "E", "F", "G"]),
        ("none 123", []),
    ],
)
def test_capital_words(text: str, words: list[str]) -> None:
    assert capital_words(text) == words


def test_language_detection_does_not_change_from_call_to_call() -> None:
    ambiguous = "hotel radio taxi"
    assert len({detect_language(ambiguous) for _ in range(20)}) == 1
    assert detect_language("12") is None
    assert count_sentences("Hi Dr. Smith. He's here!") == 2


def test_absent_packages_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    text_tools._detector.cache_clear()
    with pytest.raises(ValueError, match=r"pip install 'dinfer\[ifeval\]'") as error:
        IfEval(source="sample").samples()
    assert "\n" not in str(error.value)
    text_tools._detector.cache_clear()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric": "inst_strict"}, "metric must be one of prompt_strict, prompt_loose, got 'inst_strict'"),
        ({"layout": "turns"}, "layout must be one of chat, text, got 'turns'"),
        ({"source": "web"}, "source must be one of hub, sample, got 'web'"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
    ],
)
def test_fields_are_checked_before_anything_is_read(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IfEval(**fields)


def test_samples_of_the_package() -> None:
    task = IfEval(source="sample")
    assert isinstance(task, Task)
    samples = task.samples()
    assert len({s.id for s in samples}) == len(samples) == task.provenance()["rows"] >= 6
    assert samples[0].messages[0].content.startswith("Describe a rainy morning")
    assert IfEval(source="sample", layout="text").samples()[0].text == samples[0].messages[0].content
    assert all(json.loads(json.dumps(s.reference)) == dict(s.reference) for s in samples)
    assert task.reference_answer(samples[0]) is None


def sample(*instructions: tuple[str, dict[str, Any]]) -> Sample:
    names, kwargs = [name for name, _ in instructions], [given for _, given in instructions]
    return Sample("q", reference={"key": 1, "instructions": names, "kwargs": kwargs})


QUOTED = sample(("startend:quotation", {}), ("punctuation:no_comma", {}))


@pytest.mark.parametrize(
    ("text", "finish", "mask", "outcome", "strict", "loose"),
    [
        ('"fine"', "eos", False, "right", 2, 2),
        ('"fine"<|eot_id|>', "length", False, "right", 2, 2),
        ('Sure:\n"fine"', "eos", False, "wrong", 1, 2),
        ('**"fine"**', "eos", False, "wrong", 1, 2),
        ('Sure, here:\n"fine"\nBye', "length", False, "truncated", 0, 2),
        ("", "eos", False, "empty", 0, 0),
        ('"fine"', "eos", True, "mask", 0, 0),
    ],
)
def test_outcomes_and_loose_readings(text: str, finish: str, mask: bool, outcome: str, strict: int, loose: int) -> None:
    verdict = IfEval().score(QUOTED, Answer(text, finish, mask))
    assert verdict.outcome == outcome
    assert verdict.value == float(strict == 2)
    assert verdict.metrics == {
        "prompt_strict": float(strict == 2),
        "prompt_loose": float(loose == 2),
        "inst_strict_followed": strict,
        "inst_loose_followed": loose,
        "inst_total": 2,
    }
    assert IfEval(metric="prompt_loose").score(QUOTED, Answer(text, finish, mask)).value == float(loose == 2)


def test_the_explanation_says_what_was_not_followed() -> None:
    verdict = IfEval().score(
        sample(("length_constraints:number_words", {"num_words": 5, "relation": "at least"})), Answer("a b")
    )
    assert verdict.explanation == "1 of 1 not followed: length_constraints:number_words (2 words, wanted at least 5)"


def test_instruction_accuracy_is_over_instructions_not_prompts() -> None:
    task = IfEval()
    one = task.score(sample(("punctuation:no_comma", {})), Answer("none"))
    three = task.score(
        sample(("startend:quotation", {}), ("detectable_format:title", {}), ("punctuation:no_comma", {})), Answer("none")
    )
    assert task.summarise([one, three]) == {
        "prompt_strict": 0.5,
        "prompt_loose": 0.5,
        "inst_strict": 0.5,
        "inst_loose": 0.5,
    }
    assert task.summarise([]) == {"prompt_strict": 0.0, "prompt_loose": 0.0, "inst_strict": 0.0, "inst_loose": 0.0}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": []}, "ifeval key 7: .*must be lists of equal length"),
        ({"instruction_id_list": ["a:b"], "kwargs": [{}]}, "ifeval key 7: unknown instruction 'a:b'"),
        ({"instruction_id_list": ["detectable_format:title"], "kwargs": [{"x": 1}]}, "ifeval key 7: .*unexpected"),
    ],
)
def test_rows_that_cannot_be_scored_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"key": 7, "prompt": "p", **row}))
    with pytest.raises(ValueError, match=message):
        IfEval(path=str(path)).samples()


def test_nulls_that_loaders_fill_in_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    kwargs = [{"num_words": None, "relation": None, "language": None}, {"num_bullets": 2, "keyword": None}]
    names = ["punctuation:no_comma", "detectable_format:number_bullet_lists"]
    path.write_text(json.dumps({"key": 7, "prompt": "p", "instruction_id_list": names, "kwargs": kwargs}))
    assert IfEval(path=str(path)).samples()[0].reference["kwargs"] == [{}, {"num_bullets": 2}]


def published(shared: Path) -> tuple[IfEval, list[Sample], dict[str, str]]:
    folder = shared / "data" / "ifeval"
    task = IfEval(path=str(folder / "train.jsonl"))
    with gzip.open(folder / "reference_responses_gpt4.jsonl.gz", "rt", encoding="utf-8") as lines:
        responses = {row["prompt"]: row["response"] for row in map(json.loads, lines)}
    return task, task.samples(), responses


def test_the_published_responses_score_as_published(shared: Path) -> None:
    task, samples, responses = published(shared)
    provenance = task.provenance()
    assert provenance["rows"] == 541
    assert [note[:8] for note in provenance["notes"]] == ["key 2785"]
    scores: dict[int, Score] = {s.reference["key"]: task.score(s, Answer(responses[s.messages[0].content])) for s in samples}
    kept = [score.metrics for key, score in scores.items() if key not in SYMBOL_KEYS]
    names = ("prompt_strict", "prompt_loose", "inst_strict_followed", "inst_loose_followed", "inst_total")
    assert len(kept) == 539
    assert [sum(m[name] for m in kept) for name in names] == [415, 429, 694, 710, 830]
    assert [scores[key].value for key in SYMBOL_KEYS] == [1.0, 1.0]


@pytest.mark.skipif(not HAS_LM_EVAL, reason="needs lm-eval with its ifeval extra (nltk, immutabledict)")
@pytest.mark.parametrize("change", ["as it is", "UPPER", "lower", "chatty", "first half"])
def test_verdicts_equal_those_of_lm_eval(change: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk
    import punkt

    splitter = punkt.tokenizer_for("english")
    monkeypatch.setattr(nltk, "download", lambda *_, **__: True)
    from lm_eval.tasks.ifeval import instructions_util, utils

    # NLTK's data files are downloads; the same Punkt model comes from a package here.
    monkeypatch.setattr(instructions_util, "_get_sentence_tokenizer", lambda: splitter)
    monkeypatch.setattr(nltk.tokenize, "sent_tokenize", lambda text, *_: splitter.tokenize(text))
    changes = {
        "as it is": lambda text: text,
        "UPPER": str.upper,
        "lower": str.lower,
        "chatty": lambda text: f"Sure, here it is:\n{text}\nHope that helps!",
        "first half": lambda text: text[: len(text) // 2],
    }
    task, samples, responses = published(shared)
    differ = []
    for s in samples[:: 1 if change == "as it is" else 3]:
        prompt, key = s.messages[0].content, s.reference["key"]
        if key in SYMBOL_KEYS:
            continue
        text = changes[change](responses[prompt])
        metrics = task.score(s, Answer(text)).metrics
        row = {"key": key, "prompt": prompt}
        row |= {"instruction_id_list": s.reference["instructions"], "kwargs": s.reference["kwargs"]}
        theirs = utils.process_results(row, [text])
        ours = (metrics["prompt_strict"], metrics["inst_strict_followed"], metrics["prompt_loose"])
        ours = (*ours, metrics["inst_loose_followed"])
        wanted = (theirs["prompt_level_strict_acc"], sum(theirs["inst_level_strict_acc"]))
        wanted = (*wanted, theirs["prompt_level_loose_acc"], sum(theirs["inst_level_loose_acc"]))
        if ours != wanted:
            differ.append((key, s.reference["instructions"], ours, wanted))
    assert differ == []
