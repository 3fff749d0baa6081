"""Sources of submissions, program runs and model answers: live and journaled, or a trace."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from clara_eval.config.eval_config import EvalConfig
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadSubmission, BadTrace, Temporary
from clara_eval.core.model import Submission
from clara_eval.evaluation.execution import REVEAL, Reveal, run_here
from clara_eval.evaluation.round import RULINGS, Ruling
from clara_eval.evaluation.trace import Journal
from clara_eval.harness import Executed, Harness, Machine, MissingEngine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import ExecutedDocument
from clara_eval.judge.attestation import KeyReport, NotAttested, Quotes, SigningKey, check_key, check_signed, signing
from clara_eval.judge.port import Answer, Asker, PaidAnswer, Prompt, Signed, request_hash
from clara_eval.submissions.model import (
    MAX_BYTES,
    RETRY_SECONDS,
    Fetch,
    Fetched,
    Rejected,
    Solution,
    check_submission,
    fetch_submission,
    following,
    is_data_uri,
    linked_submission,
    read_data_uri,
)


@dataclass(frozen=True, slots=True)
class Received:
    """The fetched bytes, or the code and reason why there are none."""

    content: str | None  # base64, since the bytes need not be text
    media_type: str = ""
    immutable: bool = False
    note: str = ""
    code: str = ""
    reason: str = ""
    is_outage: bool = False  # the failure may be ours or the network's; it was retried

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
    linked: Received | None = None  # content of the submitted URL, if the config asks for a URL

    @classmethod
    def of(cls, submission: Submission, received: Received, config: EvalConfig) -> SubmissionResult:
        fetched, form = received.fetched(submission), config.submission_format
        return cls(submission, received, check_submission(submission, fetched, language=config.language, form=form))

    @property
    def is_outage(self) -> bool:
        return isinstance(self.verdict, Rejected) and self.verdict.is_outage

    @property
    def is_unpinned(self) -> bool:
        """Whether the hash on the chain does not cover the accepted content."""
        return isinstance(self.verdict, Solution) and not self.verdict.pinned


RECEIVED = JsonCodec(Received)
UNANSWERED = JsonCodec(dict[str, str])  # in the journal of a finished run; these are not asked again
_EXECUTED = JsonCodec(ExecutedDocument)
_RECEIVED_KEY, MISSED_KEY = "received/", "outage/"


class ModelSource(Protocol):
    def reader(self, names: Sequence[str]) -> Asker:
        """Return an asker for the first model, which falls back to the next if one cannot answer."""
        ...

    async def key_report(self, judge: str, key: str) -> KeyReport: ...


@dataclass(frozen=True, slots=True)
class LiveSources:
    journal: Journal
    fetch: Fetch
    models: ModelSource
    machine: Machine
    unanswered: dict[str, str] = field(default_factory=dict)
    """Requests that a finished run left unanswered, with the reason; they are not asked again."""
    gives_up: bool = False  # no time is left to wait for outages
    rulings: tuple[Ruling, ...] = ()
    reveal: Reveal | None = None
    tries_again: bool = True  # fetch entries again that could not be read before

    async def read(self, submission: Submission, config: EvalConfig, part: str) -> SubmissionResult:
        """Fetch and journal a submission; the first reason of an outage is kept, for a stable result."""
        name = submission.submitter + ("" if part == "received" else f"/{part}")

        async def check(received: Received) -> SubmissionResult:
            return await asyncio.to_thread(SubmissionResult.of, submission, received, config)

        if (saved := await self.journal.saved(_RECEIVED_KEY + name, RECEIVED)) is not None:
            return await check(saved)
        missed = await self.journal.saved(MISSED_KEY + name, RECEIVED)
        if missed is not None and not self.tries_again:
            return await check(missed)
        fetched = await fetch_submission(self.fetch, submission, RETRY_SECONDS if missed is None else ())
        received = Received.of(fetched)
        found = await check(received)
        if missed is not None and found.is_outage:
            return await check(missed)
        key = MISSED_KEY if found.is_outage else _RECEIVED_KEY
        kept = await self.journal.keep(key + name, RECEIVED, received)
        return found if kept == received else await check(kept)

    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed:
        texts: dict[str, Any] = {}  # for people; not journaled

        async def run() -> ExecutedDocument:
            found = await run_here(self.machine, harness, program)
            texts.update(detail=found.detail, logs=found.logs)
            return found.to_json()

        return replace(Executed.from_json(await self.journal.once(f"executed/{account}", _EXECUTED, run)), **texts)


Bodies = Mapping[str, Any]  # bodies of trace entries by key
ANSWER = JsonCodec(Answer)
SIGNED = JsonCodec(Signed)
KEY_REPORT = JsonCodec(KeyReport)
_MACHINE = JsonCodec(dict[str, str | int | float | bool])
SHOWN_DIFFERENCES = 4


@dataclass(frozen=True, slots=True)
class TraceSources:
    """Reads from a trace; programs run again if the engine is installed, else they are in `unchecked`."""

    entries: Bodies
    machine: Machine = field(default_factory=Machine)
    unchecked: list[str] = field(default_factory=list)
    gives_up: bool = True  # the run is finished: unanswered requests stay unanswered
    quotes: Quotes = field(default_factory=Quotes)
    keys: dict[tuple[str, str], SigningKey] = field(default_factory=dict)  # checked signing keys by judge and name

    @property
    def models(self) -> TraceSources:
        return self

    @property
    def unanswered(self) -> Mapping[str, str]:
        found = self.entries.get("unanswered", {})
        if not isinstance(found, dict) or not all(isinstance(reason, str) for reason in found.values()):
            raise BadTrace("The entry unanswered does not hold reasons by request.", entry="unanswered")
        return found

    @property
    def rulings(self) -> tuple[Ruling, ...]:
        return RULINGS.read(tuple(self.body("rulings")))

    @property
    def reveal(self) -> Reveal | None:
        found = self.entries.get("execution") or {}
        if not found.get("hidden"):
            return None
        reveal = REVEAL.read({"content": found["reveal"]})
        content = reveal.content
        if content is not None and base64.b64encode(base64.b64decode(content)).decode() != content:
            raise BadTrace("The recorded reveal is base64 in another form than ours.", entry="execution")
        return reveal

    async def read(self, submission: Submission, config: EvalConfig, part: str) -> SubmissionResult:
        key = f"solution/{submission.submitter}"
        if part not in (body := self.body(key)):
            raise BadTrace(f"{key} does not record what its URL leads to.", entry=key)
        received = RECEIVED.read(body[part])
        if is_data_uri(submission.solution_uri) and not _matches_data_uri(received, submission):
            raise BadTrace(f"What {key} records is not what its data: URI holds.", entry=key)
        return SubmissionResult.of(submission, received, config)

    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed:
        machine = _MACHINE.read(self.body("execution")["machine"])
        recorded = Executed.from_json(_EXECUTED.read({**self.body(f"executed/{account}"), "machine": machine}))
        if recorded.is_measured:
            repeated, why = await self._rerun(harness, program, machine)
            if repeated is not None:
                return repeated
        else:
            recorded, why = replace(recorded, machine={}), "the evaluator's machine failed on it"
        self.unchecked.append(f"that {account} measures what is recorded: {why}")
        return recorded

    async def _rerun(
        self, harness: Harness | None, program: Program, machine: Mapping[str, object]
    ) -> tuple[Executed | None, str]:
        """Run the program here; return None and the reason if that is impossible or not comparable."""
        try:
            found = await run_here(self.machine, harness, program)
        except MissingEngine as missing:
            return None, str(missing)
        if not found.is_measured:
            return None, f"this machine failed on it ({found.detail})"
        if found.machine and dict(found.machine) != dict(machine):
            return None, f"it was run with {_describe_differences(machine, found.machine)}"
        return found, ""

    async def key_report(self, judge: str, key: str) -> KeyReport:
        for body in self.body("attestation"):
            report = KEY_REPORT.read(body)
            if (report.judge, report.key) == (judge, key):
                return report
        raise BadTrace(f"The trace holds no attestation of the key {key} of {judge}.", entry="attestation")

    def reader(self, names: Sequence[str]) -> Asker:
        return _RecordedAsker(tuple(names), self)

    async def recorded_answer(self, request: str, judge: str, prompt: Prompt) -> PaidAnswer | None:
        """Return the recorded answer; BadTrace if the judge's endpoint signs and the signature is invalid."""
        body = self.entries.get(f"answer/{request}")
        if body is None:
            return None
        signed = SIGNED.read(body["signed"]) if "signed" in body else None
        answer = replace(ANSWER.read(body["answer"]), signed=signed)
        model, interface = signing(judge)
        entry = f"answer/{request}"
        if (signed.interface if signed else "") != interface and not (signed is None and answer.stop == "refusal"):
            raise BadTrace(f"The answer {request} of {judge} is not signed as the judge's name says.", entry=entry)
        try:
            if signed is not None:
                check_signed(prompt, answer, await self._checked_key(judge, interface, signed.key), model)
        except NotAttested as bad:
            raise BadTrace(f"The signature of {request} of {judge} does not hold: {bad}.", entry=entry) from bad
        return PaidAnswer(request, "", judge, prompt.purpose, answer, None)

    async def _checked_key(self, judge: str, interface: str, key: str) -> SigningKey:
        if (judge, key) not in self.keys:
            report = await self.key_report(judge, key)
            try:
                self.keys[judge, key] = check_key(interface, report, self.quotes)
            except NotAttested as bad:
                raise BadTrace(f"The key {key} of {judge} is not attested: {bad}.", entry="attestation") from bad
        return self.keys[judge, key]

    def body(self, key: str) -> Any:
        if key not in self.entries:
            raise BadTrace(f"The trace has no entry {key}.", entry=key)
        return self.entries[key]


