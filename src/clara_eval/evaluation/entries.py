"""The entries of a round: collected, cleared of copies, read, and rejected if nothing is known about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from clara_eval.config.eval_config import FeatureSchema, Metadata, compile_schema, with_types
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Temporary
from clara_eval.core.flags import Flag
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.submission import Submission
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features.extract import (
    CANARY,
    UNEVALUABLE,
    UNREAD,
    ReadingContext,
    SubmissionFacts,
    extract_features,
    prompts_for,
)
from clara_eval.evaluation.round import EvaluationPlan, ProgressListener, Round, excluded, with_original
from clara_eval.evaluation.sources import ModelSource, Sources, SubmissionResult, read_submission
from clara_eval.judge.costs.budgets import ReadingBudget, next_to_read
from clara_eval.judge.extraction import type_names
from clara_eval.judge.port import NothingJudged, Prompt
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.submissions.copies import Likeness, find_likeness
from clara_eval.submissions.model import Rejected, Solution

KeepFacts = Callable[[Mapping[Address, SubmissionFacts]], Awaitable[None]]
READ_AT_ONCE = 16
SHOWN = 3


async def collect_entries(
    given: Round, sources: Sources, listener: ProgressListener
) -> tuple[tuple[SubmissionResult, ...], Likeness, tuple[Rejected, ...]]:
    """Every entry with its verdict, the likeness of the accepted ones, and what is rejected, copies included."""
    pieces = await _collect(given, sources, listener)
    out = excluded(sources.rulings, given.submissions)
    accepted, template, key = remaining(pieces, out), given.metadata.problem_statement, given.beacon.encode()
    likeness = await asyncio.to_thread(find_likeness, accepted, template=template, versions=given.replaced, key=key)
    for ruling in sources.rulings:
        if ruling.kind == "original" and ruling.account is not None:
            likeness = with_original(likeness, ruling.account)
    barred = {one.submission.submitter for one in out}
    verdicts = [piece.verdict for piece in pieces if piece.submission.submitter not in barred]
    refused = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    copies = [copy for cluster in likeness.clusters for copy in cluster.rejected()]
    return pieces, likeness, in_order([*out, *refused, *copies])


def remaining(pieces: Sequence[SubmissionResult], rejected: Sequence[Rejected]) -> list[Solution]:
    """The solutions of those who are not rejected."""
    out = {one.submission.submitter for one in rejected}
    verdicts = [piece.verdict for piece in pieces if piece.submission.submitter not in out]
    return [verdict for verdict in verdicts if isinstance(verdict, Solution)]


async def _collect(given: Round, sources: Sources, listener: ProgressListener) -> tuple[SubmissionResult, ...]:
    total, gate = len(given.submissions), asyncio.Semaphore(READ_AT_ONCE)
    found: dict[Address, SubmissionResult] = {}

    async def one(submission: Submission) -> None:
        async with gate:
            found[submission.submitter] = await read_submission(sources, submission, given.config)
        listener("collecting", len(found), total)

    await gather_or_raise(one(submission) for submission in given.submissions)
    pieces = tuple(found[submission.submitter] for submission in given.submissions)
    missing = [piece.verdict for piece in pieces if isinstance(piece.verdict, Rejected) and piece.is_outage]
    if missing and not sources.gives_up and not any(isinstance(piece.verdict, Solution) for piece in pieces):
        named = "; ".join(f"{one.submission.submitter}: {one.reason}" for one in missing[:SHOWN])
        more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise Temporary(  # how long a stranger asks to wait is not passed on
            f"{len(missing)} of {total} submissions cannot be read yet, and no other can be judged ({named}{more}).",
            remedy="They are tried again until a quarter of the scoring window is left.",
        )
    return pieces


def canonical_order(challenge_id: str, submission_hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Sort by keccak(challengeId ‖ submissionHash), then id, never by arrival: being early gains no side or index."""
    prefix = _bytes(challenge_id)
    key = {item: keccak_hex(prefix + _bytes(own)) for item, own in submission_hashes.items()}
    return tuple(sorted(key, key=lambda item: (key[item], item)))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def in_order(rejected: Sequence[Rejected]) -> tuple[Rejected, ...]:
    return tuple(sorted(rejected, key=lambda r: (r.submission.submitted_at, r.submission.submitter)))


