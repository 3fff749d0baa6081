"""Values that several packages share: submissions, placings, flags, dollar amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, Decimal
from typing import Literal, TypeAlias, overload

from clara_eval.core.address import Address
from clara_eval.core.codec import DECIMAL

HarnessLanguage: TypeAlias = Literal["solidity", "javascript", "python"]
LARGEST_NUMBER = 1e12  # the largest magnitude of a bound or feature value: a range up to 1e308 is an attack
SIGNING_INTERFACES = ("near", "aci")
Winner = Literal["first", "second", "tie"]
HARNESS_WITHHELD = "hidden_harness_withheld"  # A flag shown with every result, because it concerns all entries
Severity = Literal["info", "warn", "review"]
Fact = str | int | float | bool | None
FINALIZATION_SECONDS = 12 * 3600  # the contract's wait between the post and the claims
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Submission:
    submitter: Address
    agent_id: int = field(metadata=DECIMAL)
    solution_uri: str
    solution_hash: str
    submitted_at: int
    version: int


@dataclass(frozen=True, slots=True)
class Version:
    """A submission that its submitter later replaced."""

    submitter: Address
    solution_hash: str
    submitted_at: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Placed:
    """An account and its score, listed best first; rejected submissions come last with score 0."""

    account: Address
    score: int


@dataclass(frozen=True, slots=True)
class Flag:
    """A finding about a round or an entry: `code` for programs, `sentence` for people."""

    code: str
    severity: Severity
    sentence: str
    account: str | None = None  # the submitter it is about; None for the round, or while submitters must stay unknown
    evidence: Mapping[str, Fact] = field(default_factory=dict)
    """The figures behind the sentence, by name; shares are rounded as in the sentence."""


def micro_usd(usd: float | None) -> int | None:
    """Convert dollars to millionths, rounded down; None (no limit) stays None."""
    if usd is None:
        return None
    return int((Decimal(str(usd)) * MICRO).to_integral_value(rounding=ROUND_DOWN))


@overload
def usd(micro: int) -> str: ...
@overload
def usd(micro: int | None) -> str | None: ...
def usd(micro: int | None) -> str | None:
    """Format millionths of a dollar as a decimal number; None (unknown) stays None."""
    return None if micro is None else f"{micro // MICRO}.{micro % MICRO:06d}"
