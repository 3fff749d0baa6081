"""The walk: from a pinned challenge to winners and calldata, through every room, with no logic of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from clara_eval.chain.calldata import post_scores
from clara_eval.chain.model import Challenge
from clara_eval.chain.winners import Placed, Winners, check_scorable, choose_winners
from clara_eval.config.eval_config import (
    FeatureSchema,
    Metadata,
    compile_schema,
    read_metadata,
    with_types,
)
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.flags import Flag
from clara_eval.core.gather import gather_or_raise
from clara_eval.core.submission import Submission
from clara_eval.evaluation.answer_recorder import KeptAnswers
from clara_eval.evaluation.evaluable import unevaluable
from clara_eval.evaluation.execution import Execution, run_all
from clara_eval.evaluation.features import SubmissionFacts, extract_features
from clara_eval.evaluation.features.extract import ReadingContext, prompts_for
from clara_eval.evaluation.features.field import compare_field
from clara_eval.evaluation.harness import choose_harness
from clara_eval.evaluation.objections import Disputed
from clara_eval.evaluation.plan import EvaluationPlan, ProgressListener
from clara_eval.evaluation.play import Comparison, play_tournament
from clara_eval.evaluation.review_defaults import gave_way_flags, giving_way, place
from clara_eval.evaluation.review_rules import JudgedRound, round_flags
from clara_eval.evaluation.ruled import RuledComparisons, judge_by_rules
from clara_eval.evaluation.rulings import (
    Ruling,
    excluded,
    is_by_default,
    ruled_plan,
    with_originals,
)
from clara_eval.evaluation.sources import Received, Sources, judge_received
from clara_eval.judge import (
    Judge,
    JudgeVector,
    ModelJudge,
    RulesJudge,
    prompt_files,
    type_names,
)
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.costs.reading import ReadingBudget, next_to_read
from clara_eval.judge.ordering import OrderingJudge
from clara_eval.judge.port import PaidAnswer, Prompt
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.ranking import Ranking, Schedule, Tally, canonical_order, choose_schedule, rank, tally
from clara_eval.submissions import (
    Cluster,
    Likeness,
    Rejected,
    Solution,
    find_likeness,
)

READ_AT_ONCE = 16
SHOWN = 3


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """One submission with what came for it and what became of it."""

    submission: Submission
    received: Received
    verdict: Solution | Rejected


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    metadata_bytes: bytes
    metadata: Metadata
    schema: FeatureSchema
    typed_by_model: tuple[str, ...]
    prompts: dict[str, dict[str, str]]
    rulings: tuple[Ruling, ...]
    disputed: Disputed | None
    """What submitters objected to before this result."""
    pieces: tuple[SubmissionResult, ...]
    likeness: Likeness
    rejected: tuple[Rejected, ...]
    execution: Execution | None
    """None where nothing was to be run."""
    features: dict[Address, SubmissionFacts]
    answers: Mapping[str, PaidAnswer]
    """Read one at a time: what models said lies in a file."""
    unanswered: dict[str, str]
    key_reports: tuple[KeyReport, ...]
    """The attestation of every key that signed an answer."""
    schedule: str
    schedule_reason: str
    comparisons: Sequence[Comparison]
    ranking: Ranking | None
    """None when every submission was rejected."""
    placed: tuple[Placed, ...]
    behind_by_default: Mapping[Address, str]
    """Who gives way if nobody decides, each with the code of the flag."""
    flags: tuple[Flag, ...]
    winners: Winners
    calldata: bytes
    """`postScores` as the contract decodes it; the digest of the trace is appended when it is sent."""


async def walk(
    challenge: Challenge, plan: EvaluationPlan, sources: Sources, listener: ProgressListener
) -> EvaluationResult:
    """Walk every room once; what a person ruled about the judges is applied to the plan here."""
    check_scorable(challenge)
    metadata_bytes = await sources.metadata(challenge)
    metadata = read_metadata(metadata_bytes, challenge.eval_config_hash)
    kept = KeptAnswers()
    log = AnswerLog(kept.keep, sources.unanswered)
    plan = ruled_plan(plan, await sources.rulings())
    others = tuple(sources.reader((name,)) for name in plan.readers[1:])
    reader = StructuredLlm(sources.reader(plan.readers), plan.tokens, others, log) if plan.readers else None
    schema, typed_by_model = await _schema(metadata, reader)
    rulings, pieces, likeness, refused, ranked = await _entries(challenge, metadata, sources, listener)
    chosen = choose_harness(challenge, metadata.config, await sources.reveal())
    execution = await run_all(
        sources, chosen, metadata.config, schema, ranked, lambda done, total: listener("executing", done, total)
    )
    context = ReadingContext(
        challenge.address,
        challenge.block.hash,
        metadata.config.language,
        sources.gives_up,
        metadata.problem_statement,
        chosen.harness if chosen else None,
    )
    read = await _read(_Reader(reader, plan.reading), context, schema, ranked, listener, execution)
    features = compare_field(schema, read, challenge.winner_count)
    rejected = _in_order([*refused, *unevaluable(ranked, features)])
    jury = _Jury(plan, metadata, schema, sources, log)
    schedule, comparisons, ranking = await _tournament(challenge, jury, ranked, rejected, features, likeness, listener)
    by_default = is_by_default(rulings)
    found = JudgedRound(challenge, ranking, (), rejected, ranked, likeness, features, comparisons, chosen)
    behind = giving_way(found)
    placed = place(ranking, rejected, behind, by_default=True) if by_default else place(ranking, rejected)
    winners = choose_winners(challenge, placed)
    return EvaluationResult(
        metadata_bytes=metadata_bytes,
        metadata=metadata,
        schema=schema,
        typed_by_model=typed_by_model,
        prompts=prompt_files(),
        rulings=rulings,
        disputed=await sources.disputed(challenge),
        pieces=pieces,
        likeness=likeness,
        rejected=rejected,
        execution=execution,
        features=features,
        answers=kept,
        unanswered=log.unanswered,
        key_reports=await _key_reports(sources, kept),
        schedule=schedule.name,
        schedule_reason=schedule.reason,
        comparisons=comparisons,
        ranking=ranking,
        placed=placed,
        flags=(*round_flags(replace(found, placed=placed)), *(gave_way_flags(behind) if by_default else ())),
        behind_by_default=behind,
        winners=winners,
        calldata=post_scores(winners, challenge.contract_version),
    )


class _Entries(NamedTuple):
    """What was handed in, and what became of it before anything is read."""

    rulings: tuple[Ruling, ...]
    pieces: tuple[SubmissionResult, ...]
    likeness: Likeness
    rejected: tuple[Rejected, ...]
    ranked: list[Solution]


async def _entries(challenge: Challenge, metadata: Metadata, sources: Sources, listener: ProgressListener) -> _Entries:
    """Everybody's work, without those who are ruled out and without copies."""
    pieces = await _collect(challenge, metadata, sources, listener)
    rulings = await sources.rulings()
    out = excluded(rulings, challenge.submissions)
    barred = {r.submission.submitter for r in out}
    accepted = [p.verdict for p in pieces if isinstance(p.verdict, Solution) and p.submission.submitter not in barred]
    likeness = await asyncio.to_thread(
        find_likeness,
        accepted,
        template=metadata.problem_statement,
        versions=challenge.replaced,
        key=challenge.block.hash.encode(),
    )
    likeness = with_originals(likeness, rulings)
    rejected = _in_order([*out, *_rejected(pieces, likeness.clusters, barred)])
    refused = _accounts(rejected)
    return _Entries(rulings, pieces, likeness, rejected, [s for s in accepted if s.submission.submitter not in refused])


