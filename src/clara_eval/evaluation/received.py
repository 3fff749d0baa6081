"""What came for one submission, as a trace records it, and the verdict about it."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from clara_eval.core.codec import JsonCodec
from clara_eval.core.submission import Submission
from clara_eval.submissions.model import Fetched, Rejected, Solution, check_submission


@dataclass(frozen=True, slots=True)
class Received:
    """The bytes that came, or the code and reason why none came."""

    content: str | None
    """Base64, because bytes that are not text are evidence too."""
    media_type: str = ""
    immutable: bool = False
    note: str = ""
    code: str = ""
    reason: str = ""
    is_outage: bool = False
    """None came, and that may be us or the network: it was tried again for a while."""

    @classmethod
    def of(cls, fetched: Fetched | Rejected) -> Received:
        if isinstance(fetched, Rejected):
            return cls(None, code=fetched.code, reason=fetched.reason, is_outage=fetched.is_outage)
        content = base64.b64encode(fetched.content).decode()
        return cls(content, fetched.media_type, fetched.immutable, fetched.note)

    def fetched(self, submission: Submission) -> Fetched | Rejected:
        if self.content is None:
            return Rejected(submission, self.code, self.reason, self.is_outage)
        return Fetched(base64.b64decode(self.content), self.media_type, self.immutable, self.note)


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    submission: Submission
    received: Received
    verdict: Solution | Rejected

    @classmethod
    def of(cls, submission: Submission, received: Received, language: str | None) -> SubmissionResult:
        return cls(submission, received, check_submission(submission, received.fetched(submission), language=language))

    @property
    def is_outage(self) -> bool:
        return isinstance(self.verdict, Rejected) and self.verdict.is_outage


RECEIVED = JsonCodec(Received)
