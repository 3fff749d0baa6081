"""A result that waits for a person: why, everything needed to decide, and the decision."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from clara_eval.core.flags import Flag
from clara_eval.documents.results import LeaderboardRow, Token, Value

ReviewState = Literal["waiting", "approved", "rejected", "lapsed"]
"""`lapsed`: no decision in time, and the default is posted."""
RulingKind = Literal["exclude", "original", "judge"]
RuledStage = Literal["reading", "comparing"]


class RestRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReviewDetail(BaseModel):
    """Why a result waits for a person, and what they said."""

    address: str
    traceDigest: str
    state: ReviewState
    reasons: list[str]
    requestedAt: int
    decidedAt: int | None = None
    note: str = ""
    postsAt: int | None = Field(
        None, description="When the default is posted unless somebody decides; null: nothing is posted by itself."
    )
    default: str = Field("", description="What is posted then, in words.")


class RulingRequest(RestRequest):
    """Exclude an entry, say who is the original of a copied work, or have another judge asked for a stage."""

    kind: RulingKind
    account: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$")] | None = None
    judge: Annotated[str, StringConstraints(max_length=300)] | None = None
    stage: RuledStage | None = None


class ReviewRequest(RestRequest):
    model_config = ConfigDict(json_schema_extra={"examples": [{"decision": "approve", "note": "Flags looked at."}]})

    decision: Literal["approve", "reject", "rule"]
    note: Annotated[str, StringConstraints(max_length=500), Field(validation_alias=AliasChoices("note", "reason"))] = ""
    """Why; it is kept with the decision. `reason`, its earlier name, is accepted."""
    by: Annotated[str, StringConstraints(max_length=80)] = ""
    """Who decides; it stands in the public trace. Without a name the trace says `operator`."""
    ruling: RulingRequest | None = None
    """With the decision `rule`: what is ruled."""
    traceDigest: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")] | None = None
    """The result that was looked at, required to approve and to rule; another one is then not decided about."""


class ReviewRecord(BaseModel):
    challengeAddress: str
    decision: Literal["approve", "reject", "rule"]
    note: str
    by: str = ""


class ShownComparison(BaseModel):
    """One look at two entries near the pay line; `winner` is an address, `tie`, or null without a verdict."""

    first: str
    second: str
    winner: str | None
    confidence: float | None
    reason: str


class ReviewSheet(BaseModel):
    address: str
    traceDigest: str
    """What an approval or a ruling has to name."""
    state: str
    reasons: list[str]
    unlessDecided: str
    """What happens if nobody decides, and when; empty once somebody did."""
    postsAt: int | None
    note: str
    status: str | None
    title: str | None
    prizePool: str | None
    """Base units of the token."""
    token: Token | None
    winnerCount: int
    scoringDeadline: int | None
    secondsLeft: int | None
    ranking: list[LeaderboardRow]
    doubts: list[Flag]
    """The flags that hold the post, and those that only warn."""
    facts: dict[str, dict[str, Value]]
    """By feature: the value of each entry near the pay line."""
    games: list[ShownComparison]
    rulings: list[dict[str, Any]]
    """What was ruled before; the result shown was walked with it."""
