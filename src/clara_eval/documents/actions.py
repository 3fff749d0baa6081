"""The answers of every action as JSON documents, with camelCase keys: what `--json` prints and what the tools return.

Typed so that a schema can be published for each. Amounts in base units are strings, because JSON numbers are not exact;
moments are unix seconds. Words of strangers appear only as `Untrusted`.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from clara_eval.chain.posted import PostedBy
from clara_eval.core.untrusted import Untrusted
from clara_eval.documents.results import ChainStatus, State

EvalStatus = Literal["none", State]


class TokenDocument(TypedDict):
    address: str
    symbol: str
    decimals: int


class UnsignedTransaction(TypedDict):
    """Sign and send it with any wallet; in the given order."""

    chainId: int
    to: str
    data: str
    value: str
    gas: int | None
    description: str


class SentTransaction(TypedDict):
    hash: str
    blockNumber: int
    gasUsed: int
    explorerUrl: str | None
    description: str


class ActionFacts(TypedDict):
    """What a writing action did, or would do."""

    action: str
    outcome: Literal["unsigned", "needs_confirmation", "declined", "sent"]
    network: str
    chainId: int
    sender: str | None
    challenge: str | None
    explorerUrl: str | None
    pageUrl: str | None
    """The challenge's page at the service of CLARA_API_URL."""
    summary: str
    transactions: list[UnsignedTransaction]
    """Still to be signed and sent; empty when they were sent."""
    sent: list[SentTransaction]
    warnings: list[str]


class Acted(ActionFacts):
    """With the details of its action: `PostDetails`, `SubmitDetails` or `ClaimDetails`."""

    details: dict[str, object]


class ActResult(Acted):
    next: str


class Written(ActionFacts):
    next: str


class PostDetails(TypedDict):
    evaluator: str
    evaluatorKind: Literal["clara", "self"]
    token: TokenDocument
    prizePool: str
    posterBond: str
    fee: str
    feeMode: Literal["platform", "prize_pool", "poster"]
    total: str
    quoteUsd: float | None
    """What the evaluation is expected to cost; null when a judge has no known price."""
    deadline: int
    scoringDeadline: int
    winnerCount: int
    payoutBps: list[int]
    evalConfigHash: str
    challengeURI: str


class SubmitDetails(TypedDict):
    agentId: str | None
    solutionURI: str | None
    solutionHash: str | None
    deadline: int


class ClaimDetails(TypedDict):
    kind: Literal["prize", "expired_refund"]
    amount: str
    amountShown: str
    rank: int | None


class PostResult(Written):
    details: PostDetails


class SubmitResult(Written):
    details: SubmitDetails


class ClaimResult(Written):
    details: ClaimDetails


class ChallengeListing(TypedDict):
    address: str
    title: Untrusted
    skills: list[Untrusted]
    status: ChainStatus
    acceptsSubmissions: bool
    evaluator: Literal["clara", "self", "other"]
    token: TokenDocument
    prizePool: str
    prize: str
    winnerCount: int
    submissionCount: int
    maxParticipants: int
    deadline: int
    secondsLeft: int
    explorerUrl: str | None


class BrowseResult(TypedDict):
    network: str
    blockNumber: int
    total: int
    """Challenges of this factory, before filters."""
    challenges: list[ChallengeListing]
    nextOffset: int | None


class PostedWinner(TypedDict):
    rank: int
    address: str
    agentId: str
    score: int
    prizeAmount: str
    prize: str


class AgentStanding(TypedDict):
    """An agent's record across the challenges that are over."""

    agentId: str
    entered: int
    won: int
    earned: list[str]
    """What the contracts pay it, by token."""
    averagePlace: float | None


class OwnSubmission(TypedDict):
    agentId: str
    solutionHash: str
    submittedAt: int
    version: int
    mayResubmitAt: int


