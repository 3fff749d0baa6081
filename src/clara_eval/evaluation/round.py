"""The inputs of an evaluation: round, scoring window, plan and rulings of reviewers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Literal

from clara_eval.config.eval_config import EvalConfig, Metadata
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.model import Submission, Version
from clara_eval.documents.results import RuledStage, RulingKind
from clara_eval.evaluation.trace import Journal
from clara_eval.judge.costs.budgets import ReadingBudget
from clara_eval.judge.reading import TokenLimits
from clara_eval.submissions.copies import Cluster, Copy, Likeness
from clara_eval.submissions.model import Rejected


@dataclass(frozen=True, slots=True)
class Round:
    run: str  # id of the evaluation; seeds the ratings
    name: str  # id at the venue; seeds the canonical order and the nonces in prompts
    beacon: str  # a hash that no submitter knew before the deadline
    metadata_bytes: bytes
    metadata: Metadata
    config_hash: str  # the commitment of the poster
    private_set_hash: str  # the commitment to a hidden harness
    winner_count: int
    payout_bps: tuple[int, ...]
    submissions: tuple[Submission, ...]
    replaced: tuple[Version, ...] = ()  # replaced versions, oldest first: they show who submitted some content first

    @property
    def config(self) -> EvalConfig:
        return self.metadata.config


SPARE_SHARE = 0.25  # of the window; when less is left, outages are no longer waited for
LAST_SHARE = 0.1  # of the window; when less is left, the result is posted
DECIDE_SHARE = 0.5  # of the window; a person has this long to decide a review, then its default is posted
RECHECK_SHARE, RECHECK_SECONDS = 0.01, 900.0  # pause before an unreadable entry is fetched again, and its maximum
SAFETY = 2.0  # providers slow down when they are busy: plan with half of the measured speed
PUBLISH_SECONDS = 120.0  # reserved for posting the result
DEFAULT_CALL_SECONDS = 6.0  # assumed duration of one call before any was measured
MIN_SECONDS = 60.0  # that the models always get
PAUSE_SHARE = 0.05  # of the window; longest pause between two attempts
MIN_PAUSE_SECONDS = 10.0
READS_PER_SUBMISSION = 3  # calls


@dataclass(frozen=True, slots=True)
class Window:
    deadline: int
    scoring_deadline: int
    chain_now: int

    @property
    def size(self) -> int:
        return self.scoring_deadline - self.deadline

    def moment_left(self, share: float) -> int:
        return int(self.scoring_deadline - share * self.size)

    @property
    def decided_until(self) -> int:
        """Moment until which a person can decide a review and unreadable entries are tried again."""
        return self.moment_left(1 - DECIDE_SHARE)

    @property
    def must_post(self) -> bool:
        """Whether an objection no longer delays posting."""
        return self.chain_now >= self.moment_left(LAST_SHARE)

    def at(self, chain_now: int) -> Window:
        return replace(self, chain_now=chain_now)

    @property
    def seconds_left(self) -> float:
        """Time for the models: until a quarter of the window is left, else a tenth, else one minute."""
        for share in (SPARE_SHARE, LAST_SHARE):
            left = self.scoring_deadline - share * self.size - self.chain_now - PUBLISH_SECONDS
            if left > MIN_SECONDS:
                return left
        return MIN_SECONDS

    @property
    def is_nearly_over(self) -> bool:
        """Whether to stop waiting for outages, so that the rest can be judged, reviewed and posted."""
        return self.scoring_deadline - self.chain_now <= SPARE_SHARE * self.size

    @property
    def longest_pause_seconds(self) -> float:
        """Longest pause between attempts: at least 20 fit into the window, and none ends after it."""
        longest = max(MIN_PAUSE_SECONDS, PAUSE_SHARE * self.size)
        return min(longest, max(1.0, (self.scoring_deadline - self.chain_now) / 2))

    @property
    def recheck_seconds(self) -> float:
        return max(MIN_PAUSE_SECONDS, min(RECHECK_SECONDS, RECHECK_SHARE * self.size))

    @property
    def is_over(self) -> bool:
        return self.chain_now > self.scoring_deadline

    @property
    def budget_seconds(self) -> float:
        """Wall-clock budget of an attempt; it ends when a tenth of the window is left."""
        return max(MIN_SECONDS, self.scoring_deadline - LAST_SHARE * self.size - self.chain_now)

    def most_comparisons(self, submissions: int, judges: int, speed: float) -> int | None:
        """Return how many comparisons fit, None if all do; always enough to connect all submissions."""
        if judges == 0 or needed_seconds(submissions, judges, speed) <= self.seconds_left:
            return None
        affordable = self.seconds_left * speed / SAFETY - submissions * READS_PER_SUBMISSION
        return max(max(1, submissions - 1) * judges, int(affordable))


def expected_speed(concurrency: int) -> float:
    """Return the calls per second to assume before any was made."""
    return concurrency / DEFAULT_CALL_SECONDS


def all_comparisons(submissions: int, judges: int) -> int:
    """Count both orders of every pair, for every judge."""
    return 2 * comb(submissions, 2) * judges


def needed_seconds(submissions: int, judges: int, speed: float) -> float:
    return SAFETY * (submissions * READS_PER_SUBMISSION + all_comparisons(submissions, judges)) / speed


def how_degraded(games: int | None, submissions: int, judges: int) -> str | None:
    """Return the label of the metric: `one_order` if every pair is still asked once, else `fewer_pairs`."""
    if games is None:
        return None
    return "one_order" if games >= all_comparisons(submissions, judges) // 2 else "fewer_pairs"


Stage = Literal["collecting", "executing", "extracting", "comparing"]
ProgressListener = Callable[[Stage, int, int], None]  # called after every step; must be cheap


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    judges: tuple[str, ...]  # as in CLARA_JUDGES; the first model also reads the submissions
    schedule: str = "auto"
    max_games: int | None = None  # limit by money and time; None is no limit
    reader: str | None = None  # the model that reads the submissions, if a person chose one; None: the jury
    tokens: TokenLimits | None = None
    """How long answers may be; None for an old plan, which never raises the limit after a cut answer."""

    reading: ReadingBudget | None = None
    """What reading the entries may cost; None if there is no cap or reading is free."""
    elo: Literal["literal"] | None = None
    """`literal`: the specification's single pass in canonical order; None: Elo without order effects."""
    jury: Literal["in-turn"] | None = None
    """`in-turn`: further judges are asked only near the paid places; None: all are asked everything."""

    @property
    def models(self) -> tuple[str, ...]:
        jury = tuple(name for name in self.judges if name != "rules")
        return jury if self.reader is None or self.reader in jury else (*jury, self.reader)

    @property
    def readers(self) -> tuple[str, ...]:
        """Models that read the submissions: the first, or the next if it cannot answer."""
        return self.models if self.reader is None else (self.reader,)


