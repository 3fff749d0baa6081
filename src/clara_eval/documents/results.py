"""The public documents of challenges, evaluations and agents, as they are stored and shown.

Invariant: unknown fields are kept; a wrong shape is a ValueError; amounts are decimal strings in base units.
"""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from clara_eval.core.model import HARNESS_WITHHELD, Flag

State = Literal[
    "pending", "extracting", "comparing", "publishing", "complete", "review", "deferred", "failed", "unscorable",
    "elsewhere",
]  # fmt: skip
STATES: tuple[State, ...] = get_args(State)
STOPPED_STATES: frozenset[State] = frozenset(("failed", "unscorable"))
"""Ended without a result: only a request starts the evaluation again."""
FINAL_STATES: frozenset[State] = STOPPED_STATES | {"complete", "elsewhere"}
MEANINGS: Mapping[State, str] = {
    "pending": "The evaluation waits for its turn.",
    "extracting": "The submissions are being read.",
    "comparing": "The submissions are being compared, pair by pair.",
    "publishing": "The result is being posted on chain.",
    "complete": "The evaluation is finished.",
    "review": "A person looks at the result before it is posted.",
    "deferred": "A budget cap is reached; the evaluation waits.",
    "failed": "The evaluation could not be done; the poster may post scores.",
    "unscorable": "No result can be posted: one submitter means a refund to the poster; fewer submitters than winners, "
    "equal shares after the scoring deadline.",
    "elsewhere": "This service does not evaluate the challenge.",
}
REJECTED_IN_REVIEW = "The result was rejected in review"  # The start of the reason of such a failed evaluation
Value = bool | int | float | str | None
Outcome = Literal["won", "lost", "tie", "undecided"]
ChainStatus = Literal["open", "scoring", "finalized", "cancelled", "expired"]
ReviewState = Literal["waiting", "approved", "rejected", "lapsed"]
"""`lapsed`: no decision in time, and the default is posted."""
RulingKind = Literal["exclude", "original", "judge"]
RuledStage = Literal["reading", "comparing"]
_NAME = "What the agent calls itself in its on-chain card, at most 40 characters: never proof of who it is."


def example(**fields: JsonValue) -> ConfigDict:
    """Return the configuration of a model with an example of it."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Document(BaseModel):
    model_config = ConfigDict(extra="allow")


D = TypeVar("D", bound=Document)


class Values(Protocol):
    async def get(self, chain_id: int, key: str) -> str | None: ...


async def read(values: Values, chain_id: int, kind: type[D], key: str) -> D | None:
    text = await values.get(chain_id, key)
    return kind.model_validate_json(text) if text else None


class StageProgress(Document):
    name: str | None = None
    done: int | None = None
    total: int | None = None
    calls: int | None = None
    costUsd: float | None = None
    callsPerSecond: float | None = None
    secondsLeft: float | None = None


class EvaluationProgress(Document):
    """How far an evaluation is, and how long it waits."""

    progress: int = Field(ge=0, le=100)
    startedAt: int | None = None
    updatedAt: int | None = None
    retryAt: int | None = None
    postedBy: str | None = None
    stage: StageProgress | None = None
    objectionsUntil: int | None = Field(
        default=None, description="The result is announced; its submitters may object until then, by the chain's clock."
    )
    postsAt: int | None = Field(
        default=None,
        description="A person may decide until then, by the chain's clock; then the result is posted automatically.",
    )
    warning: str | None = Field(
        default=None, description="A warning about the round: a hidden harness that was withheld."
    )
    estimateUsd: float | None = Field(
        default=None,
        description="The expected cost of model calls; null before it starts, or if no price is known.",
    )


class EvalStatus(EvaluationProgress):
    """`eval-status`: the state of an evaluation, and the reason if it waits or stopped."""

    model_config = example(
        status="comparing", progress=62, startedAt=1790000000, updatedAt=1790000040, reason=None, retryAt=None,
        stage={"name": "comparing", "calls": 310, "done": 186, "total": 300, "costUsd": 1.92, "secondsLeft": 40},
    )  # fmt: skip

    status: State
    reason: str | None = None


class Features(Document):
    """`features:{submitter}`: the typed facts by which a submission was judged."""

    features: dict[str, Value]
    extractedAt: int | None = None
    text: dict[str, str] = {}
    measured: dict[str, Value] = {}
    claimed: dict[str, Value] = {}
    secondView: str = "none"
    unsupported: list[str] = []
    flags: list[Flag] = []
    requests: list[str] = []


class Vote(Document):
    """One judge's verdict; `A` is the entry shown first."""

    judge: str
    winner: Literal["A", "B", "tie"] | None
    confidence: float | None
    reason: str


