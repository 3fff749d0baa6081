"""A round, the window in which it is scored, its plan, and what a person ruled about it; later rulings count."""

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
    run: str  # the id of the evaluation: the seed of the intervals
    name: str  # what the venue calls it: the seed of the order of the entries and of the nonces in prompts
    beacon: str  # A hash that no submitter knew before the deadline
    metadata_bytes: bytes
    metadata: Metadata
    config_hash: str  # what the poster committed to
    private_set_hash: str  # the commitment to a hidden harness
    winner_count: int
    payout_bps: tuple[int, ...]
    submissions: tuple[Submission, ...]
    replaced: tuple[Version, ...] = ()
    """Versions that were replaced, oldest first: they tell who had some content first."""

    @property
    def config(self) -> EvalConfig:
        return self.metadata.config


SPARE_SHARE = 0.25
LAST_SHARE = 0.1
DECIDE_SHARE = 0.5  # A person has this share of the window to decide a review; then its default is posted
RECHECK_SHARE, RECHECK_SECONDS = 0.01, 900.0
"""Pause before an entry that could not be read is tried again; the second is the longest."""
SAFETY = 2.0  # speeds fall when providers are busy: plan with half of what was seen
PUBLISH_SECONDS = 120.0
DEFAULT_CALL_SECONDS = 6.0
LEAST_SECONDS = 60.0
PAUSE_SHARE = 0.05
LEAST_PAUSE_SECONDS = 10.0
READS_PER_SUBMISSION = 3


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
        """The moment from which on nothing that could not be read is tried again."""
        return self.moment_left(1 - DECIDE_SHARE)

    @property
    def must_post(self) -> bool:
        """Whether nobody is waited for any more because of an objection."""
        return self.chain_now >= self.moment_left(LAST_SHARE)

    def at(self, chain_now: int) -> Window:
        return replace(self, chain_now=chain_now)

    @property
    def seconds_left(self) -> float:
        """For the models: until a quarter of the window is left, else a tenth, else a minute."""
        for share in (SPARE_SHARE, LAST_SHARE):
            left = self.scoring_deadline - share * self.size - self.chain_now - PUBLISH_SECONDS
            if left > LEAST_SECONDS:
                return left
        return LEAST_SECONDS

    @property
    def is_nearly_over(self) -> bool:
        """Whether outages are waited for no longer, so that the rest can be judged, reviewed and posted."""
        return self.scoring_deadline - self.chain_now <= SPARE_SHARE * self.size

    @property
    def longest_pause_seconds(self) -> float:
        """Between two attempts: at least twenty fit into the window, and none is planned past its end."""
        longest = max(LEAST_PAUSE_SECONDS, PAUSE_SHARE * self.size)
        return min(longest, max(1.0, (self.scoring_deadline - self.chain_now) / 2))

    @property
    def recheck_seconds(self) -> float:
        return max(LEAST_PAUSE_SECONDS, min(RECHECK_SECONDS, RECHECK_SHARE * self.size))

    @property
    def is_over(self) -> bool:
        return self.chain_now > self.scoring_deadline

    @property
    def budget_seconds(self) -> float:
        """The one wall-clock budget of an attempt: it ends a tenth of the window before the scoring deadline."""
        return max(LEAST_SECONDS, self.scoring_deadline - LAST_SHARE * self.size - self.chain_now)

    def most_comparisons(self, submissions: int, judges: int, speed: float) -> int | None:
        """The most games that fit, or None if all do; always enough for a chain through all submissions."""
        if judges == 0 or needed_seconds(submissions, judges, speed) <= self.seconds_left:
            return None
        affordable = self.seconds_left * speed / SAFETY - submissions * READS_PER_SUBMISSION
        return max(max(1, submissions - 1) * judges, int(affordable))


def expected_speed(concurrency: int) -> float:
    """Calls a second, before any was made."""
    return concurrency / DEFAULT_CALL_SECONDS


def all_comparisons(submissions: int, judges: int) -> int:
    """Both orders of every pair, by every judge."""
    return 2 * comb(submissions, 2) * judges


def needed_seconds(submissions: int, judges: int, speed: float) -> float:
    return SAFETY * (submissions * READS_PER_SUBMISSION + all_comparisons(submissions, judges)) / speed