async def _tournament(
    challenge: Challenge,
    jury: _Jury,
    ranked: Sequence[Solution],
    rejected: Sequence[Rejected],
    features: Mapping[Address, SubmissionFacts],
    likeness: Likeness,
    listener: ProgressListener,
) -> tuple[Schedule, Sequence[Comparison], Ranking | None]:
    """Who is better than whom, and the ranking from it."""
    judges = jury.judges()
    refused = _accounts(rejected)
    keccaks: dict[str, str] = {
        s.submission.submitter: s.content_keccak for s in ranked if s.submission.submitter not in refused
    }
    items = canonical_order(challenge.address, keccaks)
    vectors: dict[str, JudgeVector] = {account: facts.vector for account, facts in features.items()}
    schedule = choose_schedule(
        items,
        tuple(judges),
        max_comparisons=jury.plan.max_games,
        winner_count=challenge.winner_count,
        payout_bps=challenge.payout_bps,
        name=jury.plan.schedule,
    )
    comparisons: Sequence[Comparison] | None = judge_by_rules(schedule, judges, items, vectors)
    if comparisons is None:
        comparisons = await play_tournament(
            schedule,
            judges,
            vectors,
            orderers=jury.orderers() if schedule.name == "fours" else None,
            on_comparison=lambda done, total: listener("comparing", done, total),
            gives_up=jury.sources.gives_up,
        )
    exact = is_exact(jury.schema, judges)
    return schedule, comparisons, rank_round(challenge, items, comparisons, likeness.families, exact=exact)


