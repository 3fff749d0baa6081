"""The sources of a replay: what a trace recorded, checked against what can be recomputed."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clara_eval.core.address import Address
from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadSubmission, BadTrace, Temporary
from clara_eval.core.submission import Submission
from clara_eval.evaluation.execution import REVEAL, Reveal, run_here
from clara_eval.evaluation.rulings import RULINGS, Ruling
from clara_eval.evaluation.sources import RECEIVED, Received, SubmissionResult
from clara_eval.harness import Executed, Harness, Machine, MissingEngine
from clara_eval.harness import HarnessSubmission as Program
from clara_eval.harness.model import ExecutedDocument
from clara_eval.judge.attestation import KeyReport, NotAttested, Quotes, Signed, SigningKey, check_key
from clara_eval.judge.completion import check_signed, signing
from clara_eval.judge.port import Answer, Asker, PaidAnswer, Prompt, request_hash
from clara_eval.submissions.data_uri import is_data_uri, read_data_uri
from clara_eval.submissions.model import Fetched, SubmissionLimits

Bodies = Mapping[str, Any]
"""The body of each entry of a trace by its key."""
ANSWER = JsonCodec(Answer)
SIGNED = JsonCodec(Signed)
KEY_REPORT = JsonCodec(KeyReport)
_EXECUTED = JsonCodec(ExecutedDocument)
_MACHINE = JsonCodec(dict[str, str | int | float | bool])
SHOWN_DIFFERENCES = 4


@dataclass(frozen=True, slots=True)
class TraceSources:
    """The evidence of a trace. What was run is run again if the engine is here; `unchecked` lists what was not."""

    entries: Bodies
    machine: Machine | None = None
    unchecked: list[str] = field(default_factory=list)
    gives_up: bool = True
    """A trace is of a finished run: what it went without stays away."""
    quotes: Quotes = field(default_factory=Quotes)
    keys: dict[tuple[str, str], SigningKey] = field(default_factory=dict)
    """Those whose enclave was checked, by judge and name."""

    @property
    def unanswered(self) -> Mapping[str, str]:
        found = self.entries.get("unanswered", {})
        if not isinstance(found, dict) or not all(isinstance(reason, str) for reason in found.values()):
            raise BadTrace("The entry unanswered does not hold reasons by request.", entry="unanswered")
        return found

    @property
    def rulings(self) -> tuple[Ruling, ...]:
        return RULINGS.read(tuple(self._body("rulings")))

    @property
    def reveal(self) -> Reveal | None:
        found = self.entries.get("execution") or {}
        if not found.get("hidden"):
            return None
        reveal = REVEAL.read({"content": found["reveal"]})
        if reveal.content is not None and _other_base64(reveal.content):
            raise BadTrace("The recorded reveal is base64 in another form than ours.", entry="execution")
        return reveal

    async def submission(self, submission: Submission, language: str | None) -> SubmissionResult:
        key = f"solution/{submission.submitter}"
        received = RECEIVED.read(self._body(key)["received"])
        if is_data_uri(submission.solution_uri) and not _matches_data_uri(received, submission):
            raise BadTrace(f"What {key} records is not what its data: URI holds.", entry=key)
        return SubmissionResult.of(submission, received, language)

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
        """The recorded answer; if the judge's endpoint signs, only with a valid signature."""
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


def recorded_metadata(entries: Bodies, uri: str) -> bytes:
    """The metadata of a trace; BadTrace if it is not what a `data:` URI of the challenge holds."""
    if "metadata" not in entries:
        raise BadTrace("The trace has no entry metadata.", entry="metadata")
    content = base64.b64decode(entries["metadata"]["content"])
    held = _held(uri)
    if is_data_uri(uri) and (held is None or content != held.content):
        raise BadTrace("The recorded metadata is not what the data: URI of the challenge holds.", entry="metadata")
    return content


def _held(uri: str) -> Fetched | None:
    """What a `data:` URI holds, whatever its size; None if it is malformed."""
    try:
        return read_data_uri(uri, len(uri))
    except BadSubmission:
        return None


def _other_base64(text: str) -> bool:
    return base64.b64encode(base64.b64decode(text)).decode() != text


def _matches_data_uri(received: Received, submission: Submission) -> bool:
    held = _held(submission.solution_uri)
    if received.content is not None:
        return received.fetched(submission) == held
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
    """The versions and settings that differ, in words."""
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    told = [f"{name} {_word(theirs, name)} (here: {_word(ours, name)})" for name in names[:SHOWN_DIFFERENCES]]
    more = f", and {len(names) - len(told)} more that differ" if len(names) > len(told) else ""
    return f"{', '.join(told)}{more}"


def _word(machine: Mapping[str, object], name: str) -> str:
    return str(machine[name])[:40] if name in machine else "none"