class Pairwise(Document):
    """`pairwise:{a}:{b}`: `winner` is `A` for {a}, shown first, `B` for {b}, or null without a verdict."""

    winner: Literal["A", "B", "tie"] | None
    confidence: float | None
    reason: str
    votes: list[Vote] = []

    def outcome(self, *, shown_first: bool) -> Outcome:
        """Return the outcome for the entry that was shown first, or for the other."""
        own, other = ("A", "B") if shown_first else ("B", "A")
        results: dict[str | None, Outcome] = {own: "won", other: "lost", "tie": "tie"}
        return results.get(self.winner, "undecided")


Played = dict[tuple[str, str], Pairwise]  # Comparisons by (shown first, shown second)


class Token(Document):
    address: str
    symbol: str
    decimals: int
    isKnown: bool = Field(True, description="Whether the token reports its decimals; otherwise amounts are base units.")


class ExecutedRun(Document):
    """What running one submission under the round's harness measured."""

    outcome: str = Field(description="`passed`, `failed`, or the limit or fault that ended it, such as `out_of_gas`.")
    testsPassed: int | None = Field(
        None, description="Null if nothing could be run, such as code that fails to compile."
    )
    tests: int | None = Field(None, description="How many tests were run.")
    gas: int | None = Field(None, description="Total of all functions of the harness, in Solidity.")
    fuel: int | None = Field(None, description="Total of all functions of the harness, in JavaScript and Python.")
    metrics: dict[str, int | float | None] = Field({}, description="What each `metric_…` function returned.")
    failed: dict[str, str] = Field({}, description="How the first 20 functions ended that did not pass, by name.")


class RankedEntry(Document):
    """A place on a leaderboard; without an evaluation here, only what the chain says is known."""

    address: str
    score: int | None = Field(default=None, description="0 to 10000, as on chain.")
    elo: float | None = None
    rank: int | None = None
    low: float | None = None
    high: float | None = None
    pTop: float | None = None
    rankLow: int | None = Field(default=None, description="Best place that is likely (5 %).")
    rankHigh: int | None = Field(default=None, description="Worst place that is likely (95 %).")
    wins: float | None = None
    losses: float | None = None
    ties: float | None = None
    tiedWith: list[str] = Field(
        default=[], description="Others with exactly this rating; the earlier submission is first."
    )
    prizeAmount: str | None = None
    status: str | None = None
    executed: ExecutedRun | None = Field(default=None, description="Null if the round runs nothing.")

    @property
    def is_ranked(self) -> bool:
        return self.status != "rejected"

    @property
    def is_paid(self) -> bool:
        return int(self.prizeAmount or 0) > 0


class LeaderboardRow(RankedEntry):
    """A row of the `scores` document."""

    agentId: int | None = None
    name: str = Field(default="", description=_NAME)
    code: str | None = None
    reason: str | None = None


class Winner(Document):
    account: str
    prizeAmount: str
    agentId: int | None = None
    score: int | None = None


class Margin(Document):
    """How sure the last paid place is, in a number, a word and a sentence."""

    place: int
    probability: float
    word: str
    sentence: str
    item: str | None = None
    nextItem: str | None = None
    setChance: float | None = Field(None, description="The chance that those down to this place are the true best.")
    tied: bool = False

    @property
    def sure(self) -> float:
        """Return the chance that the winners are right; in old documents, that the last beats the next."""
        return self.probability if self.setChance is None else self.setChance


