"""One submission as it was handed in: who, what, when."""

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
    """A submission that a later one of the same submitter replaced, as the chain's events tell it."""

    submitter: Address
    solution_hash: str
    submitted_at: int
    version: int = 1
