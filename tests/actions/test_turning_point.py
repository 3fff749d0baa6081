"""What would have changed a place is computed from the recorded games."""

from __future__ import annotations

from itertools import permutations

from clara_eval.actions.published import LARGEST_FIELD, turning_point
from clara_eval.ranking import Result

PLACES = [f"item{number}" for number in range(6)]


def _games(places: list[str]) -> list[Result]:
    """Everybody meets everybody in both orders, and the better place wins."""
    return [
        Result(one, other, "first" if places.index(one) < places.index(other) else "second")
        for one, other in permutations(places, 2)
    ]


def test_an_entry_below_the_line_hears_whom_it_had_to_beat() -> None:
    """The first that is not paid lacked the games against its neighbour above; then it is on the last paid place."""
    turn = turning_point("item2", PLACES, _games(PLACES), 2)
    assert turn is not None
    assert turn.rivals == ("item1",)
    assert turn.place <= 2


def test_a_paid_entry_hears_what_would_have_cost_its_place() -> None:
    """The last that is paid would have lost its place with the games against the first that is not."""
    turn = turning_point("item1", PLACES, _games(PLACES), 2)
    assert turn is not None
    assert "item2" in turn.rivals
    assert turn.place > 2


def test_more_distance_takes_more_games() -> None:
    """The last of the field needs more rivals' games than the one next to the line."""
    near, far = (turning_point(name, PLACES, _games(PLACES), 2) for name in ("item2", "item5"))
    assert near is not None
    assert far is not None
    assert len(far.rivals) > len(near.rivals)


def test_nothing_is_said_that_the_games_do_not_carry() -> None:
    """No games, everybody paid, an unknown entry, too large a field, or games that name others as paid: no answer."""
    games = _games(PLACES)
    large = [f"item{number:03}" for number in range(LARGEST_FIELD + 1)]
    assert turning_point("item2", PLACES, [], 2) is None
    assert turning_point("item2", PLACES, games, 6) is None
    assert turning_point("other", PLACES, games, 2) is None
    assert turning_point(large[5], large, _games(large), 2) is None
    assert turning_point("item2", PLACES[::-1], games, 2) is None
