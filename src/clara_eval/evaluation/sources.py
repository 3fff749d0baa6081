"""Where a walk gets what it cannot compute: the metadata, the submitted bytes, a revealed harness, the model's answers.

There are two: `LiveSources` asks the world once and journals what it said; `TraceSources` gives back what a trace
recorded. Because the walk cannot tell them apart, checking a trace is walking it again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import (
    BadSubmission,
    BadTrace,
    CannotPublish,
    GivenUp,
    Temporary,
)
from clara_eval.core.submission import Submission
from clara_eval.evaluation.execution import run_here
from clara_eval.evaluation.harness import REVEAL, Reveal
from clara_eval.evaluation.objections import Disputed, checked
from clara_eval.evaluation.rulings import RULINGS, Ruling
from clara_eval.evaluation.trace.journal import Entries, Journal
from clara_eval.harness import Executed, Harness, Machine, MissingEngine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import ExecutedDocument
from clara_eval.judge.attestation import (
    KeyReport,
    NotAttested,
    Quotes,
    Signed,
    SigningKey,
    check_key,
)
from clara_eval.judge.port import (
    Answer,
    Asker,
    PaidAnswer,
    Prompt,
    request_hash,
)
from clara_eval.judge.signed import check_signed, signing
from clara_eval.store.ports import RunEntries
from clara_eval.submissions import (
    Fetch,
    Fetched,
    Rejected,
    Solution,
    SubmissionLimits,
    collect_solution,
)
from clara_eval.submissions.data_uri import is_data_uri, read_data_uri


@dataclass(frozen=True, slots=True)
class Received:
    """What came for one submission: bytes, or the code and reason why none came."""

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
    def of(cls, fetched: Fetched) -> Received:
        content = base64.b64encode(fetched.content).decode()
        return cls(content, fetched.media_type, fetched.immutable, fetched.note)

    def fetched(self) -> Fetched:
        if self.content is None:
            raise (GivenUp if self.is_outage else BadSubmission)(self.reason, code=self.code)
        return Fetched(base64.b64decode(self.content), self.media_type, self.immutable, self.note)


class ModelSource(Protocol):
    """The models of one run, each behind the answer book."""

    def asker(self, name: str) -> Asker: ...
    def reader(self, names: Sequence[str]) -> Asker: ...
    async def key_report(self, judge: str, key: str) -> KeyReport:
        """The attestation of a key that signed answers of this judge."""
        ...


class Sources(Protocol):
    @property
    def unanswered(self) -> Mapping[str, str]:
        """Requests that a finished walk left unanswered, each with the reason: they stay so."""
        ...

    @property
    def gives_up(self) -> bool:
        """No time is left to wait for: what an outage withheld until now is gone without."""
        ...

    async def rulings(self) -> tuple[Ruling, ...]:
        """What a person ruled about an earlier result of this run."""
        ...

    async def disputed(self, challenge: Challenge) -> Disputed | None:
        """What submitters objected to in the draft of this result."""
        ...

    async def metadata(self, challenge: Challenge) -> bytes: ...
    async def received(self, submission: Submission, language: str | None) -> Received: ...
    async def reveal(self) -> Reveal | None:
        """The hidden harness as it was revealed, where one is hidden."""
        ...

    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed:
        """What running this submission measures."""
        ...

    async def key_report(self, judge: str, key: str) -> KeyReport:
        """The attestation of a key that signed answers of this judge."""
        ...

    def asker(self, name: str) -> Asker: ...
    def reader(self, names: Sequence[str]) -> Asker:
        """Who reads the submissions: the first of these, the next where it cannot answer."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """A fetch that gives back what was received, so that the same checks run on the same bytes."""

    received: Received

    async def fetch(self, uri: str) -> Fetched:  # noqa: ARG002 - the port's shape
        return self.received.fetched()


async def judge_received(received: Received, submission: Submission, language: str | None) -> Solution | Rejected:
    """The verdict about received bytes; pure but for its colour."""
    return await collect_solution(Replayed(received), submission, language=language)


class _Remembering:
    """Keeps the last bytes that came, as evidence for the verdict."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.last: Fetched | None = None

    async def fetch(self, uri: str) -> Fetched:
        self.last = None
        self.last = await self._fetch.fetch(uri)
        return self.last


RECEIVED = JsonCodec(Received)
ANSWER = JsonCodec(Answer)
SIGNED = JsonCodec(Signed)
KEY_REPORT = JsonCodec(KeyReport)
_TEXT = JsonCodec(str)
_UNANSWERED = JsonCodec(dict[str, str])
_EXECUTED = JsonCodec(ExecutedDocument)
_MACHINE = JsonCodec(dict[str, str | int | float | bool])


async def journal_metadata(journal: Journal, fetch: Fetch, challenge: Challenge) -> bytes:
    """The bytes behind `challengeURI`, fetched once."""

    async def read() -> str:
        try:
            fetched = await fetch.fetch(challenge.challenge_uri)
        except BadSubmission as bad:
            raise CannotPublish(
                f"The metadata at challengeURI cannot be read: {bad}",
                remedy="The poster may post scores; after scoringDeadline anybody may call expire().",
            ) from bad
        return base64.b64encode(fetched.content).decode()

    encoded: str = await journal.once("metadata", _TEXT, read)
    return base64.b64decode(encoded)


