"""What the demo's poster asks for."""

from __future__ import annotations

import base64

TITLE = "Sliding-window rate limiter in Python"
PROBLEM = (
    "Write a rate limiter that allows at most N events per key in any window of W seconds. "
    "Memory must stay bounded; the code will be read and maintained by others."
)
CONFIG = {
    "version": 1,
    "features": [
        {"name": "parses", "type": "boolean", "better": "higher", "weight": 5, "source": "measured"},
        {"name": "max_complexity", "type": "integer", "min": 0, "max": 40, "better": "lower", "weight": 3,
         "source": "measured"},
        {"name": "max_nesting", "type": "integer", "min": 0, "max": 10, "better": "lower", "weight": 2,
         "source": "measured"},
        {"name": "duplicate_share", "type": "number", "min": 0, "max": 1, "better": "lower", "weight": 2,
         "source": "measured"},
        {"name": "tests", "type": "integer", "min": 0, "max": 10, "better": "higher", "weight": 2,
         "source": "measured"},
        {"name": "documented_share", "type": "number", "min": 0, "max": 1, "better": "higher", "weight": 1,
         "source": "measured"},
        {"name": "longest_function", "type": "integer", "min": 0, "max": 80, "better": "lower", "weight": 1,
         "source": "measured"},
    ],
    "criteria": "The best rate limiter is correct, simple and tested: it parses, its functions are short and flat, "
    "nothing is repeated, its behaviour is covered by tests and its use is explained. Penalise tangled control flow.",
    "submissionFormat": "code",
    "language": "python",
    "judge": "rules",
}  # fmt: skip


def data_uri(content: bytes, media_type: str = "text/x-python") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
