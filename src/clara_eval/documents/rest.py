"""The documents the API speaks, as the OpenAPI document shows them.

Requests are parsed with these, so an unknown key is an error. What the store holds is defined in `records.documents`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from clara_eval.challenges.review import ReviewState
from clara_eval.documents.results import EvalStatus, Scores, Summary
from clara_eval.evaluation.rulings import RuledStage, RulingKind

ADDRESS_PATTERN = "^0x[0-9a-fA-F]{40}$"
_EXAMPLE = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"

AddressPath = Annotated[
    str, Path(pattern=ADDRESS_PATTERN, description="The challenge's contract.", examples=[_EXAMPLE], max_length=42)
]
AgentPath = Annotated[int, Path(ge=0, lt=2**256, description="The agent's id in the identity registry.", examples=[7])]
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


class ChallengeSummary(Summary):
    """What the contract says, and where the evaluation stands."""

    evaluation: EvalStatus


class ChallengeList(BaseModel):
    total: int
    offset: int
    limit: int
    challenges: list[ChallengeSummary]


class ReviewDetail(BaseModel):
    """Why a result waits for a person, and what they said."""

    address: str
    traceDigest: str  # noqa: N815
    state: ReviewState
    reasons: list[str]
    requestedAt: int  # noqa: N815
    decidedAt: int | None = None  # noqa: N815
    note: str = ""
    postsAt: int | None = Field(  # noqa: N815
        None, description="When the default is posted unless somebody decides; null: nothing is posted by itself."
    )
    default: str = Field("", description="What is posted then, in words.")


class ChallengeDetail(ChallengeSummary):
    leaderboard: Scores | None = Field(None, description="Present once scores are posted.")
    traceDigest: str | None = None  # noqa: N815
    review: ReviewDetail | None = Field(None, description="Only with the admin key.")


class RulingRequest(_Request):
    """Exclude an entry, say who is the original of a copied work, or have another judge asked for a stage."""

    kind: RulingKind
    account: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$")] | None = None
    judge: Annotated[str, StringConstraints(max_length=300)] | None = None
    stage: RuledStage | None = None


class ReviewRequest(_Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"decision": "approve", "note": "Flags looked at."}]})

    decision: Literal["approve", "reject", "rule"]
    note: Annotated[str, StringConstraints(max_length=500), Field(validation_alias=AliasChoices("note", "reason"))] = ""
    """Why; it is kept with the decision. `reason`, its earlier name, is accepted."""
    by: Annotated[str, StringConstraints(max_length=80)] = ""
    """Who decides; it stands in the public trace. Without a name the trace says `operator`."""
    ruling: RulingRequest | None = None
    """With the decision `rule`: what is ruled."""
    traceDigest: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")] | None = None  # noqa: N815
    """The result that was looked at, required to approve and to rule; another one is then not decided about."""


class ReviewRecord(BaseModel):
    challengeAddress: str  # noqa: N815
    decision: Literal["approve", "reject", "rule"]
    note: str
    by: str = ""


class ObjectionRequest(_Request):
    """Signed (EIP-191) by the submitting address; docs/agents.md says over what."""

    about: str = Field(max_length=60, description="`rejected`, `copy`, `feature:NAME` or `game:ADDRESS`.")
    reason: str = Field(min_length=1, max_length=1000)
    signature: str = Field(max_length=200)


class ObjectionRecord(BaseModel):
    challengeAddress: str  # noqa: N815
    submitter: str
    about: str
    reason: str


class DraftPlaceRecord(BaseModel):
    address: str
    rank: int
    score: int
    status: str


class DraftRecord(BaseModel):
    """A result that is announced before it is posted."""

    digest: str = Field(description="The digest of the trace that would be posted.")
    announcedAt: int  # noqa: N815
    until: int = Field(description="Submitters may object until then, by the chain's clock.")
    places: list[DraftPlaceRecord]
    margin: str


class RevealRequest(_Request):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"document": '{"language":"solidity","salt":"0x…"}', "signature": "0x" + "00" * 65}]
        }
    )

    document: Annotated[str, StringConstraints(min_length=2, max_length=262_144)]
    """The harness document, every byte as it was hashed."""
    signature: Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{130}$")]
    """The poster's EIP-191 signature."""


class RevealRecord(BaseModel):
    challengeAddress: str  # noqa: N815
    privateSetHash: str  # noqa: N815


class Health(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "status": "ok",
                    "mode": "all",
                    "version": "0.2.0",
                    "uptimeSeconds": 86400.0,
                    "beatAgeSeconds": 0.4,
                    "tickAgeSeconds": 121.3,
                    "problems": [],
                    "hasModel": True,
                    "evaluator": "0x" + "ab" * 20,
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
    hasModel: bool  # noqa: N815
    """Whether submissions can be read by a language model here; without one only measured features are judged."""
    evaluator: str | None
    """The address that posts the scores, which a poster names as evaluator; null where none is set."""