@dataclass(frozen=True, slots=True)
class LiveSources:
    journal: Journal
    fetch: Fetch
    models: ModelSource
    retry_after_seconds: tuple[float, ...]
    unanswered: Mapping[str, str]
    gives_up: bool
    ruled: tuple[Ruling, ...]
    revealed: Reveal | None
    machine: Machine
    objected: Disputed | None = None
    tries_again: bool = True
    """Whether an entry that could not be read before is fetched once more."""

    async def disputed(self, _challenge: Challenge) -> Disputed | None:
        return self.objected

    async def rulings(self) -> tuple[Ruling, ...]:
        return self.ruled

    async def metadata(self, challenge: Challenge) -> bytes:
        return await journal_metadata(self.journal, self.fetch, challenge)

    async def received(self, submission: Submission, language: str | None) -> Received:
        """What came; where nothing came yet, why. The first such reason stays, so that the result does not change."""
        if (saved := await self.journal.saved(f"received/{submission.submitter}", RECEIVED)) is not None:
            return saved
        missed = await self.journal.saved(_missed_key(submission.submitter), RECEIVED)
        if missed is not None and not self.tries_again:
            return missed
        found, is_outage = await self._receive(submission, language, again=missed is not None)
        if missed is not None and is_outage:
            return missed

        async def made() -> Received:
            return found

        key = _missed_key(submission.submitter) if is_outage else f"received/{submission.submitter}"
        return await self.journal.once(key, RECEIVED, made)

    async def _receive(self, submission: Submission, language: str | None, *, again: bool) -> tuple[Received, bool]:
        """Fetch one submission, with pauses the first time only; whether what kept it away may pass."""
        remembering = _Remembering(self.fetch)
        limits = SubmissionLimits(retry_after_seconds=() if again else self.retry_after_seconds)
        verdict = await collect_solution(remembering, submission, limits, language=language)
        is_outage = isinstance(verdict, Rejected) and verdict.is_outage
        if remembering.last is not None:
            return Received.of(remembering.last), is_outage
        assert isinstance(verdict, Rejected), "nothing came, so nothing can have been accepted"
        return Received(None, code=verdict.code, reason=verdict.reason, is_outage=is_outage), is_outage

    async def reveal(self) -> Reveal | None:
        return self.revealed

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


def _missed_key(submitter: str = "") -> str:
    return f"outage/{submitter}"


async def any_missed(entries: RunEntries, run: str) -> bool:
    """Whether an entry of this run could not be read when it was first tried."""
    return bool(await entries.entries(run, _missed_key()))


async def left_unanswered(entries: Entries, run: str) -> dict[str, str]:
    """What a finished walk of this run left unanswered; nothing where none is finished."""
    saved = await entries.entry(run, "unanswered")
    return _UNANSWERED.read_text(saved) if saved else {}


async def close_unanswered(journal: Journal, unanswered: dict[str, str]) -> None:
    """A walk is finished: nobody is asked again for what it went without."""

    async def made() -> dict[str, str]:
        return unanswered

    await journal.once("unanswered", _UNANSWERED, made)


SHOWN_DIFFERENCES = 4