async def _schema(metadata: Metadata, reader: StructuredLlm | None) -> tuple[FeatureSchema, tuple[str, ...]]:
    """The closed schema, settled from the poster's words before any submission is looked at."""
    schema, untyped = compile_schema(metadata.config)
    if not untyped or reader is None:
        return schema, ()
    typed = await type_names(reader, metadata.config, untyped)
    return with_types(schema, typed), tuple(feature.name for feature in typed)


async def _collect(
    challenge: Challenge, metadata: Metadata, sources: Sources, listener: ProgressListener
) -> tuple[SubmissionResult, ...]:
    total = len(challenge.submissions)
    language = metadata.config.language
    gate = asyncio.Semaphore(READ_AT_ONCE)
    done = 0

    async def one(submission: Submission) -> SubmissionResult:
        nonlocal done
        async with gate:
            received = await sources.received(submission, language)
        done += 1
        listener("collecting", done, total)
        return SubmissionResult(submission, received, await judge_received(received, submission, language))

    pieces = tuple(await gather_or_raise(one(submission) for submission in challenge.submissions))
    missing = [piece.verdict for piece in pieces if isinstance(piece.verdict, Rejected) and piece.verdict.is_outage]
    if missing and not sources.gives_up and not any(isinstance(piece.verdict, Solution) for piece in pieces):
        raise _unread(missing, total)
    return pieces


