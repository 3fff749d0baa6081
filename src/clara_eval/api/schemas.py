"""The documents the API speaks, as the OpenAPI document shows them.

Requests are parsed with these, so an unknown key is an error. Answers that the store holds as JSON are sent as they
are; here stands what they look like.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from clara_eval.pipeline.review import ReviewState
from clara_eval.pipeline.status import State

ADDRESS_PATTERN = "^0x[0-9a-fA-F]{40}$"
_EXAMPLE = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"

AddressPath = Annotated[
    str, Path(pattern=ADDRESS_PATTERN, description="The challenge's contract.", examples=[_EXAMPLE], max_length=42)
]
AddressText = Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=42)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EvaluateRequest(_Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"challengeAddress": _EXAMPLE}]})

    challengeAddress: AddressText  # noqa: N815 - the specification's name


class Accepted(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "challengeAddress": _EXAMPLE,
                    "workflowId": f"evaluate:8453:{_EXAMPLE}:1",
                    "statusUrl": f"/api/v1/challenges/{_EXAMPLE}/eval-status",
                }
            ]
        }
    )

    challengeAddress: str  # noqa: N815
    workflowId: str  # noqa: N815
    statusUrl: str  # noqa: N815


class EvalStatus(BaseModel):
    """Where an evaluation stands; `reason` and `retryAt` say why and how long it waits."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "status": "comparing",
                    "progress": 62,
                    "startedAt": 1790000000,
                    "updatedAt": 1790000040,
                    "reason": None,
                    "retryAt": None,
                    "stage": {"calls": 310, "done": 186, "total": 300, "costUsd": 1.92, "secondsLeft": 40},
                }
            ]
        },
    )

    status: State
    progress: int = Field(ge=0, le=100)
    startedAt: int | None = None  # noqa: N815
    updatedAt: int | None = None  # noqa: N815
    reason: str | None = None
    retryAt: int | None = None  # noqa: N815
    stage: dict[str, Any] | None = None


class TokenFacts(BaseModel):
    address: str
    symbol: str
    decimals: int


class ChallengeSummary(BaseModel):
    """What the contract says, and where the evaluation stands."""

    address: str
    chainId: int  # noqa: N815
    title: str
    problemStatement: str  # noqa: N815
    poster: str
    evaluator: str
    token: TokenFacts
    prizePool: str = Field(description="Base units of the token.")  # noqa: N815
    winnerCount: int  # noqa: N815
    payoutBps: list[int]  # noqa: N815
    deadline: int
    scoringDeadline: int  # noqa: N815
    submissionCount: int  # noqa: N815
    chainStatus: Literal["open", "scoring", "finalized", "cancelled", "expired"]  # noqa: N815
    scorePostedAt: int | None = None  # noqa: N815
    postedBy: str | None = Field(None, description="`evaluator`, `poster` or `other`.")  # noqa: N815
    block: int
    evaluation: EvalStatus


class ChallengeList(BaseModel):
    total: int
    offset: int
    limit: int
    challenges: list[ChallengeSummary]


class LeaderboardRow(BaseModel):
    model_config = ConfigDict(extra="allow")

    address: str
    agentId: int | None = None  # noqa: N815
    rank: int | None = None
    score: int | None = Field(None, description="0 to 10000, as on chain.")
    elo: float | None = None
    low: float | None = None
    high: float | None = None
    pTop: float | None = None  # noqa: N815
    rankLow: int | None = Field(None, description="Best place that is likely (5 %).")  # noqa: N815
    rankHigh: int | None = Field(None, description="Worst place that is likely (95 %).")  # noqa: N815
    wins: float | None = None
    losses: float | None = None
    ties: float | None = None
    tiedWith: list[str] = Field([], description="Others with exactly this rating; the earlier submission is first.")  # noqa: N815
    prizeAmount: str | None = None  # noqa: N815
    status: str | None = None
    reason: str | None = None


class Leaderboard(BaseModel):
    """The ranking with its uncertainty, who was paid, and the digest of the trace that proves it."""

    model_config = ConfigDict(extra="allow")

    rankings: list[LeaderboardRow]
    winners: list[dict[str, Any]] = []
    margin: dict[str, Any] | None = None
    consistency: dict[str, Any] | None = None
    flags: list[Any] = []
    traceDigest: str | None = None  # noqa: N815
    txHash: str | None = None  # noqa: N815
    postedBy: str | None = None  # noqa: N815
    outcome: str | None = None
    publishedAt: int | None = None  # noqa: N815


class ReviewDetail(BaseModel):
    """Why a result waits for a person, and what they said."""

    address: str
    traceDigest: str  # noqa: N815
    state: ReviewState
    reasons: list[str]
    requestedAt: int  # noqa: N815
    decidedAt: int | None = None  # noqa: N815
    note: str = ""


class ChallengeDetail(ChallengeSummary):
    leaderboard: Leaderboard | None = Field(None, description="Present once scores are posted.")
    traceDigest: str | None = None  # noqa: N815
    review: ReviewDetail | None = Field(None, description="Only with the admin key.")


class ReviewRequest(_Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"decision": "approve", "reason": "Flags looked at."}]})

    decision: Literal["approve", "reject"]
    reason: Annotated[str, StringConstraints(max_length=500)] = ""
    traceDigest: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")] | None = None  # noqa: N815
    """The result that was looked at; another one is then not decided about."""


class ReviewRecord(BaseModel):
    challengeAddress: str  # noqa: N815
    decision: Literal["approve", "reject"]
    reason: str


class Health(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "status": "ok",
                    "mode": "all",
                    "version": "0.1.0",
                    "uptimeSeconds": 86400.0,
                    "beatAgeSeconds": 0.4,
                    "tickAgeSeconds": 121.3,
                    "problems": [],
                }
            ]
        }
    )

    status: Literal["ok", "degraded", "stale"]
    mode: Literal["all", "worker-only", "api-only"]
    version: str
    uptimeSeconds: float  # noqa: N815
    beatAgeSeconds: float  # noqa: N815
    tickAgeSeconds: float | None  # noqa: N815
    problems: list[str]
