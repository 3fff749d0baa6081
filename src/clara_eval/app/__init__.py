"""Build adapters from settings: an `App` for the evaluator, a `Caller` for everyone else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clara_eval.app import adapters
from clara_eval.app.adapters import evaluator_address, open_chain, open_fetch, open_machine, reputation_registry
from clara_eval.app.judges import check_judges, open_jury, plan_of
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, is_dollar
from clara_eval.chain.sender import SendTimeouts, TransactionSender
from clara_eval.chain.wallet import Wallet, agent_policy, open_wallet
from clara_eval.challenges.context import Options, Ports
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.challenges.stored_results import ApiRecords, StoreRecords
from clara_eval.config.settings import Settings, listed
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ConfigError
from clara_eval.store.open import StoreOnDemand, open_store
from clara_eval.store.publication.publish_documents import Publication
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.fetch import IpfsContents

__all__ = [
    "Options", "SendTimeouts", "check_judges", "evaluator_address", "open_chain", "open_fetch", "open_jury",
    "open_machine", "plan_of", "reputation_registry",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class App(Ports):
    settings: Settings
    places: tuple[Publication, ...] = ()  # publishers of posted results; one that gives a trace its URI comes first
    wallet: Wallet | None = None  # the evaluator's key with its policy; None: dry run

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id

    @property
    def evaluator(self) -> Address:
        """Return the address whose challenges are ours; ConfigError if neither key nor address is set."""
        if self.sender.can_sign or self.settings.evaluator_address:
            return self.sender.address
        raise ConfigError(
            "Neither CLARA_EVALUATOR_KEY nor CLARA_EVALUATOR_ADDRESS is set.",
            remedy="Set the key to post, or the address for a dry run.",
        )


@asynccontextmanager
async def open_app(settings: Settings, *, pace: SendTimeouts | None = None) -> AsyncIterator[App]:
    """Open everything the service needs; nodes and models are contacted at first use."""
    wallet = open_wallet(settings, adapters.evaluator_policy_of(settings))
    store = await open_store(settings.database_url)
    chain = adapters.chain_of(settings, adapters.SERVICE_RETRIES)
    dry_address = to_address(settings.evaluator_address) if settings.evaluator_address else None
    account = EthereumAccount(chain, wallet, factory=adapters.factory_of(settings), dry_address=dry_address)
    sender = TransactionSender(account, store, pace or SendTimeouts())
    models, machine = ModelPool(settings, store), open_machine(settings)
    try:
        parts = (chain, open_fetch(settings), store, sender, models, machine)
        yield App(*parts, settings=settings, places=adapters.publication_places(settings), wallet=wallet)
    finally:
        machine.close()
        await models.close()
        await chain.close()
        await store.close()


@dataclass(frozen=True, slots=True)
class Caller:
    """What the actions of one caller use; nodes, service and store are contacted at first use."""

    settings: Settings
    chain: EthereumChain
    account: EthereumAccount | None  # the local wallet; None: transactions are returned unsigned
    store: StoreOnDemand
    records: StoreRecords | ApiRecords
    contents: IpfsContents
    evaluator: Address | None
    is_local: bool  # the caller is on this machine and may use its files, IPFS node and wallet key
    pace: SendTimeouts
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while the wallet acts: no call posts twice
    known: list[Address] = field(default_factory=list)  # challenges of the factory read so far, oldest first
    seen: dict[Address, tuple[float, Challenge]] = field(default_factory=dict)  # last read of a challenge, and when

    @property
    def factory(self) -> Address:
        return to_address(self.settings.factory, what="CLARA_CHALLENGE_FACTORY")

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id

    def is_dollar(self, token: Address) -> bool:
        """Return whether a token counts as a dollar: the network's own, or in CLARA_WALLET_TOKENS."""
        return is_dollar(token, self.settings.network) or token in listed(self.settings.wallet_tokens.lower())

    def explorer(self, kind: str, value: str) -> str | None:
        base = self.settings.network.explorer
        return f"{base}/{kind}/{value}" if base else None

    def page(self, address: str) -> str | None:
        """Return the URL of the challenge's page; None if no service is set."""
        return f"{self.settings.api_url.rstrip('/')}/challenges/{address}" if self.settings.api_url else None

    async def close(self) -> None:
        await self.store.close()
        await self.chain.close()


def make_caller(settings: Settings, *, is_local: bool, store: SqlStore | None = None) -> Caller:
    """Build a caller; a remote one never gets the local wallet, files or IPFS node."""
    chain = adapters.chain_of(settings, adapters.PERSON_RETRIES)
    evaluator = evaluator_address(settings)
    on_demand, chain_id = StoreOnDemand(settings.database_url, store), settings.network.chain_id
    is_remote = settings.api_url is not None and store is None
    account = None
    if is_local and settings.wallet_key is not None:
        factory, contracts = adapters.factory_of(settings), settings.network.contracts
        policy = agent_policy(chain_id, factory=factory, evaluator=evaluator, contracts=contracts)
        wallet = Wallet(settings.wallet_key, policy, name="CLARA_WALLET_KEY")
        # For posters and agents one confirmation is enough.
        account = EthereumAccount(chain, wallet, factory=factory, confirmations=1)
    return Caller(
        settings=settings,
        chain=chain,
        account=account,
        store=on_demand,
        records=ApiRecords(settings.api_url or "", chain_id) if is_remote else StoreRecords(on_demand, chain_id),
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
