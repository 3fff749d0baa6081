"""What the votes on one question say together.

In come the comparisons of one ordered pair, one for each judge; out goes the public document: the majority on top, all
votes below it. A is the submission that was shown first, the first in the document's key; B is the other. This is for
readers: the ranking takes every vote as a result of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypedDict

from clara_eval.core.verdict import Winner
from clara_eval.evaluation.play import Comparison

Letter = Literal["A", "B", "tie"] | None
_LETTERS: dict[Winner | None, Letter] = {"first": "A", "second": "B", "tie": "tie", None: None}


class VoteDocument(TypedDict):
    judge: str
    winner: Letter
    confidence: float | None
    reason: str


class VotesDocument(TypedDict):
    winner: Letter
    confidence: float | None
    reason: str
    votes: list[VoteDocument]


def votes_document(votes: Sequence[Comparison]) -> VotesDocument:
    """The specification's pairwise document of one question: two submissions in one order, every judge's vote."""
    winner = _majority([vote.winner for vote in votes])
    agreeing = [vote for vote in votes if vote.winner == winner]
    confidences = [vote.confidence for vote in agreeing if vote.confidence is not None]
    return {
        "winner": _LETTERS[winner],
        "confidence": round(sum(confidences) / len(confidences), 4) if confidences else None,
        "reason": agreeing[0].reason if agreeing else "The judges disagree.",
        "votes": [
            {"judge": v.judge, "winner": _LETTERS[v.winner], "confidence": v.confidence, "reason": v.reason}
            for v in votes
        ],
    }


def _majority(winners: Sequence[Winner | None]) -> Winner | None:
    """The most frequent verdict; a split among verdicts is a tie, and no verdict at all stays none."""
    counted = Counter(winner for winner in winners if winner is not None).most_common(2)
    if not counted:
        return None
    if len(counted) > 1 and counted[0][1] == counted[1][1]:
        return "tie"
    return counted[0][0]