class DetailResult(TypedDict):
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
    """Why the config cannot be used: such a challenge is never evaluated. Actions give a code, interfaces a sentence."""
    scoringDeadline: int
    posterBond: str
    payoutBps: list[int]
    scorePostedAt: int | None
    claimableAt: int | None
    pageUrl: str | None
    winners: list[PostedWinner]
    yours: OwnSubmission | None
    agents: list[AgentStanding]
    """Of the winners, and of the caller's own agent, where records are at hand."""


class Progress(TypedDict):
    stage: str | None
    done: int | None
    total: int | None
    calls: int | None
    costUsd: float | None
    secondsLeft: float | None


class StatusFacts(TypedDict):
    network: str
    address: str
    chainStatus: ChainStatus
    status: EvalStatus
    progress: int
    stage: Progress
    reason: Untrusted | None
    """Why it waits or stopped; it may quote a config or a submission."""
    warning: str | None
    """What everybody should know about the round: a hidden harness that was withheld."""
    startedAt: int | None
    updatedAt: int | None
    retryAt: int | None
    objectionsUntil: int | None
    """The result is announced: its submitters may object until then (challenge_object)."""
    scoringDeadline: int
    scorePostedAt: int | None


class StatusFound(StatusFacts):
    phase: Literal["cancelled", "expired", "final", "posted", "open", "due"]
    moment: int
    """`posted`: when prizes can be claimed; `open`: seconds to the deadline; `due`: when scores have to be posted."""


class EvalStatusResult(StatusFacts):
    explanation: str


class ExecutedRow(TypedDict):
    """What running a submission under the round's harness measured; null where it could not be run."""

    outcome: str
    testsPassed: int | None
    tests: int | None
    gas: int | None
    fuel: int | None
    metrics: dict[str, int | float | None]


class LeaderboardRow(TypedDict):
    address: str
    agentId: str | None
    rank: int
    score: int | None
    elo: float | None
    low: float | None
    high: float | None
    pTop: float | None
    wins: float | None
    losses: float | None
    ties: float | None
    tiedWith: list[str]
    prizeAmount: str | None
    prize: str | None
    status: Literal["ranked", "rejected", "unknown"]
    reason: Untrusted | None
    executed: ExecutedRow | None
    """None where the round runs nothing."""


class LeaderboardFacts(TypedDict):
    network: str
    address: str
    source: Literal["evaluation", "chain"]
    """`evaluation`: everybody's place; `chain`: only the posted winners are known here."""
    postedBy: PostedBy | None
    """None where the node does not tell."""
    token: TokenDocument
    standings: list[LeaderboardRow]
    total: int
    traceDigest: str | None
    pageUrl: str | None
    warning: str | None
    """What everybody should know about the round: a hidden harness that was withheld."""
    flags: list[Untrusted]


class LeaderboardFound(LeaderboardFacts):
    traceUrl: str | None
    """At the service; None if the trace is in the store here."""


class LeaderboardResult(LeaderboardFacts):
    trace: str


class ComparisonRow(TypedDict):
    """One comparison; `reason` was written by a judge that read only typed facts."""

    rival: str
    shownFirst: bool
    result: Literal["won", "lost", "tie", "undecided"]
    confidence: float | None
    reason: Untrusted | None


class FeatureValue(TypedDict):
    name: str
    value: bool | int | float | str | None


class ScoreFacts(TypedDict):
    network: str
    address: str
    submitter: str
    standing: LeaderboardRow
    entries: int
    token: TokenDocument
    postedBy: PostedBy | None
    """None where the node does not tell."""
    features: list[FeatureValue]
    notes: list[Untrusted]
    """`text` features: a model's words about the submission, for people; never judged."""
    flags: list[Untrusted]
    games: list[ComparisonRow]
    closestRival: LeaderboardRow | None
    traceDigest: str | None
    pageUrl: str | None


class ScoreFound(ScoreFacts):
    traceUrl: str | None
    claimableAt: int | None
    """0: now; None: there is no prize."""


class ScoreResult(ScoreFacts):
    why: str
    trace: str
    claimable: str
