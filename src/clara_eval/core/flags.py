"""A flag: one fact that a reader of a result should know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

HARNESS_WITHHELD = "hidden_harness_withheld"
"""Shown beside every view of a result, because it concerns all entries."""
Severity = Literal["info", "warn", "review"]
Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Flag:
    """`code` for programs, `sentence` for people."""

    code: str
    severity: Severity
    sentence: str
    account: str | None = None
    """Whom it is about; None where it is about the round, or where who submitted must not matter yet."""
    evidence: Mapping[str, Fact] = field(default_factory=dict)
    """The figures behind the sentence, by name; shares are rounded as the sentence says them."""