def how_degraded(games: int | None, submissions: int, judges: int) -> str | None:
    """For the metric: `one_order` if every pair is still asked once, `fewer_pairs` below that."""
    if games is None:
        return None
    return "one_order" if games >= all_comparisons(submissions, judges) // 2 else "fewer_pairs"


Stage = Literal["collecting", "executing", "extracting", "comparing"]
ProgressListener = Callable[[Stage, int, int], None]  # called after every step; must be cheap


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    judges: tuple[str, ...]  # as in CLARA_JUDGES; the first model among them also reads the submissions
    schedule: str = "auto"
    max_games: int | None = None  # what money and time allow; None is no limit
    reader: str | None = None  # who reads the submissions, where a person ruled so; None is the models of the jury
    tokens: TokenLimits | None = None
    """How long answers may be; None for a round planned before limits grew: a cut answer is asked for as it was."""

    reading: ReadingBudget | None = None
    """What reading the entries may cost; None if there is no cap, or nothing that costs."""
    elo: Literal["literal"] | None = None
    """The specification's single pass over the pairs in canonical order; None is the order-free Elo."""
    jury: Literal["in-turn"] | None = None
    """The judges after the first are asked near the money only; None asks all of them everything."""

    @property
    def models(self) -> tuple[str, ...]:
        jury = tuple(name for name in self.judges if name != "rules")
        return jury if self.reader is None or self.reader in jury else (*jury, self.reader)

    @property
    def readers(self) -> tuple[str, ...]:
        """The models that read the submissions: the first, then the next if it cannot answer."""
        return self.models if self.reader is None else (self.reader,)


@dataclass(frozen=True, slots=True)
class Ruling:
    kind: RulingKind | Literal["default"]
    of: str  # the digest of the result that the person looked at
    at: int
    account: Address | None = None  # who is excluded, or who is the original
    judge: str | None = None  # who is asked instead, as in CLARA_JUDGES
    stage: RuledStage | None = None
    note: str = ""
    by: str = ""  # who ruled, as they called themselves


RULINGS = JsonCodec(tuple[Ruling, ...])
CLOCK = "the clock"  # who ruled, when the time for a decision was over


async def read_rulings(journal: Journal) -> tuple[Ruling, ...]:
    """Everything that was ruled about this run: by people, oldest first, then by the clock."""
    by_people, by_clock = [await journal.saved(key, RULINGS) or () for key in ("rulings", "default")]
    return (*by_people, *by_clock)


async def rule_by_clock(journal: Journal, digest: str, at: int) -> None:
    """Keep that the default is posted, because nobody decided about this result until this moment."""
    ruling = Ruling("default", digest, at, note="Nobody decided in time: the default is posted.", by=CLOCK)
    await journal.keep("default", RULINGS, (ruling,))


def is_by_default(rulings: Sequence[Ruling]) -> bool:
    return any(ruling.kind == "default" for ruling in rulings)


def excluded(rulings: Sequence[Ruling], submissions: Sequence[Submission]) -> tuple[Rejected, ...]:
    words = {r.account: r.note for r in rulings if r.kind == "exclude"}
    return tuple(
        Rejected(s, "excluded", f"A person excluded it in review: {words[s.submitter] or 'no reason given'}.")
        for s in submissions
        if s.submitter in words
    )


def with_original(likeness: Likeness, account: Address) -> Likeness:
    """Copies and similar work with the author that a person named; what somebody decided is contested no more."""
    clusters = tuple(_headed_by(cluster, account) for cluster in likeness.clusters)
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


def _headed_by(cluster: Cluster, account: Address) -> Cluster:
    settled = [replace(copy, may_be_first=False) for copy in cluster.copies]
    if account == cluster.original.submission.submitter:
        return replace(cluster, copies=tuple(settled))
    for chosen in settled:
        if chosen.solution.submission.submitter == account:
            others = (copy for copy in settled if copy is not chosen)
            return Cluster(chosen.solution, (Copy(cluster.original, chosen.kind), *others))
    return cluster


def ruled_plan(plan: EvaluationPlan, rulings: Sequence[Ruling]) -> EvaluationPlan:
    for ruling in rulings:
        if ruling.kind == "judge" and ruling.judge is not None:
            first = next(iter(plan.readers), None)
            if ruling.stage == "reading":
                plan = replace(plan, reader=ruling.judge or first)
            else:  # another judge for the games does not read the submissions as well
                plan = replace(plan, reader=first, judges=(ruling.judge,))
    return plan
