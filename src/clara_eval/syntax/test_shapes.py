"""Shapes of statements: what they forget, what they keep, and that nobody can make them slow."""

from __future__ import annotations

import hashlib
import time

import pytest

from clara_eval.syntax.parsing import parse
from clara_eval.syntax.shapes import shapes_of

PYTHON = """
def fee(volume, base):
    if volume <= 0 and not (base > volume):
        raise ValueError("volume must be positive")
    scale = base * 3 + 1
    total += scale
    return [scale, total, "done it"]
"""
JAVASCRIPT = """
function charge(v, b) {
  if (v <= 0 && !(v < b)) { throw new Error("volume must be positive"); }
  const s = 1 + 3 * b;
  t = t + s;
  return ([s, t, 'done it']);
}
"""


def shapes(text: str, language: str) -> set[str]:
    parsed = parse(text.encode(), language)
    assert parsed is not None
    return {shape.text for shape in shapes_of(parsed)}


def test_names_style_and_language_are_forgotten() -> None:
    """The same five statements in Python and, restyled and renamed, in JavaScript have the same shapes."""
    assert shapes(PYTHON, "python") == shapes(JAVASCRIPT, "javascript")


def test_constants_operators_and_sentences_are_kept() -> None:
    """Another constant, another operator or another message is another statement."""
    first = shapes("x = a * 3 + b", "python")
    for other in ("x = a * 4 + b", "x = a / 3 + b", "x = a * (3 + b)", "x = a * 3 - b"):
        assert shapes(other, "python") != first
    assert shapes('log("no funds here")', "python") != shapes('log("no price here")', "python")


@pytest.mark.parametrize(
    "text",
    [
        "x=" + "(" * 20_000 + "1" + ")" * 20_000,
        "x=" + "+".join(["a"] * 40_000),
        "x=" + "[" * 20_000 + "]" * 20_000,
        "x=" + "-" * 50_000 + "1",
        "f(" * 15_000 + ")" * 15_000,
        "a." * 50_000 + "b",
    ],
    ids=["brackets", "sum", "lists", "signs", "calls", "members"],
)
def test_deep_nesting_costs_linear_time(text: str) -> None:
    """Whatever a stranger nests, reading it costs seconds at most, and no recursion."""
    parsed = parse(text.encode(), "python")
    began = time.process_time()
    assert parsed is None or all(len(shape.text) < 2_000 for shape in shapes_of(parsed))
    assert time.process_time() - began < 5


_LONG = ", ".join(f"a{n}" for n in range(30))
_WIDE = f"f({_LONG})[0] += g({_LONG})"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", f"{_WIDE}\n"),
        ("javascript", f"{_WIDE};\nf({_LONG})[g({_LONG})]++;\n"),
        ("typescript", f"{_WIDE};\n--f({_LONG})[g({_LONG})];\n"),
        ("go", f"package a\nfunc b() {{\n\t{_WIDE}\n\tf({_LONG})[g({_LONG})]++\n}}\n"),
        ("rust", f"fn b() {{ {_WIDE}; }}\n"),
        ("solidity", f"contract C {{ function b() public {{ {_WIDE}; f({_LONG})[g({_LONG})]++; }} }}\n"),
    ],
)
def test_a_statement_of_any_width_is_read(language: str, text: str) -> None:
    """An assignment or a step whose sides are too large for one shape falls apart into its sides, and stops nobody."""
    parsed = parse(text.encode(), language)
    assert parsed is not None
    assert list(shapes_of(parsed))


def test_the_answers_are_those_that_traces_were_made_with() -> None:
    """Shapes and structures of a hundred programs have the digest they always had: a faster walk changes no copy."""
    from dataclasses import asdict

    from clara_eval.syntax.structure import read_structure
    from clara_eval.testing.large_round import program

    digest = hashlib.sha256()
    for number in range(100):
        parsed = parse(program(number).encode(), "python")
        assert parsed is not None
        found = asdict(read_structure(parsed))
        digest.update(repr([tuple(shape) for shape in shapes_of(parsed)]).encode())
        digest.update(repr({**found, "names": sorted(found["names"])}).encode())
    assert digest.hexdigest() == "807fa804906c9992ca80fe0cde5f563ccfd67605c3edf15ee48a9188523c3947"
