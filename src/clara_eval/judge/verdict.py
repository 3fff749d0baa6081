"""A judge's word about two vectors: who is better, how sure, and a short reason for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["A", "B", "tie"]


@dataclass(frozen=True, slots=True)
class Verdict:
    winner: Side
    confidence: float
    reason: str
    """For people only: it never goes into another prompt."""
