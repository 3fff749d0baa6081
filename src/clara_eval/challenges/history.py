"""What happened to a challenge beside its evaluation: when it was created, and who took the prize when.

Comes in: events of the factory and of challenges. Goes out: `challenge-created:{address}` and
`challenge-claims:{address}` in the store, for the doors to read. Both are missing where a store is older than they are,
and `claims` may lack what happened since the last look.
"""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from pydantic import Field

from clara_eval.documents.results import Document

CREATED = "challenge-created:"
CLAIMS = "challenge-claims:"


class Created(Document):
    """The factory's announcement."""

    at: int | None = Field(None, description="The time of its block; null where no node had it.")
    txHash: str
    block: int


class Claim(Document):
    """One prize that was taken."""

    address: str
    amount: str = Field(description="Base units of the token.")
    at: int | None = None
    txHash: str


class PrizeClaims(Document):
    """Prizes taken so far, in their order, of so many."""

    claims: list[Claim] = Field(default_factory=list)
    winners: int


def created_key(address: str) -> str:
    return CREATED + address


def claims_key(address: str) -> str:
    return CLAIMS + address