Sources = LiveSources | TraceSources


async def read_submission(sources: Sources, submission: Submission, config: EvalConfig) -> SubmissionResult:
    """Read a submission and, if the config asks for a URL, the content of that URL."""
    found = await sources.read(submission, config, "received")
    if config.submission_format != "url" or isinstance(found.verdict, Rejected):
        return found
    linked = await sources.read(linked_submission(found.verdict), replace(config, submission_format=None), "linked")
    return replace(found, verdict=following(found.verdict, linked.verdict), linked=linked.received)


def recorded_metadata(entries: Bodies, uri: str) -> bytes:
    """Return the metadata of a trace; BadTrace if a `data:` URI of the challenge holds something else."""
    if "metadata" not in entries:
        raise BadTrace("The trace has no entry metadata.", entry="metadata")
    content = base64.b64decode(entries["metadata"]["content"])
    decoded = _decode_data_uri(uri)
    if is_data_uri(uri) and (decoded is None or content != decoded.content):
        raise BadTrace("The recorded metadata is not what the data: URI of the challenge holds.", entry="metadata")
    return content


def _decode_data_uri(uri: str) -> Fetched | None:
    """Decode a `data:` URI of any size; None if it is malformed."""
    try:
        return read_data_uri(uri, len(uri))
    except BadSubmission:
        return None


def _matches_data_uri(received: Received, submission: Submission) -> bool:
    decoded = _decode_data_uri(submission.solution_uri)
    if received.content is not None:
        return received.fetched(submission) == decoded
    if decoded is None:
        return received.code in {"bad_data_uri", "too_large"}
    return received.code == "too_large" and len(decoded.content) > MAX_BYTES


@dataclass(frozen=True, slots=True)
class _RecordedAsker:
    names: tuple[str, ...]
    sources: TraceSources

    @property
    def name(self) -> str:
        return ", else ".join(self.names)

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        """Do nothing: all answers are in the trace."""

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for name in self.names:
            request = request_hash(name, prompt, attempt)
            found = await self.sources.recorded_answer(request, name, prompt)
            if found is not None:
                return found
        raise Temporary(f"The trace records no answer to {request_hash(self.name, prompt, attempt)}.")


def _describe_differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    values = [[str(one.get(name, "none"))[:40] for one in (theirs, ours)] for name in names[:SHOWN_DIFFERENCES]]
    shown = [f"{name} {there} (here: {here})" for name, (there, here) in zip(names, values, strict=False)]
    more = f", and {len(names) - len(shown)} more that differ" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more}"
