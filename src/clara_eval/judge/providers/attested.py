"""A wrapper around a model that accepts only answers signed inside an enclave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import Temporary
from clara_eval.judge.attestation import (
    KeyReport,
    NotAttested,
    Quotes,
    SigningKey,
    check_key,
    nonce_for,
)
from clara_eval.judge.attestation.checks import quote_of
from clara_eval.judge.outages import UnsignedAnswer
from clara_eval.judge.port import Answer, ConnectedLlm, Prompt
from clara_eval.judge.signed import check_signed

REPORT = JsonCodec(KeyReport)
PLACE = "attestation"
"""The journal under which the reports of all runs are kept: they outlive a run that is started anew."""


class SigningLlm(ConnectedLlm, Protocol):
    """A model at an endpoint that signs."""

    @property
    def interface(self) -> str: ...
    @property
    def model(self) -> str: ...

    async def report(self, key: str, nonce: str) -> str:
        """The attestation report of this key, as it came; Unsigned where there is none."""
        ...


class Reports(Protocol):
    """Where key reports are kept; the store fulfils it."""

    async def entry(self, run: str, key: str) -> str | None: ...
    async def entries(self, run: str, prefix: str) -> list[tuple[str, str]]: ...
    async def add_entry(self, run: str, key: str, value: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Attested:
    """An `Llm`."""

    llm: SigningLlm
    run: str
    reports: Reports
    quotes: Quotes = field(default_factory=Quotes)
    now: Callable[[], float] = time.time
    _keys: dict[str, tuple[KeyReport, SigningKey]] = field(default_factory=dict)
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
        except NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the answer's signature does not hold: {bad}.") from None
        return answer

    async def key_report(self, key: str) -> KeyReport:
        """Return the attestation of one key of this judge, as it goes into the trace."""
        return (await self._key(key))[0]

    async def _key(self, key: str) -> tuple[KeyReport, SigningKey]:
        async with self._turn:
            if key not in self._keys:
                report = await self._kept(key) or await self._fetched(key)
                self._keys[key] = report, self._checked(report)
            return self._keys[key]

    async def _kept(self, key: str) -> KeyReport | None:
        text = await self.reports.entry(PLACE, f"{self.name}/{key}/{self.run}")
        return REPORT.read_text(text) if text else None

    async def _fetched(self, key: str) -> KeyReport:
        try:
            report = await self._ask(key)
            self._checked(report)
        except Temporary:
            earlier = await self.reports.entries(PLACE, f"{self.name}/{key}/")
            if not earlier:
                raise
            return REPORT.read_text(earlier[-1][1])
        kept = await self.reports.add_entry(PLACE, f"{self.name}/{key}/{self.run}", REPORT.text(report))
        return REPORT.read_text(kept)

    async def _ask(self, key: str) -> KeyReport:
        text = await self.llm.report(key, nonce_for(self.run, self.name))
        try:
            collateral = await self.quotes.collateral(quote_of(self.llm.interface, key, text))
        except NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the key {key} is not attested: {bad}.") from None
        return KeyReport(self.run, self.name, key, text, collateral, int(self.now()))

    def _checked(self, report: KeyReport) -> SigningKey:
        try:
            return check_key(self.llm.interface, report, self.quotes)
        except NotAttested as bad:
            raise UnsignedAnswer(f"{self.name}: the key {report.key} is not attested: {bad}.") from None