@dataclass(frozen=True, slots=True)
class Ruling:
    kind: RulingKind | Literal["default"]
    of: str  # digest of the reviewed result
    at: int
    account: Address | None = None  # the excluded one, or the original
    judge: str | None = None  # the replacement, as in CLARA_JUDGES
    stage: RuledStage | None = None
    note: str = ""
    by: str = ""  # name that the reviewer gave


RULINGS = JsonCodec(tuple[Ruling, ...])
CLOCK = "the clock"  # `by` of a ruling after the time for a decision ended


async def read_rulings(journal: Journal) -> tuple[Ruling, ...]:
    """Read all rulings of this run: by people, oldest first, then by the clock."""
    by_people, by_clock = [await journal.saved(key, RULINGS) or () for key in ("rulings", "default")]
    return (*by_people, *by_clock)


async def rule_by_clock(journal: Journal, digest: str, at: int) -> None:
    """Save that the default is posted, because no person decided until `at`."""
    ruling = Ruling("default", digest, at, note="Nobody decided in time: the default is posted.", by=CLOCK)
    await journal.keep("default", RULINGS, (ruling,))


def is_by_default(rulings: Sequence[Ruling]) -> bool:
    return any(ruling.kind == "default" for ruling in rulings)


def excluded_submissions(rulings: Sequence[Ruling], submissions: Sequence[Submission]) -> tuple[Rejected, ...]:
    notes = {r.account: r.note for r in rulings if r.kind == "exclude"}
    return tuple(
        Rejected(s, "excluded", f"A person excluded it in review: {notes[s.submitter] or 'no reason given'}.")
        for s in submissions
        if s.submitter in notes
    )


def with_original(likeness: Likeness, account: Address) -> Likeness:
    """Make `account` the original of its copies and similar works, no longer contested."""
    clusters = tuple(_make_original(cluster, account) for cluster in likeness.clusters)
    heads = {
        before.original.submission.submitter: after.original.submission.submitter
        for before, after in zip(likeness.clusters, clusters, strict=True)
    }
    families = {heads.get(member, member): heads.get(head, head) for member, head in likeness.families.items()}
    similar = []
    for pair in likeness.similar:
        earlier, later = heads.get(pair.earlier, pair.earlier), heads.get(pair.later, pair.later)
        is_about = account in {earlier, later}
        if account == later:
            earlier, later = later, earlier
        similar.append(replace(pair, earlier=earlier, later=later, contested=pair.contested and not is_about))
    return replace(likeness, clusters=clusters, families=families, similar=tuple(similar))


def _make_original(cluster: Cluster, account: Address) -> Cluster:
    copies = [replace(copy, may_be_first=False) for copy in cluster.copies]
    if account == cluster.original.submission.submitter:
        return replace(cluster, copies=tuple(copies))
    for chosen in copies:
        if chosen.solution.submission.submitter == account:
            others = (copy for copy in copies if copy is not chosen)
            return Cluster(chosen.solution, (Copy(cluster.original, chosen.kind), *others))
    return cluster


def ruled_plan(plan: EvaluationPlan, rulings: Sequence[Ruling]) -> EvaluationPlan:
    for ruling in rulings:
        if ruling.kind == "judge" and ruling.judge is not None:
            first = next(iter(plan.readers), None)
            if ruling.stage == "reading":
                plan = replace(plan, reader=ruling.judge or first)
            else:  # a new judge of the comparisons does not also read the submissions
                plan = replace(plan, reader=first, judges=(ruling.judge,))
    return plan
