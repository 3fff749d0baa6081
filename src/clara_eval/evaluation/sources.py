"""Where a run gets what it cannot compute: the submitted bytes, runs of programs and the answers of models.

`LiveSources` asks the world once and journals what it said; `TraceSources` gives back what a trace recorded.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.submission import Submission
from clara_eval.evaluation.execution import Reveal, run_here
from clara_eval.evaluation.rulings import Ruling
from clara_eval.evaluation.trace.journal import Journal
from clara_eval.harness import Executed, Harness, Machine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import ExecutedDocument
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.port import Asker, PaidAnswer
from clara_eval.submissions.model import (
    Fetch,
    Fetched,
    Rejected,
    Solution,
    SubmissionLimits,
    check_submission,
    fetch_submission,
)


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


_UNANSWERED = JsonCodec(dict[str, str])
_EXECUTED = JsonCodec(ExecutedDocument)
_RECEIVED_KEY, _MISSED_KEY = "received/", "outage/"


class ModelSource(Protocol):
    def asker(self, name: str) -> Asker: ...
    def reader(self, names: Sequence[str]) -> Asker:
        """The first of these models; the next when it cannot answer."""
        ...

    async def key_report(self, judge: str, key: str) -> KeyReport: ...


class Sources(ModelSource, Protocol):
    @property
    def rulings(self) -> tuple[Ruling, ...]: ...

    @property
    def reveal(self) -> Reveal | None: ...

    @property
    def unanswered(self) -> Mapping[str, str]:
        """Requests that a finished run left unanswered, each with the reason: they stay so."""
        ...

    @property
    def gives_up(self) -> bool:
        """Whether there is no time left to wait for what an outage withholds."""
        ...

    async def submission(self, submission: Submission, language: str | None) -> SubmissionResult: ...
    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed: ...


@dataclass(frozen=True, slots=True)
class LiveSources:
    journal: Journal
    fetch: Fetch
    models: ModelSource
    machine: Machine
    retry_after_seconds: tuple[float, ...] = ()
    unanswered: Mapping[str, str] = field(default_factory=dict)
    gives_up: bool = False
    rulings: tuple[Ruling, ...] = ()
    reveal: Reveal | None = None
    tries_again: bool = True
    """Whether an entry that could not be read before is fetched once more."""

    async def submission(self, submission: Submission, language: str | None) -> SubmissionResult:
        """Fetch once; the first reason of an outage stays, so that the result does not change."""
        account = submission.submitter
        if (saved := await self.journal.saved(_RECEIVED_KEY + account, RECEIVED)) is not None:
            return SubmissionResult.of(submission, saved, language)
        missed = await self.journal.saved(_MISSED_KEY + account, RECEIVED)
        if missed is not None and not self.tries_again:
            return SubmissionResult.of(submission, missed, language)
        limits = SubmissionLimits(retry_after_seconds=() if missed is not None else self.retry_after_seconds)
        received = Received.of(await fetch_submission(self.fetch, submission, limits))
        found = SubmissionResult.of(submission, received, language)
        if missed is not None and found.is_outage:
            return SubmissionResult.of(submission, missed, language)
        key = _MISSED_KEY if found.is_outage else _RECEIVED_KEY
        kept = await self.journal.keep(key + account, RECEIVED, received)
        return found if kept == received else SubmissionResult.of(submission, kept, language)

    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed:
        async def run() -> ExecutedDocument:
            return (await run_here(self.machine, harness, program)).to_json()

        return Executed.from_json(await self.journal.once(f"executed/{account}", _EXECUTED, run))

    async def key_report(self, judge: str, key: str) -> KeyReport:
        return await self.models.key_report(judge, key)

    def asker(self, name: str) -> Asker:
        return self.models.asker(name)

    def reader(self, names: Sequence[str]) -> Asker:
        return self.models.reader(names)


async def key_reports(models: ModelSource, answers: Mapping[str, PaidAnswer]) -> tuple[KeyReport, ...]:
    """The attestation of every key that signed an answer, in order of judge and key."""
    signers = {(paid.llm, paid.answer.signed.key) for paid in answers.values() if paid.answer.signed}
    return tuple([await models.key_report(judge, key) for judge, key in sorted(signers)])


async def any_missed(journal: Journal) -> bool:
    """Whether an entry of this run could not be read when it was first tried."""
    return await journal.has(_MISSED_KEY)


async def left_unanswered(journal: Journal) -> dict[str, str]:
    """What a finished run left unanswered; nothing if none is finished."""
    return await journal.saved("unanswered", _UNANSWERED) or {}


async def close_unanswered(journal: Journal, unanswered: dict[str, str]) -> None:
    """Keep that a run is finished: no model is asked again for what it went without."""
    await journal.keep("unanswered", _UNANSWERED, unanswered)
