"""Collect the entries of a round, reject copies, and extract their facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.model import Submission
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features.extract import ReadingContext, SubmissionFacts, extract_features, prompts_for
from clara_eval.evaluation.round import ProgressListener, Round, excluded_submissions, with_original
from clara_eval.evaluation.sources import Sources, SubmissionResult, read_submission
from clara_eval.judge.costs.budgets import EntryShare, ReadingBudget, next_to_read
from clara_eval.judge.port import Prompt
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.submissions.copies import Likeness, find_likeness
from clara_eval.submissions.model import Rejected, Solution

KeepFacts = Callable[[Mapping[Address, SubmissionFacts]], Awaitable[None]]
READ_AT_ONCE = 16  # concurrent fetches
SHOWN = 3  # entries named in an error


async def collect_entries(
    given: Round, sources: Sources, listener: ProgressListener
) -> tuple[tuple[SubmissionResult, ...], Likeness, tuple[Rejected, ...]]:
    """Return all entries, the likeness of the accepted ones, and the rejected ones with copies."""
    pieces = await _fetch_all(given, sources, listener)
    excluded = excluded_submissions(sources.rulings, given.submissions)
    accepted, template = accepted_solutions(pieces, excluded), given.metadata.problem_statement
    key, versions = given.beacon.encode(), given.replaced
    likeness = await asyncio.to_thread(find_likeness, accepted, template=template, versions=versions, key=key)
    for ruling in sources.rulings:
        if ruling.kind == "original" and ruling.account is not None:
            likeness = with_original(likeness, ruling.account)
    excluded_accounts = {one.submission.submitter for one in excluded}
    verdicts = [piece.verdict for piece in pieces if piece.submission.submitter not in excluded_accounts]
    rejected = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    copies = [copy for cluster in likeness.clusters for copy in cluster.rejected()]
    return pieces, likeness, sort_rejected([*excluded, *rejected, *copies])


def accepted_solutions(pieces: Sequence[SubmissionResult], rejected: Sequence[Rejected]) -> list[Solution]:
    accounts = {one.submission.submitter for one in rejected}
    verdicts = [piece.verdict for piece in pieces if piece.submission.submitter not in accounts]
    return [verdict for verdict in verdicts if isinstance(verdict, Solution)]


async def _fetch_all(given: Round, sources: Sources, listener: ProgressListener) -> tuple[SubmissionResult, ...]:
    total, found = len(given.submissions), dict[Address, SubmissionResult]()

    async def read_one(submission: Submission) -> None:
        found[submission.submitter] = await read_submission(sources, submission, given.config)
        listener("collecting", len(found), total)

    await gather_or_raise((read_one(submission) for submission in given.submissions), READ_AT_ONCE)
    pieces = tuple(found[submission.submitter] for submission in given.submissions)
    missing = [piece.verdict for piece in pieces if isinstance(piece.verdict, Rejected) and piece.is_outage]
    if missing and not sources.gives_up and not any(isinstance(piece.verdict, Solution) for piece in pieces):
        named = "; ".join(f"{one.submission.submitter}: {one.reason}" for one in missing[:SHOWN])
        more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise Temporary(  # without the hosts' Retry-After, which is not trusted
            f"{len(missing)} of {total} submissions cannot be read yet, and no other can be judged ({named}{more}).",
            remedy="They are tried again until a quarter of the scoring window is left.",
        )
    return pieces


def sort_rejected(rejected: Sequence[Rejected]) -> tuple[Rejected, ...]:
    return tuple(sorted(rejected, key=lambda r: (r.submission.submitted_at, r.submission.submitter)))


async def read_facts(
    llm: StructuredLlm | None,
    budget: ReadingBudget | None,
    context: ReadingContext,
    schema: FeatureSchema,
    solutions: Sequence[Solution],
    execution: Execution | None,
    *,
    listener: ProgressListener,
    keep: KeepFacts | None,
) -> dict[Address, SubmissionFacts]:
    """Extract the facts of every entry within the budget; None is no limit.

    Entries that an equal share of the budget covers go first. `keep` gets the facts of each entry that a model read.
    """
    found: dict[str, SubmissionFacts] = {}
    by_account: dict[str, Solution] = {solution.submission.submitter: solution for solution in solutions}

    async def read_one(name: str, most: int, needs: int) -> int:
        solution = by_account[name]
        own = replace(llm, share=EntryShare(budget, most, needs)) if llm and llm.limits else llm
        executed = execution.executed.get(solution.submission.submitter) if execution else None
        found[name] = await extract_features(own, schema, solution, context, executed)
        listener("extracting", len(found), len(solutions))
        if llm is not None and keep is not None:
            await keep({solution.submission.submitter: found[name]})
        return own.share.spent if own and own.share else 0

    prompts: dict[str, list[Prompt]] = {
        name: await asyncio.to_thread(prompts_for, schema, solution, context) if llm else []
        for name, solution in by_account.items()
    }
    usual = {name: budget.usual(prompts[name]) if budget else 0 for name in by_account}
    left = budget.micro_usd if budget else 0
    while usual:
        most = next_to_read(left, usual)
        if llm is not None and most:
            await llm.prefetch([prompt for name in most for prompt in prompts[name]])
        most = most or dict.fromkeys(usual, left // len(usual))  # too little for each, so they stay unread
        left -= sum(await gather_or_raise(read_one(name, bound, usual.pop(name)) for name, bound in most.items()))
    return {solution.submission.submitter: found[solution.submission.submitter] for solution in solutions}
