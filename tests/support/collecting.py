"""Fetch and check one submission, as a run does."""

from __future__ import annotations

from clara_eval.core.submission import Submission
from clara_eval.submissions.model import Fetch, Rejected, Solution, SubmissionLimits, check_submission, fetch_submission


async def collect_solution(
    fetch: Fetch, submission: Submission, limits: SubmissionLimits | None = None, *, language: str | None = None
) -> Solution | Rejected:
    return check_submission(submission, await fetch_submission(fetch, submission, limits), limits, language=language)
