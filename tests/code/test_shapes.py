"""Shapes of statements: what they forget, what they keep, and that nobody can make them slow."""

from __future__ import annotations

import hashlib
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.large_round import program
from tests.support.measured_texts import SAMPLES

from clara_eval.code.reading import (
    _BROKEN,
    _NUMBER,
    _OPEN,
    _STRING,
    _TOKEN,
    _WORD,
    MOST_LEAVES,
    _Kind,
    _kinds,
    _leaf_text,
    _shape_text,
    shapes_of,
)
from clara_eval.core.syntax import Parsed, parse

if TYPE_CHECKING:
    from tree_sitter import Node

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

    from clara_eval.code.reading import read_structure

    digest = hashlib.sha256()
    for number in range(100):
        parsed = parse(program(number).encode(), "python")
        assert parsed is not None
        found = asdict(read_structure(parsed))
        digest.update(repr([tuple(shape) for shape in shapes_of(parsed)]).encode())
        digest.update(repr({**found, "names": sorted(found["names"])}).encode())
    assert digest.hexdigest() == "807fa804906c9992ca80fe0cde5f563ccfd67605c3edf15ee48a9188523c3947"


def _plainly(parsed: Parsed) -> list[tuple[str, int]]:
    """Shapes by the definition, node by node and calling itself: slow, and only for texts that are not deep."""
    kinds, found = _kinds(parsed.language), list[tuple[str, int]]()

    def kind_of(node: Node) -> _Kind:
        return kinds[node.kind_id] if node.kind_id < len(kinds) else _BROKEN

    def parts_of(node: Node, around: _Kind) -> list[tuple[str, int]]:
        kind = kind_of(node)
        if kind.role != _OPEN:
            is_part = kind.role in (_WORD, _NUMBER, _STRING)
            return (
                [(kind.label if kind.role == _WORD else _leaf_text(kind.role, parsed.source, node), 1)]
                if is_part
                else []
            )
        inner = node.children if kind.has_operator else node.named_children
        operator = " ".join(kind_of(n).label for n in inner if kind_of(n).role == _TOKEN)
        parts = [part for child in inner for part in parts_of(child, kind)]
        leaves = sum(size for _, size in parts)
        if leaves > MOST_LEAVES:
            found.extend(parts)
            parts, leaves = [], 1
        if kind.is_block or not leaves:
            found.extend(parts)
            return []
        is_own = kind.is_unit or around.is_block
        if kind.is_spliced and not is_own:
            return parts
        texts = [text for text, _ in parts]
        alone = len(parts) == 1 and not kind.keeps_label
        joined = texts[0] if alone else _shape_text(kind, operator, texts), leaves
        if is_own:
            found.append(joined)
        return [] if is_own else [joined]

    parts_of(parsed.tree.root_node, _BROKEN)
    return found


@pytest.mark.parametrize("language", sorted(SAMPLES))
def test_the_walk_gives_what_the_plain_definition_gives(language: str) -> None:
    """Whole texts and texts with random pieces taken out have the shapes of the plain form, in the same order."""
    rng = random.Random(language)
    texts = [SAMPLES[language], *([program(n, seed=11) for n in range(20)] if language == "python" else [])]
    for text in texts:
        for _ in range(8):
            start = rng.randrange(len(text))
            for held in (text, text[:start] + text[start + rng.randint(1, 60) :]):
                parsed = parse(held.encode(), language)
                if parsed is not None:
                    assert [tuple(shape) for shape in shapes_of(parsed)] == _plainly(parsed)