@dataclass(frozen=True, slots=True)
class TraceSources:
    """A trace's own evidence; what the trace does not hold cannot be asked for, what a URI holds cannot be replaced.

    What was run is run again, where the engine is here; `unchecked` says what was taken as the trace records it.
    """

    entries: Mapping[str, Any]
    machine: Machine | None = None
    unchecked: list[str] = field(default_factory=list)
    gives_up: bool = True
    """A trace is of a finished walk: what it went without stays away."""
    quotes: Quotes = field(default_factory=Quotes)
    keys: dict[tuple[str, str], SigningKey] = field(default_factory=dict)
    """Those whose enclave was checked, by judge and name."""

    @property
    def unanswered(self) -> Mapping[str, str]:
        found = self.entries.get("unanswered", {})
        if not isinstance(found, dict) or not all(isinstance(reason, str) for reason in found.values()):
            raise BadTrace("The entry unanswered does not hold reasons by request.", entry="unanswered")
        return found

    async def rulings(self) -> tuple[Ruling, ...]:
        return RULINGS.read(tuple(self._body("rulings")))

    async def disputed(self, challenge: Challenge) -> Disputed | None:
        return checked(self.entries.get("objections"), challenge, await self.rulings())

    async def metadata(self, challenge: Challenge) -> bytes:
        content = base64.b64decode(self._body("metadata")["content"])
        held = _held(challenge.challenge_uri)
        if is_data_uri(challenge.challenge_uri) and (held is None or content != held.content):
            raise BadTrace("The recorded metadata is not what the data: URI of the challenge holds.", entry="metadata")
        return content

    async def received(self, submission: Submission, language: str | None) -> Received:  # noqa: ARG002 - the port's shape
        key = f"solution/{submission.submitter}"
        received = RECEIVED.read(self._body(key)["received"])
        if is_data_uri(submission.solution_uri) and not _can_have_come(received, _held(submission.solution_uri)):
            raise BadTrace(f"What {key} records is not what its data: URI holds.", entry=key)
        return received

    async def reveal(self) -> Reveal | None:
        found = self.entries.get("execution") or {}
        if not found.get("hidden"):
            return None
        reveal = REVEAL.read({"content": found["reveal"]})
        if reveal.content is not None and _other_base64(reveal.content):
            raise BadTrace("The recorded reveal is base64 in another form than ours.", entry="execution")
        return reveal

    async def executed(self, account: Address, harness: Harness | None, program: Program) -> Executed:
        machine = _MACHINE.read(self._body("execution")["machine"])
        recorded = Executed.from_json(_EXECUTED.read({**self._body(f"executed/{account}"), "machine": machine}))
        if recorded.is_measured:
            again, why = await self._again(harness, program, machine)
            if again is not None:
                return again
        else:
            recorded, why = replace(recorded, machine={}), "the evaluator's machine failed on it"
        self.unchecked.append(f"that {account} measures what is recorded: {why}")
        return recorded

    async def _again(
        self, harness: Harness | None, program: Program, machine: Mapping[str, object]
    ) -> tuple[Executed | None, str]:
        """The run repeated here, or why it cannot be."""
        try:
            found = await run_here(self.machine, harness, program) if self.machine else None
        except MissingEngine as missing:
            return None, str(missing)
        if found is None:
            return None, "nothing was run again"
        if not found.is_measured:
            return None, f"this machine failed on it ({found.detail})"
        if found.machine and dict(found.machine) != dict(machine):
            return None, f"it was run with {_differences(machine, found.machine)}"
        return found, ""

    async def key_report(self, judge: str, key: str) -> KeyReport:
        for body in self._body("attestation"):
            report = KEY_REPORT.read(body)
            if (report.judge, report.key) == (judge, key):
                return report
        raise BadTrace(f"The trace holds no attestation of the key {key} of {judge}.", entry="attestation")

    def asker(self, name: str) -> Asker:
        return _RecordedAsker((name,), self)

    def reader(self, names: Sequence[str]) -> Asker:
        return _RecordedAsker(tuple(names), self)

    async def recorded(self, request: str, judge: str, prompt: Prompt) -> PaidAnswer | None:
        """The recorded answer; where the judge's endpoint signs, only with a signature that holds."""
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
                check_signed(prompt, answer, await self._key(judge, interface, signed.key), model)
        except NotAttested as bad:
            raise BadTrace(f"The signature of {request} of {judge} does not hold: {bad}.", entry=entry) from bad
        return PaidAnswer(request, "", judge, prompt.purpose, answer, None)

    async def _key(self, judge: str, interface: str, key: str) -> SigningKey:
        if (judge, key) not in self.keys:
            report = await self.key_report(judge, key)
            try:
                self.keys[judge, key] = check_key(interface, report, self.quotes)
            except NotAttested as bad:
                raise BadTrace(f"The key {key} of {judge} is not attested: {bad}.", entry="attestation") from bad
        return self.keys[judge, key]

    def _body(self, key: str) -> Any:
        if key not in self.entries:
            raise BadTrace(f"The trace has no entry {key}.", entry=key)
        return self.entries[key]


def _held(uri: str) -> Fetched | None:
    """What a `data:` URI holds, however much it is; None where it is malformed."""
    try:
        return read_data_uri(uri, len(uri))
    except BadSubmission:
        return None


def _other_base64(text: str) -> bool:
    return base64.b64encode(base64.b64decode(text)).decode() != text


def _can_have_come(received: Received, held: Fetched | None) -> bool:
    """Whether this can be the record of a URI that holds this, or that is malformed (None)."""
    if received.content is not None:
        return received.fetched() == held
    if held is None:
        return received.code in {"bad_data_uri", "too_large"}
    return received.code == "too_large" and len(held.content) > SubmissionLimits().max_bytes


@dataclass(frozen=True, slots=True)
class _RecordedAsker:
    names: tuple[str, ...]
    sources: TraceSources

    @property
    def name(self) -> str:
        return ", else ".join(self.names)

    async def prefetch(self, prompts: Sequence[Prompt]) -> None:
        """Everything is at hand."""

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        for name in self.names:
            request = request_hash(name, prompt, attempt)
            found = await self.sources.recorded(request, name, prompt)
            if found is not None:
                return found
        raise Temporary(f"The trace records no answer to {request_hash(self.name, prompt, attempt)}.")


def _differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    """Which versions and settings are not the same, in words: what the numbers depend on."""
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    told = [f"{name} {_word(theirs, name)} (here: {_word(ours, name)})" for name in names[:SHOWN_DIFFERENCES]]
    more = f", and {len(names) - len(told)} more that differ" if len(names) > len(told) else ""
    return f"{', '.join(told)}{more}"


def _word(machine: Mapping[str, object], name: str) -> str:
    return str(machine[name])[:40] if name in machine else "none"
