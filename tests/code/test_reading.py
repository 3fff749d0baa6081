"""A text is parsed once for all that is asked of it, and what is held of it is what reading it anew gives."""

from __future__ import annotations

import random

import pytest
from tests.support.large_round import program

from clara_eval.code import read_code, reading
from clara_eval.code.reading import read_structure, shapes_in, shapes_of
from clara_eval.core.syntax import Parsed, parse


@pytest.mark.parametrize("shapes_first", [True, False])
def test_what_is_held_is_what_the_tree_says(monkeypatch: pytest.MonkeyPatch, *, shapes_first: bool) -> None:
    """Whole programs and broken ones give the same structure and shapes, whoever asks first and however often."""
    rng, read = random.Random(int(shapes_first)), list[bytes]()

    def counted(source: bytes, language: str) -> Parsed | None:
        read.append(source)
        return parse(source, language)

    monkeypatch.setattr(reading, "parse", counted)
    for number in range(40):
        text = program(number, seed=5 + shapes_first)
        cut = rng.randrange(len(text))
        source = (text if number % 2 else text[:cut] + text[cut + rng.randint(1, 30) :]).encode()
        if shapes_first:
            shapes_in(source, "python")
        found, parsed = read_code(source, "python"), parse(source, "python")
        assert read_code(source, "python") is found
        assert read == [source]  # parsed once
        assert shapes_in(source, "python") == (shapes_of(parsed) if parsed else [])
        read.clear()
        if parsed is None:
            assert found is None
            continue
        assert found is not None
        plain = read_structure(parsed)
        assert found.errors == parsed.errors
        assert found.distinct_names == len(plain.names)
        assert (found.structure.functions, found.structure.outside) == (plain.functions, plain.outside)
        assert (found.structure.comments, found.structure.strings) == (plain.comments, plain.strings)


def test_languages_are_not_mixed_up() -> None:
    """The same bytes asked for in two languages are read in each: what is held of one says nothing about the other."""
    source = b"function f(a) { return a; }\n" * 40
    assert read_code(source, "python") is None
    assert shapes_in(source, "python") == []
    found = read_code(source, "javascript")
    assert found is not None
    assert len(found.structure.functions) == 40


def test_strangers_do_not_choose_how_much_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that are nothing but strings push each other out, and one that alone passes the bound is not held."""
    held: dict[object, object] = {}
    monkeypatch.setattr(reading, "_CACHE", held)
    monkeypatch.setattr(reading, "_MAX_CACHED_PARTS", 1_000)
    for number in range(12):
        read_code(b'a = [""' + b', ""' * (300 + number) + b"]\n", "python")
    assert len(held) == 3
    huge = b'a = [""' + b', ""' * 1_500 + b"]\n"
    first, again = read_code(huge, "python"), read_code(huge, "python")
    assert first == again
    assert first is not again
