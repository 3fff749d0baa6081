"""The results of actions, as `--json` prints and tools return them; untrusted text is `Untrusted`.

Excluded fields are only for the interfaces, which turn them into sentences.
"""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from clara_eval.core.untrusted import Untrusted
from clara_eval.documents import results

Phase = Literal["cancelled", "expired", "final", "posted", "open", "due"]


class UnsignedTransaction(results.Document):
    """A transaction to sign and send with any wallet, in the given order."""

    chainId: int
    to: str
    data: str
    value: str
    gas: int | None
    description: str


class SentTransaction(results.Document):
    hash: str
    blockNumber: int
    gasUsed: int
    explorerUrl: str | None
    description: str


class ActResult(results.Document):
    """What a writing action did, or would do."""

    action: str
    outcome: Literal["unsigned", "needs_confirmation", "declined", "sent"]
    network: str
    chainId: int
    sender: str | None
    challenge: str | None
    explorerUrl: str | None
    pageUrl: str | None  # The challenge's page at the service of CLARA_API_URL
    summary: str
    transactions: list[UnsignedTransaction]  # Still to be signed and sent; empty once they are sent
    sent: list[SentTransaction]
    warnings: list[str]
    next: str = ""  # What to do next, in the words of the interface
    details: dict[str, object]


class PostedWinner(results.Document):
    rank: int
    address: str
    agentId: str
    score: int
    prizeAmount: str
    prize: str


class ChallengeListing(results.Document):
    address: str
    title: Untrusted
    skills: list[Untrusted]
    status: results.ChainStatus
    acceptsSubmissions: bool
    evaluator: Literal["clara", "self", "other"]
    token: results.Token
    prizePool: str
    prize: str
    winnerCount: int
    submissionCount: int
    maxParticipants: int
    deadline: int
    secondsLeft: int
    explorerUrl: str | None


class BrowseResult(results.Document):
    network: str
    blockNumber: int
    total: int  # Challenges of this factory, before filters
    challenges: list[ChallengeListing]
    nextOffset: int | None


class AgentStanding(results.Document):
    """An agent's record in the challenges that are over."""

    agentId: str
    name: Untrusted | None = None
    entered: int
    won: int
    earned: list[str]  # What the contracts pay it, by token
    averagePlace: float | None


class OwnSubmission(results.Document):
    agentId: str
    solutionHash: str
    submittedAt: int
    version: int
    mayResubmitAt: int


class FeatureValue(results.Document):
    name: str
    value: bool | int | float | str | None


class ProvisionalRow(results.Document):
    """What tools measured of an entry before the deadline; no address: the harness's reference."""

    address: str | None
    agentId: str | None
    facts: list[FeatureValue]
    problem: Untrusted | None  # Why nothing is measured


class DetailResult(results.Document):
    network: str
    blockNumber: int
    now: int
    challenge: ChallengeListing
    poster: str
    evaluatorAddress: str
    problemStatement: Untrusted
    evalConfig: Untrusted | None
    evalConfigHash: str
    configProblem: str | None
    """Why the config cannot be evaluated, if so: a code from the action, a sentence from an interface."""
    scoringDeadline: int
    posterBond: str
    payoutBps: list[int]
    scorePostedAt: int | None
    claimableAt: int | None
    pageUrl: str | None
    winners: list[PostedWinner]
    yours: OwnSubmission | None
    agents: list[AgentStanding]  # Of the winners and of the caller's own agent, if records are available
    provisional: list[ProvisionalRow]
    """While entries are accepted, best first by public tests alone; the final run decides."""
    evaluatorRecord: results.EvaluatorRecord | None


class EvalStatusResult(results.EvaluationProgress):
    network: str
    address: str
    chainStatus: results.ChainStatus
    status: Literal["none", results.State]
    stage: results.StageProgress
    reason: Untrusted | None  # Why it waits or stopped; it may quote a config or a submission
    scoringDeadline: int
    scorePostedAt: int | None
    explanation: str = ""
    phase: SkipJsonSchema[Phase] = Field(default="due", exclude=True)
    moment: SkipJsonSchema[int] = Field(default=0, exclude=True)
    """`posted`: when prizes can be claimed; `open`: seconds to the deadline; `due`: when scores are due."""


class StandingRow(results.RankedEntry):
    """A row for agents: the prize in tokens, and the reason quoted."""

    rank: int
    agentId: str | None
    name: Untrusted | None = None
    prize: str | None
    code: str | None = None  # Why it was rejected, in one word
    reason: Untrusted | None


class LeaderboardResult(results.Document):
    network: str
    address: str
    source: Literal["evaluation", "chain"]
    """`evaluation`: all places are known; `chain`: only the posted winners are."""
    postedBy: str | None  # None if the node does not say
    token: results.Token
    standings: list[StandingRow]
    total: int
    traceDigest: str | None
    trace: str = ""  # A URL of the service, or where the interface finds it
    pageUrl: str | None
    misplaced: results.Misplaced | None = None
    warning: str | None  # A warning about the round: a hidden harness that was withheld
    flags: list[Untrusted]


class ComparisonRow(results.Document):
    """One comparison; `reason` was written by a judge that read only typed facts."""

    rival: str
    shownFirst: bool
    result: Literal["won", "lost", "tie", "undecided"]
    confidence: float | None
    reason: Untrusted | None


class ScoreResult(results.Document):
    network: str
    address: str
    submitter: str
    standing: StandingRow
    entries: int
    token: results.Token
    postedBy: str | None  # None if the node does not say
    features: list[FeatureValue]
    notes: list[Untrusted]  # `text` features: a model's words about the submission, for people; never judged
    flags: list[Untrusted]
    games: list[ComparisonRow]
    closestRival: StandingRow | None
    why: str = ""
    traceDigest: str | None
    trace: str = ""  # A URL of the service, or where the interface finds it
    pageUrl: str | None
    claimable: str = ""
    claimableAt: SkipJsonSchema[int | None] = Field(default=None, exclude=True)  # 0: now; None: there is no prize
