"""Fetch and check one submission, as a run does."""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.model import Submission
from clara_eval.submissions.model import RETRY_SECONDS, Fetch, Rejected, Solution, check_submission, fetch_submission


async def collect_solution(
    fetch: Fetch, submission: Submission, waits: Sequence[float] = RETRY_SECONDS, *, language: str | None = None
) -> Solution | Rejected:
    return check_submission(submission, await fetch_submission(fetch, submission, waits), language=language)
