"""What evaluations left behind reads the same from the store and through the service."""

from __future__ import annotations

from clara_eval.adapters.records import facts_in
from clara_eval.tournament.play import Comparison
from clara_eval.tournament.results import Winner
from clara_eval.tournament.votes import votes_document
from clara_eval.trace.document import TraceWriter, render
from clara_eval.wire import to_wire

ONE, OTHER = "0x" + "1" * 40, "0x" + "2" * 40


def vote(judge: str, winner: Winner | None) -> Comparison:
    return Comparison(ONE, OTHER, judge, winner, 0.8, f"{judge} says so", ())


def test_a_jurys_game_is_the_majority_with_every_vote() -> None:
    """The first vote is not the verdict: two of three judges are, as in the store's own document."""
    votes = [vote("a", "first"), vote("b", "second"), vote("c", "second")]
    writer = TraceWriter()
    lines = [writer.line(f"comparison/{n:07}", to_wire(one)) for n, one in enumerate(votes)]
    lines.append(writer.line(f"features/{ONE}", {"features": {"tests": 3}}))
    found = facts_in("".join(render(lines, writer.digest)))
    assert found[f"game/{ONE}/{OTHER}"] == votes_document(votes)
    assert found[f"game/{ONE}/{OTHER}"]["winner"] == OTHER
    assert found[f"game/{ONE}/{OTHER}"]["reason"] == "b says so"
    assert found[f"features/{ONE}"] == {"features": {"tests": 3}}


def test_a_question_without_any_verdict_has_no_winner() -> None:
    """Failures are no votes; a split is a tie."""
    assert votes_document([vote("a", None)])["winner"] is None
    assert votes_document([vote("a", "first"), vote("b", None)])["winner"] == ONE
    split = votes_document([vote("a", "first"), vote("b", "second")])
    assert (split["winner"], split["confidence"], split["reason"]) == ("tie", None, "The judges disagree.")
    assert [one["winner"] for one in split["votes"]] == ["A", "B"]
