"""A judge's verdict about two vectors; read strictly, with no default winner and no repaired number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clara_eval.core.errors import BadAnswer
from clara_eval.judge.reading import read_object, shown

Side = Literal["A", "B", "tie"]
REASON_LENGTH = 300
VERDICT_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "winner": {"type": "string", "enum": ["A", "B", "tie"]},
        "confidence": {"type": "number", "description": "From 0.0 to 1.0."},
        "reason": {"type": "string", "description": "One brief sentence."},
    },
    "required": ["winner", "confidence", "reason"],
    "additionalProperties": False,
}
"""Within what strict modes of the providers accept; the range of `confidence` is checked here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    winner: Side
    confidence: float
    reason: str
    """For people only: it never goes into another prompt."""


def read_verdict(text: str) -> Verdict:
    answer = read_object(text, ("winner", "confidence", "reason"))
    winner, confidence, reason = answer["winner"], answer["confidence"], answer["reason"]
    if winner not in ("A", "B", "tie"):
        raise BadAnswer("The winner is not A, B or tie.")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 <= confidence <= 1:
        raise BadAnswer("The confidence is not a number from 0 to 1.")
    if not isinstance(reason, str):
        raise BadAnswer("The reason is not a text.")
    return Verdict(winner, float(confidence), shown(reason, REASON_LENGTH))
