"""Measured features: the same things counted alike in six languages, whatever comes in."""

from __future__ import annotations

import time
from typing import Any

import lizard
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.measured_texts import SAMPLES

from clara_eval.code.reading import read_structure
from clara_eval.config.eval_config import MEASURED
from clara_eval.core.syntax import CPU_SECONDS, parse
from clara_eval.evaluation.features.measured import (
    fenced_code,
    known_language,
    measure,
    neutral_view,
)

ENDINGS = {"python": "py", "javascript": "js", "typescript": "ts", "solidity": "sol", "rust": "rs", "go": "go"}


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_the_same_function_measures_the_same_in_every_language(language: str) -> None:
    """One function written in six languages has one complexity, nesting, parameter count, and one test."""
    found = measure(SAMPLES[language], language)
    expected = {"parses": True, "max_complexity": 6, "max_nesting": 3, "max_parameters": 3, "tests": 1, "imports": 1}
    assert expected == {name: found[name] for name in expected}
    assert found["functions"] == (1 if language in ("javascript", "typescript") else 2)
    assert (found["documented_share"] or 0) > 0
    assert 0 < (found["comment_share"] or 0) < 0.2


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_complexity_agrees_with_an_independent_tool(language: str) -> None:
    """Another implementation of cyclomatic complexity gives the same number for the sample."""
    found = lizard.analyze_file.analyze_source_code(f"sample.{ENDINGS[language]}", SAMPLES[language])
    worst = max(function.cyclomatic_complexity for function in found.function_list)
    assert worst == measure(SAMPLES[language], language)["max_complexity"]


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_language_is_found_without_a_hint(language: str) -> None:
    """Without a hint the values are the same as with it."""
    assert measure(SAMPLES[language], None) == measure(SAMPLES[language], language)


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_the_second_view_has_no_comments_and_no_string_contents(language: str) -> None:
    """What can only be said and not done is gone; the code itself still parses and counts the same."""
    bare = neutral_view(SAMPLES[language], language)
    assert bare is not None
    assert "note" not in bare
    assert "secret" not in bare
    assert "Say what" not in bare
    assert measure(bare, language)["max_complexity"] == 6


def test_every_measured_name_of_the_catalogue_is_computed() -> None:
    """The poster's catalogue and the tools know the same names."""
    texts = [*SAMPLES.items(), (None, "Prose has words. It has sentences too."), (None, '{"a": [1]}')]
    found = [measure(text, language) for language, text in texts]
    assert {name for one in found for name, value in one.items() if value is not None} == set(MEASURED)


def test_values_fit_the_types_of_the_catalogue() -> None:
    """A measured value is of the type that the catalogue says and within its range."""
    for language, text in SAMPLES.items():
        for name, value in measure(text, language).items():
            _fits(name, value)
    for name, value in measure("Prose has words. It has sentences too.", None).items():
        _fits(name, value)


def _fits(name: str, value: Any) -> None:
    feature = MEASURED[name]
    if value is None:
        return
    assert isinstance(value, bool) == (feature.type == "boolean"), name
    if feature.type == "integer":
        assert isinstance(value, int), name
    if feature.type != "boolean":
        assert feature.low <= value <= feature.high, name


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=400), language=st.sampled_from([*SAMPLES, "tsx", "cobol", None]))
def test_any_bytes_are_measured(content: bytes, language: str | None) -> None:
    """No content stops the tools, and the same content gives the same values."""
    found = measure(content, language)
    assert set(found) == set(MEASURED)
    assert found["bytes"] == len(content)
    assert found == measure(content, language)


PIECES = st.sampled_from(
    ["if", "(", ")", "{", "}", "def f():\n", " ", "\n", "'", '"', "`", "/*", "#", "a", "&&", "=>", "\ud800"]
)


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(PIECES, max_size=60), language=st.sampled_from(sorted(SAMPLES)))
def test_any_tokens_are_measured(pieces: list[str], language: str) -> None:
    """Broken code gives values or None, and the second view is found or is None, without an error."""
    text = "".join(pieces)
    assert measure(text, language)["bytes"] is not None
    neutral_view(text, language)


