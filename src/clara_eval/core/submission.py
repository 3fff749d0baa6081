"""A submission as it was handed in, and the place that it got."""

from __future__ import annotations

from dataclasses import dataclass, field

from clara_eval.core.address import Address
from clara_eval.core.codec import DECIMAL


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
    """A submission that a later one of the same submitter replaced."""

    submitter: Address
    solution_hash: str
    submitted_at: int
    version: int = 1


@dataclass(frozen=True, slots=True)
class Placed:
    """An account on its place, best first; rejected submissions follow the ranked ones with score 0."""

    account: Address
    score: int
