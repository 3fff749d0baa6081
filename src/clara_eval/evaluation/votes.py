"""The votes of all judges on one ordered pair, as the public document: majority first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypedDict

from clara_eval.core.constants import Winner
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
    """The public document of one ordered pair, with the vote of every judge."""
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