def reading_llm(plan: EvaluationPlan, log: AnswerLog, models: ModelSource) -> StructuredLlm | None:
    """The model that reads the entries, with those that are asked after it; None if the plan has no model."""
    if not plan.readers:
        return None
    others = tuple(models.reader((name,)) for name in plan.readers[1:])
    return StructuredLlm(models.reader(plan.readers), plan.tokens, others, log)


async def settle_schema(llm: StructuredLlm | None, metadata: Metadata) -> tuple[FeatureSchema, tuple[str, ...]]:
    """Close the schema from the poster's words alone; also the names that a model typed."""
    schema, untyped = compile_schema(metadata.config)
    if not untyped or llm is None:
        return schema, ()
    typed = await type_names(llm, metadata.config, untyped)
    return with_types(schema, typed), tuple(feature.name for feature in typed)


async def read_facts(
    llm: StructuredLlm | None,
    money: ReadingBudget | None,
    context: ReadingContext,
    schema: FeatureSchema,
    solutions: Sequence[Solution],
    execution: Execution | None,
    *,
    listener: ProgressListener,
    keep: KeepFacts | None,
) -> dict[Address, SubmissionFacts]:
    """Read every entry: those first for which an equal share of the money suffices; None is no bound.

    `keep` is called with the facts of each entry that a model has read.
    """
    found: dict[str, SubmissionFacts] = {}
    by_account: dict[str, Solution] = {solution.submission.submitter: solution for solution in solutions}

    async def one(name: str, most: int, needs: int) -> int:
        solution = by_account[name]
        own = llm.about_one_entry(money, most=most, needs=needs) if llm else None
        executed = execution.executed.get(solution.submission.submitter) if execution else None
        found[name] = await extract_features(own, schema, solution, context, executed)
        listener("extracting", len(found), len(solutions))
        if llm is not None and keep is not None:
            await keep({solution.submission.submitter: found[name]})
        return own.share.spent if own and own.share else 0

    prompts: dict[str, list[Prompt]] = {
        name: await asyncio.to_thread(prompts_for, schema, [solution], context) if llm else []
        for name, solution in by_account.items()
    }
    usual = {name: money.usual(prompts[name]) if money else 0 for name in by_account}
    left = money.micro_usd if money else 0
    while usual:
        most = next_to_read(left, usual)
        if llm is not None and most:
            await llm.prefetch([prompt for name in most for prompt in prompts[name]])
        most = most or dict.fromkeys(usual, left // len(usual))  # which is too little for each: they stay unread
        left -= sum(await gather_or_raise(one(name, bound, usual.pop(name)) for name, bound in most.items()))
    return {solution.submission.submitter: found[solution.submission.submitter] for solution in solutions}


def unevaluable(solutions: Sequence[Solution], features: Mapping[Address, SubmissionFacts]) -> tuple[Rejected, ...]:
    """Reject entries of which no judged feature is known. Raises if nothing is known about any."""
    found, rejected, asked, failed = 0, list[Rejected](), list[str](), list[Flag]()
    for solution in solutions:
        facts = features[solution.submission.submitter]
        failure = next((flag for flag in facts.flags if flag.code in {UNREAD, UNEVALUABLE, CANARY}), None)
        is_empty = all(value is None for _, value in facts.vector.values)
        if is_empty:
            reason = failure.sentence if failure else "Every judged feature is unknown."
            is_outage = failure is not None and failure.code == UNREAD
            rejected.append(Rejected(solution.submission, UNEVALUABLE, reason, is_outage))
        found += not is_empty and failure is None
        failed += [failure] if failure else []
        asked += facts.requests
    if solutions and not found and failed:
        raise NothingJudged(f"No submission could be read. The first: {failed[0].sentence}", asked)
    if solutions and not found:
        raise CannotPublish(
            f"Reading the {len(solutions)} submissions gave no facts to compare, so nobody is ranked: every judged "
            "feature is unknown for every submission.",
            remedy="Evaluate it anew with another model (`evaluate --restart`), or let the poster post scores.",
        )
    return tuple(rejected)