class Misplaced(Document):
    """The part of the prize expected at wrong addresses, by the judges that compared."""

    share: float
    usd: float | None = Field(None, description="In dollars; null if the worth of the prize is not known.")
    decidingVerdicts: int | None = Field(None, description="The fewest verdicts whose reversal pays others, up to 12.")
    calibration: str = Field("", description="How far the judges agree with people, or that this is not known.")
    sentence: str


class Asked(Document):
    """What the poster asked for, in untrusted words that must be escaped to be shown."""

    title: str
    criteria: str


class JudgeConsistency(Document):
    judge: str
    games: int = 0
    firstShare: float | None = Field(None, description="How often the entry shown first won.")
    agreement: float | None = Field(None, description="With the other judges, on the same questions.")
    compared: int = 0
    positionBias: float | None = Field(None, description="Its lean to the entry shown first, in logits.")
    positionBiasSd: float | None = None


class Consistency(Document):
    """How far the verdicts agree with one another; a share is null if nothing could be compared."""

    swapConsistency: float | None = None
    swaps: int = 0
    cycles: int = 0
    decidedTriples: int = 0
    cyclicShare: float | None = Field(None, description="Cycles among the triples in which every pair is decided.")
    coverage: float | None = None
    judges: list[JudgeConsistency] = []
    groups: int = Field(1, description="Parts of the field that no comparison joins; 1 is one whole field.")
    unplayed: list[str] = Field([], description="Entries without a verdict.")
    pivotalItems: list[str] | None = Field(None, description="Entries without whom others would be paid.")
    pivotalClusters: list[str] = []


class Scores(Document):
    """`scores`: the ranking with its uncertainty, the winners, and the digest of the trace."""

    rankings: list[LeaderboardRow]
    publishedAt: int | None = Field(None, description="When the scores were posted; null before.")
    winners: list[Winner] = Field(
        [], description="The winners by this evaluation, even if another party posted and paid others."
    )
    misplaced: Misplaced | None = Field(None, description="How much of the prize may be at wrong addresses.")
    margin: Margin | None = None
    consistency: Consistency | None = None
    orderedBy: str | None = None
    schedule: dict[str, object] | None = None
    asked: Asked | None = Field(None, description="What the poster asked for; null if nothing was evaluated here.")
    judges: list[str] = Field([], description="Who compared: `rules`, or the names of models.")
    flags: list[Flag] = []
    token: Token | None = None
    prizePool: str | None = None
    traceDigest: str | None = None
    traceCid: str | None = Field(
        None, description="The CID under which the trace is pinned at IPFS; null if it is not."
    )
    txHash: str | None = None
    postedBy: str | None = Field(None, description="`evaluator`, `poster` or `other`; null before.")
    outcome: str | None = None
    blockNumber: int | None = None

    @property
    def ranked(self) -> list[LeaderboardRow]:
        return [row for row in self.rankings if row.is_ranked]

    @property
    def paid_count(self) -> int:
        return sum(row.is_paid for row in self.rankings)

    @property
    def warning(self) -> str | None:
        """Return the warning about a hidden harness that was withheld, if there is one."""
        return next((flag.sentence for flag in self.flags if flag.code == HARNESS_WITHHELD), None)

    @property
    def is_posted(self) -> bool:
        """Return whether scores are on chain, and so public, even if another party posted them."""
        return bool(self.publishedAt) or self.postedBy is not None


class FeatureRule(Document):
    """A feature by which entries will be judged."""

    name: str
    weight: float = Field(description="Its share of all weight, 0 to 1.")
    better: str | None = Field(None, description="`higher`, `lower`, or null: the judge decides by the criteria.")
    source: str = Field(description="How it is known: `measured`, `executed` or `llm`.")


class JudgingRules(Document):
    """The rules of a round, from the poster's eval config."""

    criteria: str
    features: list[FeatureRule]
    language: str | None = None
    submissionFormat: str | None = None
    harness: str | None = Field(None, description="The language of the harness that runs every entry.")
    hiddenHarness: bool = Field(False, description="The harness is revealed after the deadline.")
    harnessSource: str | None = Field(None, description="Of a public harness; only in the detail of one challenge.")
    harnessHash: str | None = Field(None, description="keccak256 that a hidden harness was committed by.")
    ifNotRevealed: str | None = Field(None, description="`public` or `fail`: what counts if a hidden one is withheld.")
    maxBytes: int | None = Field(None, description="The longest submission that is read.")


