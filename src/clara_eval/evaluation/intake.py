"""The entries of a round: collected, ruled about, and cleared of copies before anything is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.submission import Submission
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.plan import ProgressListener
from clara_eval.evaluation.received import SubmissionResult
from clara_eval.evaluation.round import Round
from clara_eval.evaluation.rulings import excluded, with_originals
from clara_eval.evaluation.sources import Sources
from clara_eval.submissions import Likeness, Rejected, Solution, find_likeness

READ_AT_ONCE = 16
SHOWN = 3


class Entries(NamedTuple):
    pieces: tuple[SubmissionResult, ...]
    likeness: Likeness
    rejected: tuple[Rejected, ...]
    judged: list[Solution]


async def collect_entries(given: Round, sources: Sources, listener: ProgressListener) -> Entries:
    pieces = await _collect(given, sources, listener)
    out = excluded(sources.rulings, given.submissions)
    barred = accounts(out)
    verdicts = [piece.verdict for piece in pieces if piece.submission.submitter not in barred]
    accepted = [verdict for verdict in verdicts if isinstance(verdict, Solution)]
    likeness = await asyncio.to_thread(
        find_likeness,
        accepted,
        template=given.metadata.problem_statement,
        versions=given.replaced,
        key=given.beacon.encode(),
    )
    likeness = with_originals(likeness, sources.rulings)
    copies = [copy for cluster in likeness.clusters for copy in cluster.rejected()]
    rejected = in_order([*out, *(verdict for verdict in verdicts if isinstance(verdict, Rejected)), *copies])
    refused = accounts(rejected)
    return Entries(pieces, likeness, rejected, [s for s in accepted if s.submission.submitter not in refused])


async def _collect(given: Round, sources: Sources, listener: ProgressListener) -> tuple[SubmissionResult, ...]:
    total = len(given.submissions)
    gate = asyncio.Semaphore(READ_AT_ONCE)
    done = 0

    async def one(submission: Submission) -> SubmissionResult:
        nonlocal done
        async with gate:
            found = await sources.submission(submission, given.config.language)
        done += 1
        listener("collecting", done, total)
        return found

    pieces = tuple(await gather_or_raise(one(submission) for submission in given.submissions))
    missing = [piece.verdict for piece in pieces if isinstance(piece.verdict, Rejected) and piece.is_outage]
    if missing and not sources.gives_up and not any(isinstance(piece.verdict, Solution) for piece in pieces):
        raise _unread(missing, total)
    return pieces


def _unread(missing: Sequence[Rejected], total: int) -> Temporary:
    """An outage of all entries. How long a stranger asks to wait is not passed on."""
    named = "; ".join(f"{one.submission.submitter}: {one.reason}" for one in missing[:SHOWN])
    more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return Temporary(
        f"{len(missing)} of {total} submissions cannot be read yet, and no other can be judged ({named}{more}).",
        remedy="They are tried again until a quarter of the scoring window is left.",
    )


def accounts(rejected: Sequence[Rejected]) -> set[Address]:
    return {r.submission.submitter for r in rejected}


def in_order(rejected: Sequence[Rejected]) -> tuple[Rejected, ...]:
    return tuple(sorted(rejected, key=lambda r: (r.submission.submitted_at, r.submission.submitter)))