HALF = 131_072
HOSTILE = {
    "open": ("python", "(" * 2 * HALF),
    "nested": ("python", "(" * HALF + "1" + ")" * HALF),
    "ternary": ("python", "a?" * HALF),
    "quotes": ("javascript", "'" * 2 * HALF),
    "branches": ("javascript", "if(a)" * 50_000 + ";"),
    "operators": ("javascript", "x=" + "a&&" * 80_000 + "a"),
    "braces": ("solidity", "`${" * 80_000),
    "functions": ("rust", "fn a(){}\n" * 28_000),
    "cases": ("go", "a?" * HALF),
    "fences": ("python", "```\n" * 60_000),
    "labels": ("javascript", "{a:" * 87_381),
    "labels behind comments": ("typescript", "{a:/*}*/" * 32_768),
    "two labels": ("javascript", "{a:{b:" * 43_690),
    "signs": ("go", "package a\nvar a =" + "-~" * HALF),
    "pointers": ("go", "package a\nfunc f(){" + "*[]-" * 60_000),
    "open generics": ("typescript", "x=" + "a<;a=>" * 43_690),
    "broken choices": ("javascript", ";-?" * 87_381),
    "few broken choices": ("javascript", ";-?" * 16_000),
    "broken fields": ("typescript", "interface A{" + "~~~\n;x=x=;" * 26_000 + "}"),
    "broken fields of Go": ("go", "package a\ntype A struct{" + "a:\nimport(" * 23_000),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_nests_come_to_an_end(name: str) -> None:
    """A quarter of a megabyte of hostile text neither crashes the tools nor keeps them busy."""
    language, text = HOSTILE[name]
    began = time.process_time()
    assert measure(text, language)["bytes"] == len(text)
    assert time.process_time() - began < 10


def test_the_text_that_a_parser_may_skip_is_bounded_in_bytes() -> None:
    """A tenth of a long text is too much to skip: the parser's time would decide, and it differs by machine."""
    padded = "def work(n):\n    return n\n# " + "a " * 30_000 + "\n{}\ny = 2\n"
    assert measure(padded.format("<-" * 700), "python")["max_complexity"] == 1
    assert measure(padded.format("<-" * 1_100), "python")["max_complexity"] is None


def test_lines_like_comments_in_a_string_do_not_swallow_its_end() -> None:
    """A long string whose lines begin with # and whose last one closes it leaves the code after it readable."""
    text = 'NOTES = """\n' + "# a heading\n" * 300 + '# the end"""\n\n\ndef one(x):\n    return x\n'
    parsed = parse(text.encode(), "python")
    assert parsed is not None
    assert parsed.errors == 0


@pytest.mark.parametrize("gap", ["", "\n"])
def test_many_comment_lines_are_comments_and_cost_no_time(gap: str) -> None:
    """Thousands of comment lines in valid code are counted, and the code after them is still measured."""
    comments = f"# a line\n{gap}" * 20_000
    found = measure(SAMPLES["python"] + comments + SAMPLES["python"], "python")
    assert found["parses"] is True
    assert found["functions"] == 4
    assert found["code_lines"] == 22
    assert (found["comment_share"] or 0) > 0.9
    bare = neutral_view(SAMPLES["python"] + comments, "python")
    assert bare == neutral_view(SAMPLES["python"], "python")


def test_complexity_cannot_hide_at_top_level() -> None:
    """Branches outside functions count as one more unit."""
    hidden = "def f():\n    return 1\n" + "if a:\n    b()\n" * 9
    assert measure(hidden, "python")["max_complexity"] == 10


def test_code_too_broken_to_read_is_unknown_not_good() -> None:
    """Where the tree cannot be trusted, no structure is reported."""
    found = measure("def f(:\n" * 200, "python")
    assert found["parses"] is False
    assert found["max_complexity"] is None
    assert found["functions"] is None


def test_one_syntax_error_does_not_hide_the_rest() -> None:
    """A file with one small error does not parse, and its functions are still counted."""
    found = measure(SAMPLES["python"] * 5 + "x = = 3\n", "python")
    assert found["parses"] is False
    assert found["functions"] == 10


def test_markdown_with_code_is_measured_by_its_fences() -> None:
    """Prose around fenced code does not count as code; the share of code is told."""
    text = f"# My solution\n\nIt's good, isn't it?\n\n```python\n{SAMPLES['python']}```\n\nThanks (a lot!\n"
    found = measure(text, "python")
    assert found["parses"] is True
    assert found["max_complexity"] == 6
    assert 0 < (found["code_share"] or 0) < 1
    assert fenced_code(text, "rust") is None


def test_repetition_is_found_in_code_and_prose() -> None:
    """Copied blocks of code and copied sentences have a share; original ones have none."""
    block = "a = read_one()\nb = change(a)\nc = write_one(b)\n"
    assert measure(block * 2, "python")["duplicate_share"] == 1.0
    assert measure(block, "python")["duplicate_share"] == 0.0
    assert measure("One thing is said. One thing is said.", None)["duplicate_share"] == 0.5


def test_bytes_that_are_not_text_have_only_a_size() -> None:
    """Content that is not UTF-8 is not measured as something else."""
    assert {name for name, value in measure(b"\xff\xfe", "python").items() if value is not None} == {"bytes"}


def test_languages_are_known_by_what_people_write() -> None:
    """Hints with versions and short names find their language; unknown ones find none."""
    assert [known_language(hint) for hint in ("Solidity ^0.8", "ts", "Golang", "COBOL", "", None)] == [
        "solidity",
        "typescript",
        "go",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("text", ["." * 250_000 + "x said so", "word!?" + "?!" * 120_000 + "x said so"])
def test_long_runs_of_marks_are_counted_once(text: str) -> None:
    """Marks that end no sentence cost no more than their length, however many there are."""
    assert measure(text, None)["sentences"] == 1


@pytest.mark.parametrize("line", ["```" + "a" * 250_000 + "`", "```" + " " * 250_000 + "`", "~" * 250_000 + "`"])
def test_a_long_line_that_is_no_fence_is_read_once(line: str) -> None:
    """A line that looks like a fence until its last character comes to an end and opens nothing."""
    assert fenced_code(line + "\nx = 1\n```\n", "python") is None


def test_structure_does_not_depend_on_how_long_it_takes() -> None:
    """A tree read after the parser's time is over says the same: receivers and defaults are still known."""
    source = b"class A:\n    def f(self, a):\n        match a:\n            case 1: pass\n            case _: pass\n"
    parsed = parse(source, "python")
    assert parsed is not None
    over = time.thread_time() + CPU_SECONDS
    while time.thread_time() <= over:
        pass
    (function,) = read_structure(parsed).functions
    assert (function.parameters, function.complexity) == (1, 2)
