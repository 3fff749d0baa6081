"""A wrapper around a model that accepts only answers signed inside an enclave."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.judge import attestation
from clara_eval.judge.completion import check_signed
from clara_eval.judge.port import Answer, Prompt, UnsignedAnswer
from clara_eval.judge.provider import JudgeName, JudgeStore
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.providers.wire import ModelReply

REPORT = JsonCodec(attestation.KeyReport)
PROOF_TRIES = 3
PROOF_PAUSE_SECONDS = 0.3
"""A signature may be a moment later than its answer."""
PLACE = "attestation"
"""The journal under which the reports of all runs are kept: they outlive a run that is started anew."""


class SigningOpenAi(OpenAiLlm):
    """An endpoint that signs: exact bytes are kept, the signature is fetched after the answer and checked elsewhere."""

    encodings = "identity"
    """Compressed bytes would not be the signed ones."""

    def __init__(self, model: str, *, api_key: str, base_url: str, interface: str) -> None:
        super().__init__(model, api_key=api_key, base_url=base_url, suffix=f"#{interface}")
        self._form = self._form._replace(verified=interface == "aci")
        self.interface = interface

    async def _answered(self, prompt: Prompt, sent: bytes, reply: ModelReply) -> Answer:
        answer = self._answer(reply.content, prompt)
        place, params = self._proof_place(reply.content, reply.headers.get("x-receipt-id"))
        proof = await self._document(place, params, "signature")
        try:
            key = attestation.key_name(self.interface, proof)
        except attestation.NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the answer's signature cannot be used: {bad}.") from None
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


def build_signing(judge: JudgeName, key: str) -> SigningOpenAi:
    assert judge.base_url is not None
    if not attestation.Quotes.can_check():
        raise ConfigError(f"{judge.text} is attested, and dcap-qvl is not installed.", remedy=attestation.INSTALL)
    return SigningOpenAi(judge.model, api_key=key, base_url=judge.base_url, interface=judge.attestation)


@dataclass(frozen=True, slots=True)
class Attested:
    """A signing model for one run; an `Llm` whose answers carry checked evidence."""

    llm: SigningOpenAi
    run: str
    store: JudgeStore
    quotes: attestation.Quotes = field(default_factory=attestation.Quotes)
    now: Callable[[], float] = time.time
    _keys: dict[str, tuple[attestation.KeyReport, attestation.SigningKey]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(self, prompt: Prompt) -> Answer:
        answer = await self.llm.complete(prompt)
        if answer.signed is None:
            raise UnsignedAnswer(f"{self.name}: the answer came without a signature.")
        try:
            check_signed(prompt, answer, (await self._key(answer.signed.key))[1], self.llm.model)
        except attestation.NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the answer's signature does not hold: {bad}.") from None
        return answer

    async def key_report(self, key: str) -> attestation.KeyReport:
        """Return the attestation of one key of this judge, as it goes into the trace."""
        return (await self._key(key))[0]

    async def _key(self, key: str) -> tuple[attestation.KeyReport, attestation.SigningKey]:
        async with self._turn:
            if key not in self._keys:
                text = await self.store.entry(PLACE, f"{self.name}/{key}/{self.run}")
                report = REPORT.read_text(text) if text else await self._fetched(key)
                self._keys[key] = report, self._checked(report)
            return self._keys[key]

    async def _fetched(self, key: str) -> attestation.KeyReport:
        try:
            report = await self._ask(key)
            self._checked(report)
        except Temporary:
            earlier = await self.store.entries(PLACE, f"{self.name}/{key}/")
            if not earlier:
                raise
            return REPORT.read_text(earlier[-1][1])
        kept = await self.store.add_entry(PLACE, f"{self.name}/{key}/{self.run}", REPORT.text(report))
        return REPORT.read_text(kept)

    async def _ask(self, key: str) -> attestation.KeyReport:
        text = await self.llm.report(key, attestation.nonce_for(self.run, self.name))
        try:
            collateral = await self.quotes.collateral(attestation.quote_of(self.llm.interface, key, text))
        except attestation.NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the key {key} is not attested: {bad}.") from None
        return attestation.KeyReport(self.run, self.name, key, text, collateral, int(self.now()))

    def _checked(self, report: attestation.KeyReport) -> attestation.SigningKey:
        try:
            return attestation.check_key(self.llm.interface, report, self.quotes)
        except attestation.NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the key {report.key} is not attested: {bad}.") from None
