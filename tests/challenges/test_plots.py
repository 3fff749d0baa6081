"""Plots are well-formed, and no name can break out of them."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.challenges.plots import MOST_ROWS, ratings_svg, win_matrix_svg
from clara_eval.ranking import Result, rank, tally

HOSTILE = ["</text><script>alert(1)</script>", "\"&<>'", "\u202eevil\u0000\n", "0x" + "ab" * 20, "plain"]


def tags(svg: str) -> set[str]:
    return {element.tag.split("}")[1] for element in ET.fromstring(svg).iter()}


def test_hostile_names_stay_text() -> None:
    """Markup and control characters in names are escaped; the picture parses and holds no script."""
    results = [Result(a, b, "first") for i, a in enumerate(HOSTILE) for b in HOSTILE[i + 1 :]]
    table = tally(HOSTILE, results)
    ranking = rank(table, seed=b"", winner_count=2)
    for svg in (ratings_svg(ranking), win_matrix_svg(ranking, table)):
        assert tags(svg) <= {"svg", "style", "rect", "text", "line", "circle", "title"}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=2, max_size=5, unique=True))
def test_any_name_gives_a_picture_that_parses(names: list[str]) -> None:
    """Whatever a stranger calls an entry, the SVG is XML."""
    table = tally(names, [Result(names[0], names[1], "tie")])
    ranking = rank(table, seed=b"", winner_count=1)
    assert "circle" in tags(ratings_svg(ranking))
    assert "rect" in tags(win_matrix_svg(ranking, table))


def test_a_long_field_is_cut_and_says_so() -> None:
    """More items than rows: the best are shown with a note."""
    items = [f"i{k:03}" for k in range(MOST_ROWS + 5)]
    table = tally(items, [Result(a, b, "first") for a, b in pairwise(items)])
    ranking = rank(table, seed=b"", winner_count=3)
    assert f"The best {MOST_ROWS} of {len(items)} are shown." in ratings_svg(ranking)
