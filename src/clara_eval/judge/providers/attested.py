"""A wrapper around a model that accepts only answers signed inside an enclave."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import ClaraError, Temporary
from clara_eval.judge import attestation
from clara_eval.judge.completion import check_signed
from clara_eval.judge.port import Answer, Prompt, UnsignedAnswer
from clara_eval.judge.provider import JudgeStore
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.providers.wire import ModelReply

REPORT = JsonCodec(attestation.KeyReport)
PROOF_TRIES = 3
PROOF_PAUSE_SECONDS = 0.3  # a signature may be a moment later than its answer
PLACE = "attestation"
"""The journal under which the reports of all runs are kept: they outlive a run that is started anew."""


@contextmanager
def _checking(what: str) -> Iterator[None]:
    """Turn evidence that does not hold into an outage of the endpoint."""
    try:
        yield
    except attestation.NotAttested as bad:
        raise UnsignedAnswer(f"{what}: {bad}.") from None


class SigningOpenAi(OpenAiLlm):
    """An endpoint that signs: exact bytes are kept, the signature is fetched after the answer and checked elsewhere."""

    async def _answered(self, prompt: Prompt, sent: bytes, reply: ModelReply) -> Answer:
        answer = await super()._answered(prompt, sent, reply)
        place, params = self._proof_place(reply.content, reply.headers.get("x-receipt-id"))
        proof = await self._document(place, params, "signature")
        with _checking(f"{self.name}: the answer's signature cannot be used"):
            key = attestation.key_name(self.interface, proof)
        request_text, response_text = (base64.b64encode(part).decode() for part in (sent, reply.content))
        return replace(answer, signed=attestation.Signed(self.interface, key, request_text, response_text, proof))

    def _proof_place(self, content: bytes, receipt: str | None) -> tuple[str, dict[str, str]]:
        if self.interface == "aci":
            if not receipt:
                raise UnsignedAnswer(f"{self.name}: the answer came without a receipt.")
            return f"/aci/receipts/{quote(receipt, safe='')}", {}
        name = json.loads(content).get("id")
        if not isinstance(name, str) or not name:
            raise UnsignedAnswer(f"{self.name}: the answer came without an id, so its signature cannot be found.")
        return f"/signature/{quote(name, safe='')}", {"model": self.model, "signing_algo": "ecdsa"}

    async def report(self, key: str, nonce: str) -> str:
        if self.interface == "aci":
            return await self._document("/aci/attestation", {"nonce": nonce}, "attestation")
        params = {"model": self.model, "nonce": nonce, "signing_algo": "ecdsa", "signing_address": key}
        return await self._document("/attestation/report", params, "attestation")

    async def _document(self, place: str, params: dict[str, str], what: str) -> str:
        """Fetch a document; any failure is the endpoint's outage."""
        for attempt in range(PROOF_TRIES):
            await asyncio.sleep(attempt * PROOF_PAUSE_SECONDS)
            try:
                reply = await self._wire.get(place, params)
                if reply.is_ok:
                    return reply.content.decode()
                reason = self._wire.refusal(reply).message
            except UnicodeDecodeError:
                raise UnsignedAnswer(f"{self.name}: its {what} is not text.") from None
            except ClaraError as bad:
                reason = bad.message
        raise UnsignedAnswer(f"{self.name} gave no {what}: {reason}")


@dataclass(frozen=True, slots=True)
class Attested:
    """A signing model for one run; an `Llm` whose answers carry checked evidence."""

    llm: SigningOpenAi
    run: str
    store: JudgeStore
    quotes: attestation.Quotes = field(default_factory=attestation.Quotes)
    _keys: dict[str, tuple[attestation.KeyReport, attestation.SigningKey]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(self, prompt: Prompt) -> Answer:
        answer = await self.llm.complete(prompt)
        assert answer.signed is not None
        _, key = await self._key(answer.signed.key)
        with _checking(f"{self.name}: the answer's signature does not hold"):
            check_signed(prompt, answer, key, self.llm.model)
        return answer

    async def key_report(self, key: str) -> attestation.KeyReport:
        """Return the attestation of one key of this judge, as it goes into the trace."""
        return (await self._key(key))[0]

    async def _key(self, key: str) -> tuple[attestation.KeyReport, attestation.SigningKey]:
        async with self._turn:
            if key not in self._keys:
                report = await self._report(key)
                self._keys[key] = report, self._checked(report)
            return self._keys[key]

    async def _report(self, key: str) -> attestation.KeyReport:
        """Return this run's attestation of a key, or the latest of an earlier run if none can be had now."""
        name = f"{self.name}/{key}/{self.run}"
        text = await self.store.entry(PLACE, name)
        if text is None:
            try:
                report = await self._fetch(key)
            except Temporary:
                earlier = await self.store.entries(PLACE, f"{self.name}/{key}/")
                if not earlier:
                    raise
                return REPORT.read_text(earlier[-1][1])
            text = await self.store.add_entry(PLACE, name, REPORT.text(report))
        return REPORT.read_text(text)

    async def _fetch(self, key: str) -> attestation.KeyReport:
        text = await self.llm.report(key, attestation.nonce_for(self.run, self.name))
        with _checking(f"{self.name}: the key {key} is not attested"):
            collateral = await self.quotes.collateral(attestation.quote_of(self.llm.interface, key, text))
        report = attestation.KeyReport(self.run, self.name, key, text, collateral, int(time.time()))
        self._checked(report)
        return report

    def _checked(self, report: attestation.KeyReport) -> attestation.SigningKey:
        with _checking(f"{self.name}: the key {report.key} is not attested"):
            return attestation.check_key(self.llm.interface, report, self.quotes)
