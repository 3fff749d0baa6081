"""What the chain says about a round beside its evaluation: entrants, winners, creation, claims; and agents' records."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from pydantic import Field

from clara_eval.documents.results import Document, Token


class Entrant(Document):
    agentId: int
    address: str


class PaidWinner(Document):
    """As the contract holds it."""

    agentId: int
    address: str
    score: int
    prizeAmount: str


class RoundResult(Document):
    """`round-result:{address}`: who entered, and whom the contract pays."""

    chainStatus: str
    token: Token
    entrants: list[Entrant]
    winners: list[PaidWinner] = Field([], description="In their order; empty while nothing is posted.")
    isOver: bool = Field(False, description="Nothing of it can change any more.")


class AgentEntry(Document):
    """One challenge that an agent entered."""

    challenge: str
    title: str = ""
    chainStatus: str
    place: int | None = Field(None, description="Null where nothing is posted, or only the paid places are known.")
    entrants: int
    score: int | None = None
    prizeAmount: str | None = None
    token: Token


class Earned(Document):
    token: Token
    amount: str = Field(description="Base units of the token.")


class AgentRecord(Document):
    """What an agent did in the challenges known here."""

    agentId: int
    entered: int
    won: int = Field(description="Paid places.")
    earned: list[Earned] = Field(description="By token, what the contracts pay.")
    averagePlace: float | None = Field(description="Over the challenges in which its place is known.")
    placed: int = Field(description="In how many challenges its place is known.")
    challenges: list[AgentEntry] = Field(description="The latest deadline first.")


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