def _unread(missing: Sequence[Rejected], total: int) -> Temporary:
    """There is nobody to judge: says who is waited for. How long a stranger asks to wait is not passed on."""
    named = "; ".join(f"{one.submission.submitter}: {one.reason}" for one in missing[:SHOWN])
    more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return Temporary(
        f"{len(missing)} of {total} submissions cannot be read yet, and no other can be judged ({named}{more}).",
        remedy="They are tried again until a quarter of the scoring window is left.",
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Who reads the submissions, and the money for it; None is nobody, or no bound."""

    llm: StructuredLlm | None
    money: ReadingBudget | None


async def _read(
    reader: _Reader,
    context: ReadingContext,
    schema: FeatureSchema,
    solutions: Sequence[Solution],
    listener: ProgressListener,
    execution: Execution | None,
) -> dict[Address, SubmissionFacts]:
    """Typed facts per submission, each read alone: those first that an equal share of the money suffices for."""
    found: dict[str, SubmissionFacts] = {}

    async def one(solution: Solution, most: int, needs: int) -> int:
        account = solution.submission.submitter
        llm = reader.llm.about_one_entry(reader.money, most=most, needs=needs) if reader.llm else None
        executed = execution.executed.get(account) if execution else None
        found[account] = await extract_features(llm, schema, solution, context, executed)
        listener("extracting", len(found), len(solutions))
        return llm.share.spent if llm and llm.share else 0

    def prompts_by_account() -> dict[str, list[Prompt]]:
        return {name: prompts_for(schema, [solution], context) for name, solution in by_account.items()}

    by_account: dict[str, Solution] = {solution.submission.submitter: solution for solution in solutions}
    prompts = await asyncio.to_thread(prompts_by_account) if reader.llm else {}
    usual = {name: reader.money.usual(prompts.get(name, ())) if reader.money else 0 for name in by_account}
    left = reader.money.micro_usd if reader.money else 0
    while usual:
        most = next_to_read(left, usual)
        if reader.llm is not None and most:
            await reader.llm.prefetch([prompt for name in most for prompt in prompts[name]])
        most = most or dict.fromkeys(usual, left // len(usual))  # which is too little for each: they stay unread
        left -= sum(
            await gather_or_raise(one(by_account[name], bound, usual.pop(name)) for name, bound in most.items())
        )
    return {solution.submission.submitter: found[solution.submission.submitter] for solution in solutions}


async def _key_reports(sources: Sources, answers: Mapping[str, PaidAnswer]) -> tuple[KeyReport, ...]:
    """In order of judge and key."""
    signers = {(paid.llm, paid.answer.signed.key) for paid in answers.values() if paid.answer.signed}
    return tuple([await sources.key_report(judge, key) for judge, key in sorted(signers)])


@dataclass(frozen=True, slots=True)
class _Jury:
    """Who compares in this challenge; every answer is recorded."""

    plan: EvaluationPlan
    metadata: Metadata
    schema: FeatureSchema
    sources: Sources
    log: AnswerLog

    def judges(self) -> dict[str, Judge]:
        """The poster may ask for rules; otherwise the operator's jury sits."""
        names = ("rules",) if self.metadata.config.judge == "rules" else self.plan.judges
        return {name: RulesJudge(self.schema) if name == "rules" else ModelJudge(*self._model(name)) for name in names}

    def orderers(self) -> dict[str, OrderingJudge]:
        """The models of the jury once more, for questions about several at once."""
        return {name: OrderingJudge(*self._model(name)) for name in self.plan.judges if name != "rules"}

    def _model(self, name: str) -> tuple[StructuredLlm, str, FeatureSchema]:
        llm = StructuredLlm(self.sources.asker(name), self.plan.tokens, log=self.log)
        return llm, self.metadata.config.criteria, self.schema


def _rejected(
    pieces: Sequence[SubmissionResult], clusters: Sequence[Cluster], barred: set[Address]
) -> tuple[Rejected, ...]:
    found = [piece.verdict for piece in pieces if piece.submission.submitter not in barred]
    refused = [verdict for verdict in found if isinstance(verdict, Rejected)]
    copies = [copy for cluster in clusters for copy in cluster.rejected()]
    return _in_order([*refused, *copies])


def _accounts(rejected: Sequence[Rejected]) -> set[Address]:
    return {r.submission.submitter for r in rejected}


def _in_order(rejected: Sequence[Rejected]) -> tuple[Rejected, ...]:
    return tuple(sorted(rejected, key=lambda r: (r.submission.submitted_at, r.submission.submitter)))


def rank_round(
    challenge: Challenge,
    items: Sequence[str],
    comparisons: Sequence[Comparison],
    families: Mapping[Address, Address],
    *,
    exact: bool = False,
) -> Ranking | None:
    """Who stands where; a family is judged once more as if it had stayed away."""
    if not items:
        return None
    return rank(
        tally_of(items, comparisons),
        seed=challenge.run.encode(),
        winner_count=challenge.winner_count,
        payout_bps=challenge.payout_bps,
        tie_break={s.submitter: s.submitted_at for s in challenge.submissions},
        by_name=True,
        clusters={str(member): str(head) for member, head in families.items()},
        exact=exact,
    )


def is_exact(schema: FeatureSchema, judges: Mapping[str, Judge]) -> bool:
    """Rules over facts that tools measured: nothing that a model said stands behind the verdicts."""
    measured = all(feature.source == "measured" for feature in schema.judged)
    return measured and all(isinstance(judge, RulesJudge) for judge in judges.values())


def judges_of(comparisons: Sequence[Comparison]) -> list[str]:
    """Who was asked, by name."""
    if isinstance(comparisons, RuledComparisons):
        return list(comparisons.table.judges)
    return sorted({comparison.judge for comparison in comparisons})


def tally_of(items: Sequence[str], comparisons: Sequence[Comparison]) -> Tally:
    """The games that have a verdict, as columns in canonical order."""
    if isinstance(comparisons, RuledComparisons):
        return comparisons.table
    return tally(items, [comparison.result for comparison in comparisons if comparison.winner is not None])
