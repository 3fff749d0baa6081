"""The count of what stood there: text that was moved is not text that is gone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def _sizes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizes", Path(__file__).parents[1] / "scripts" / "sizes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sizes = _sizes()
BODY = ["one = read(path)", "two = check(one)", "three = sum(two)", "return three"]


def test_a_function_that_was_cut_up_has_not_shrunk() -> None:
    """What moved into a new function counts there, every old line once."""
    whole, part, again = sizes.Place("a.py", "whole"), sizes.Place("b.py", "part"), sizes.Place("b.py", "sum_again")
    old = {whole: ["def whole(path):", *BODY]}
    new = {whole: ["def whole(path):", "return part(path)"], part: ["def part(path):", *BODY], again: ["", *BODY]}
    pairs = sizes.pair(old, new, {})
    assert pairs == {whole: whole}
    assert sizes.moved_text(old, new, pairs, 2) == {part: 4, again: 0}


def test_a_line_that_stays_or_stands_alone_was_not_moved() -> None:
    """What is still in its place is nobody else's, and one equal line is told apart from text that stood together."""
    kept, other = sizes.Place("a.py", "kept"), sizes.Place("b.py", "other")
    old = {kept: ["def kept(path):", *BODY]}
    new = {kept: ["def kept(path):", *BODY[:3]], other: ["def other():", *BODY[:2], BODY[3], "pass"]}
    pairs = sizes.pair(old, new, {})
    assert sizes.moved_text(old, new, pairs, 2) == {other: 0}
    assert sizes.moved_text(old, new, pairs, 1) == {other: 1}