class ProvisionalEntry(Document):
    """What tools measured of an entry before the deadline; no address: the harness's reference."""

    address: str | None = None
    agentId: int | None = None
    hash: str = Field(description="Of the submission's address: what was measured once is not measured again.")
    facts: dict[str, Value] = {}
    problem: str = ""  # Why nothing is measured


class ProvisionalBoard(Document):
    """Entries by measured and executed facts, from public tests alone; the final run decides."""

    at: int = Field(description="The chain's time at which the entries were read.")
    entries: list[ProvisionalEntry]


class Summary(Document):
    """`challenge-index:{address}`: what the contract says about a challenge."""

    address: str
    chainId: int
    title: str
    problemStatement: str
    skills: list[str] = []
    poster: str
    evaluator: str
    token: Token
    prizePool: str = Field(description="Base units of the token.")
    winnerCount: int
    payoutBps: list[int]
    deadline: int
    scoringDeadline: int
    submissionCount: int
    rules: JudgingRules | None = Field(
        default=None, description="Null if the metadata is not inline, or cannot be used."
    )
    chainStatus: ChainStatus
    scorePostedAt: int | None = None
    postedBy: str | None = Field(None, description="`evaluator`, `poster` or `other`.")
    block: int


class EvaluatorRecord(Document):
    """What an evaluator did in the challenges known here."""

    posted: int = Field(description="Scores that it posted.")
    late: int = Field(description="Of these, after the scoring deadline.")
    upheld: int = Field(description="Announced results that objections changed before the post.")
    overridden: int = Field(description="Challenges whose poster posted instead.")
    expired: int = Field(description="Challenges with entries that expired without scores.")


class Entrant(Document):
    agentId: int
    address: str
    name: str = Field(default="", description=_NAME)


class PaidWinner(Document):
    """A winner, as the contract stores it."""

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
    isOver: bool = Field(False, description="Whether nothing of it can change any more.")


class AgentEntry(Document):
    """One challenge that an agent entered."""

    challenge: str
    title: str = ""
    name: str = Field(default="", description=_NAME)
    chainStatus: str
    submitter: str | None = None
    deadline: int | None = None
    place: int | None = Field(None, description="Null if nothing is posted, it was not ranked, or it is not known.")
    entrants: int
    ranked: int | None = Field(None, description="Entries that have a place; null if only the paid ones are known.")
    rejected: bool = Field(False, description="Entered and not ranked: a copy, not readable, or excluded.")
    score: int | None = None
    prizeAmount: str | None = None
    token: Token


class Earned(Document):
    token: Token
    amount: str = Field(description="Base units of the token.")


class AgentTotals(Document):
    """How often an agent entered and was paid in the challenges known here."""

    agentId: int
    address: str | None = Field(default=None, description="An address that submitted for the agent.")
    name: str = Field(default="", description=_NAME)
    entered: int = 0
    won: int = Field(default=0, description="Paid places.")
    earned: list[Earned] = Field(default=[], description="By token, what the contracts pay.")


class AgentRecord(AgentTotals):
    """What an agent did in the challenges known here."""

    averagePlace: float | None = Field(description="Over the challenges in which its place is known.")
    placed: int = Field(description="In how many challenges its place is known.")
    challenges: list[AgentEntry] = Field(description="The latest deadline first.")


class Created(Document):
    """The creation of a challenge, as the factory announced it."""

    at: int | None = Field(None, description="The time of its block; null if no node had it.")
    txHash: str
    block: int


class Claim(Document):
    """A prize that was claimed."""

    address: str
    amount: str = Field(description="Base units of the token.")
    at: int | None = None
    txHash: str


class PrizeClaims(Document):
    """The prizes claimed so far, in order, and the number of winners."""

    claims: list[Claim] = Field(default_factory=list)
    winners: int
