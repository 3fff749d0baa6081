"""Requests and responses of the REST API, as in the OpenAPI document."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from clara_eval.core.address import Address
from clara_eval.core.model import Flag
from clara_eval.documents import results

ADDRESS_PATTERN = "^0x[0-9a-fA-F]{40}$"
EXAMPLE_ADDRESS = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"


class RestRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReviewDetail(BaseModel):
    """Why a result waits for a person, and what the person decided."""

    address: str
    traceDigest: str
    state: results.ReviewState
    reasons: list[str]
    requestedAt: int
    decidedAt: int | None = None
    note: str = ""
    postsAt: int | None = Field(
        None, description="When the default is posted without a decision; null: nothing is posted automatically."
    )
    default: str = Field("", description="What is posted then, in words.")


class RulingRequest(RestRequest):
    """Exclude an entry, name the original of a copied work, or use another judge for a stage."""

    kind: results.RulingKind
    account: Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN)] | None = None
    judge: Annotated[str, StringConstraints(max_length=300)] | None = None
    stage: results.RuledStage | None = None


class ReviewRequest(RestRequest):
    model_config = results.example(decision="approve", note="Flags looked at.", traceDigest="0x" + "ab" * 32)

    decision: Literal["approve", "reject", "rule"]
    note: Annotated[str, StringConstraints(max_length=500), Field(validation_alias=AliasChoices("note", "reason"))] = ""
    """Why; stored with the decision. The earlier name `reason` is accepted."""
    by: Annotated[str, StringConstraints(max_length=80)] = ""
    """Who decides, as the public trace will say; `operator` if empty."""
    ruling: RulingRequest | None = None  # With the decision `rule`: what is ruled
    traceDigest: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")] | None = None
    """The result that was reviewed; required to approve and to rule, so that no other one is decided."""


class ReviewRecord(BaseModel):
    challengeAddress: str
    decision: Literal["approve", "reject", "rule"]
    note: str
    by: str = ""


class ShownComparison(BaseModel):
    """A comparison of two entries near the pay line; `winner` is an address, `tie` or null."""

    first: str
    second: str
    winner: str | None
    confidence: float | None
    reason: str


class ReviewSheet(BaseModel):
    address: str
    traceDigest: str  # What an approval or a ruling has to name
    state: str
    reasons: list[str]
    unlessDecided: str  # What happens without a decision, and when; empty once there is one
    postsAt: int | None
    note: str
    status: str | None
    title: str | None
    prizePool: str | None  # Base units of the token
    token: results.Token | None
    winnerCount: int
    misplaced: results.Misplaced | None = None
    scoringDeadline: int | None
    secondsLeft: int | None
    ranking: list[results.LeaderboardRow]
    doubts: list[Flag]  # The flags that hold the post, and those that only warn
    facts: dict[str, dict[str, results.Value]]  # By feature: the value of each entry near the pay line
    games: list[ShownComparison]
    rulings: list[dict[str, Any]]  # Earlier rulings, which the result shown includes


class EvaluateRequest(RestRequest):
    model_config = results.example(challengeAddress=EXAMPLE_ADDRESS)

    challengeAddress: Annotated[str, StringConstraints(pattern=ADDRESS_PATTERN, max_length=42)]


class Accepted(BaseModel):
    model_config = results.example(
        challengeAddress=EXAMPLE_ADDRESS,
        workflowId=f"evaluate:8453:{EXAMPLE_ADDRESS}:1",
        statusUrl=f"/api/v1/challenges/{EXAMPLE_ADDRESS}/eval-status",
    )

    challengeAddress: str
    workflowId: str
    statusUrl: str


class ChallengeSummary(results.Summary):
    """What the contract says, and the state of the evaluation."""

    evaluation: results.EvalStatus


class PagedList(BaseModel):
    total: int
    offset: int
    limit: int


class ChallengeList(PagedList):
    challenges: list[ChallengeSummary]


class ChallengeDetail(ChallengeSummary):
    leaderboard: results.Scores | None = Field(None, description="Present once scores are posted.")
    traceDigest: str | None = None
    evaluatorRecord: results.EvaluatorRecord | None = Field(None, description="While nothing is posted.")
    provisional: results.ProvisionalBoard | None = Field(
        None, description="While entries are accepted: public tests alone."
    )
    review: ReviewDetail | None = Field(None, description="Only with the admin key.")


class AgentList(PagedList):
    agents: list[results.AgentTotals]


class ObjectionRequest(RestRequest):
    """An objection, signed (EIP-191) by the submitter as docs/agents.md describes."""

    about: str = Field(max_length=60, description="`rejected`, `copy`, `feature:NAME` or `game:ADDRESS`.")
    reason: str = Field(min_length=1, max_length=1000)
    signature: str = Field(max_length=200)


class ObjectionRecord(BaseModel):
    challengeAddress: str
    submitter: str
    about: str
    reason: str


@dataclass(frozen=True, slots=True)
class DraftPlaceRecord:
    address: Address
    rank: int
    score: int
    status: str


class DraftRecord(BaseModel):
    """A result that is announced before it is posted."""

    digest: str = Field(description="The digest of the trace that would be posted.")
    announcedAt: int
    until: int = Field(description="Submitters may object until then, by the chain's clock.")
    places: list[DraftPlaceRecord]
    margin: str


class RevealRequest(RestRequest):
    model_config = results.example(document='{"language":"solidity","salt":"0x…"}', signature="0x" + "00" * 65)

    document: Annotated[str, StringConstraints(min_length=2, max_length=262_144)]
    """The harness document, exactly as it was hashed."""
    signature: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{130}$")]  # The poster's EIP-191 signature


class RevealRecord(BaseModel):
    challengeAddress: str
    privateSetHash: str


class Health(BaseModel):
    model_config = results.example(
        status="ok", mode="all", version="0.2.0", uptimeSeconds=86400.0, beatAgeSeconds=0.4, tickAgeSeconds=121.3,
        problems=[], hasModel=True, evaluator="0x" + "ab" * 20,
    )  # fmt: skip

    status: Literal["ok", "degraded", "stale"]
    mode: Literal["all", "worker-only", "api-only"]
    version: str
    uptimeSeconds: float
    beatAgeSeconds: float
    tickAgeSeconds: float | None
    problems: list[str]
    hasModel: bool  # Whether a model can read submissions here; without one only measured features are judged
    evaluator: str | None  # The address that posts the scores, which a poster names as evaluator; null if none is set
