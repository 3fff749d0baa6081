"""The adapters of one caller: a poster, an agent, or somebody who only reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clara_eval.app.adapters import PERSON_RETRIES, Connections, chain_of, evaluator_address, person_account
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, is_dollar
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.stored_results import ApiRecords, StoreRecords
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.store.open import StoreOnDemand
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.fetch import IpfsContents


@dataclass(frozen=True, slots=True)
class Caller:
    """What the actions of one caller use; nodes, service and store are asked at the first use."""

    settings: Settings
    chain: EthereumChain
    account: EthereumAccount | None
    """The local wallet; without it transactions come back unsigned."""
    store: StoreOnDemand
    records: StoreRecords | ApiRecords
    contents: IpfsContents
    evaluator: Address | None
    """Clara's address, if it is known here."""
    is_local: bool
    """Whether the caller is at this machine: only then are files read, content pinned and the local key used."""
    pace: SendTimeouts
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One wallet does one thing at a time, so that two calls do not post twice."""
    known: list[Address] = field(default_factory=list)
    """Challenges of the factory met so far, oldest first."""
    seen: dict[Address, tuple[float, Challenge]] = field(default_factory=dict)
    """When a challenge was read last, with its state; only for remote callers."""

    @property
    def factory(self) -> Address:
        return to_address(self.settings.factory, what="CLARA_CHALLENGE_FACTORY")

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id

    async def connected(self) -> Connections:
        return Connections(self.settings, self.chain, await self.store.opened())

    def is_dollar(self, token: Address) -> bool:
        """Whether one of this token counts as a dollar: the network's own, or listed in CLARA_WALLET_TOKENS."""
        listed = (part.strip().lower() for part in self.settings.wallet_tokens.split(","))
        return is_dollar(token, self.settings.network) or token in listed

    def explorer(self, kind: str, value: str) -> str | None:
        base = self.settings.network.explorer
        return f"{base}/{kind}/{value}" if base else None

    def page(self, address: str) -> str | None:
        """The challenge's page at the service; None if no service is set."""
        return f"{self.settings.api_url.rstrip('/')}/challenges/{address}" if self.settings.api_url else None

    async def close(self) -> None:
        await self.store.close()
        await self.chain.close()


def make_caller(settings: Settings, *, is_local: bool, store: SqlStore | None = None) -> Caller:
    """Build a caller; a remote one never gets the local wallet, files or IPFS node."""
    chain = chain_of(settings, PERSON_RETRIES)
    evaluator = evaluator_address(settings)
    on_demand = StoreOnDemand(settings.database_url, store)
    is_remote = settings.api_url is not None and store is None
    return Caller(
        settings=settings,
        chain=chain,
        account=person_account(settings, chain, evaluator) if is_local else None,
        store=on_demand,
        records=ApiRecords(settings.api_url or "") if is_remote else StoreRecords(on_demand, settings.network.chain_id),
        contents=IpfsContents(settings.ipfs_api if is_local else None, settings.ipfs_gateway),
        evaluator=evaluator,
        is_local=is_local,
        pace=SendTimeouts(poll_seconds=0.05 if settings.network_name == "local" else 1.0, give_up_after_seconds=180.0),
    )


@asynccontextmanager
async def open_caller(
    settings: Settings, *, is_local: bool = True, store: SqlStore | None = None
) -> AsyncIterator[Caller]:
    caller = make_caller(settings, is_local=is_local, store=store)
    try:
        yield caller
    finally:
        await caller.close()
