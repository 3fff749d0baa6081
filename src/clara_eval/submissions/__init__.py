"""The bytes behind each submission: fetched, checked against the chain, and cleared of copies."""

from __future__ import annotations

from clara_eval.code import guess_language, language_name
from clara_eval.submissions.authors import CONTESTED_SECONDS
from clara_eval.submissions.collecting import SubmissionLimits, check_submission, estimate_tokens, fetch_submission
from clara_eval.submissions.copies import Cluster, Copy, Likeness, Similar, find_likeness
from clara_eval.submissions.model import REJECTIONS, Fetch, Fetched, Outage, Rejected, Solution

__all__ = [
    "CONTESTED_SECONDS",
    "REJECTIONS",
    "Cluster",
    "Copy",
    "Fetch",
    "Fetched",
    "Likeness",
    "Outage",
    "Rejected",
    "Similar",
    "Solution",
    "SubmissionLimits",
    "check_submission",
    "estimate_tokens",
    "fetch_submission",
    "find_likeness",
    "guess_language",
    "language_name",
]
