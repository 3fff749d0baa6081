"""The bytes behind each submission: fetched, checked against the chain, and cleared of copies.

Submissions come in; a `Solution` or a `Rejected` goes out for each, and clusters of copies for all. No submission can
stop or delay a round: whatever it holds, it gets a verdict. What is judged is exactly what was hashed, never a part.
"""

from __future__ import annotations

from clara_eval.code import guess_language, language_name
from clara_eval.submissions.authors import CONTESTED_SECONDS
from clara_eval.submissions.collecting import SubmissionLimits, collect_solution, estimate_tokens
from clara_eval.submissions.copies import (
    Cluster,
    Copy,
    Likeness,
    Similar,
    find_likeness,
)
from clara_eval.submissions.model import (
    REJECTIONS,
    Fetch,
    Fetched,
    Outage,
    Rejected,
    Solution,
)

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
    "collect_solution",
    "estimate_tokens",
    "find_likeness",
    "guess_language",
    "language_name",
]
