"""The only place where adapters are built and joined: settings in, an `App` with everything open out.

`open_app` connects nothing that is not needed: the node is asked when a room first asks it, models are built when a
run seats them. Leaving the context closes all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from clara_eval.chain.node import EthereumChain
from clara_eval.chain.rpc import Rpc
from clara_eval.chain.sending import EthereumAccount
from clara_eval.chain.wallet import open_wallet
from clara_eval.challenge.model import Address, to_address
from clara_eval.errors import ConfigError
from clara_eval.fetch import UriFetch
from clara_eval.judge.calls import JudgeLine, Patience
from clara_eval.judge.port import Asker, PaidAnswer
from clara_eval.llm.registry import build_llm, models_of, parse_jury, price_cards
from clara_eval.model_pool import ModelPool
from clara_eval.money.dollars import micro_usd
from clara_eval.money.prices import FREE
from clara_eval.money.run_budget import RunBudget
from clara_eval.networks import Network
from clara_eval.pipeline.evaluate import Options, Ports
from clara_eval.pipeline.plan import Plan
from clara_eval.pipeline.status import Status
from clara_eval.publish.policy import evaluator_policy
from clara_eval.publish.send import Pace, TransactionSender
from clara_eval.settings import Settings
from clara_eval.store.open import open_store
from clara_eval.store.sql_store import SqlStore


@dataclass(frozen=True, slots=True)
class App:
    settings: Settings
    store: SqlStore
    chain: EthereumChain
    sender: TransactionSender
    ports: Ports
    bench: ModelPool

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id

    @property
    def evaluator(self) -> Address:
        """Whose challenges are ours; an error where neither key nor address is set."""
        if self.sender.can_sign or self.settings.evaluator_address:
            return self.sender.address
        raise ConfigError(
            "Neither CLARA_EVALUATOR_KEY nor CLARA_EVALUATOR_ADDRESS is set.",
            remedy="Set the key to post, or the address for a dry run.",
        )

    def build_models(self) -> int:
        """Build every model of the jury once, so that a missing key is known before a round needs it."""
        return len([build_llm(judge, self.settings) for judge in models_of(parse_jury(self.settings.judges))])

    def plan(self, *, schedule: str = "auto", max_games: int | None = None) -> Plan:
        judges = tuple(judge.text for judge in parse_jury(self.settings.judges))
        return Plan(judges, schedule, max_games)

    def options(
        self, plan: Plan, *, dry_run: bool = False, listener: Callable[[Status], None] | None = None
    ) -> Options:
        return Options(
            network=self.settings.network,
            plan=plan,
            evaluator=self.evaluator,
            review_above_usd=self.settings.review_above_usd,
            dry_run=dry_run,
            listener=listener,
        )


@asynccontextmanager
async def open_app(settings: Settings, *, pace: Pace | None = None) -> AsyncIterator[App]:
    """Everything a door needs, closed again on leaving."""
    wallet = open_wallet(settings, evaluator_policy(settings.network.chain_id))
    store = await open_store(settings.database_url)
    rpc = Rpc(settings.rpc_urls, chain_id=settings.network.chain_id)
    chain = EthereumChain(rpc, settings.network, first_block=settings.first_block)
    known = settings.challenge_factory or settings.network.factory
    factory = to_address(known) if known else None
    dry_address = to_address(settings.evaluator_address) if settings.evaluator_address else None
    account = EthereumAccount(chain, wallet, factory=factory, dry_address=dry_address)
    sender = TransactionSender(account, store, pace or Pace())
    bench = ModelPool(settings, store)
    fetch = UriFetch(settings.ipfs_gateway)
    try:
        yield App(settings, store, chain, sender, Ports(chain, fetch, store, sender, bench), bench)
    finally:
        await bench.close()
        await chain.close()
        await store.close()


@asynccontextmanager
async def open_chain(network: Network, rpc_url: str) -> AsyncIterator[EthereumChain]:
    """A reader of one network through somebody's own node, for those who check."""
    chain = EthereumChain(Rpc([rpc_url], chain_id=network.chain_id), network)
    try:
        yield chain
    finally:
        await chain.close()


@asynccontextmanager
async def open_reader(settings: Settings, judges: str = "") -> AsyncIterator[Asker | None]:
    """The first model of the jury, with the challenge's cap; nothing is kept. None where the jury has no model."""
    models = models_of(parse_jury(judges or settings.judges))[:1]
    if not models:
        yield None
        return
    llm = build_llm(models[0], settings)
    card = price_cards(settings, models)[models[0].text]
    budget = RunBudget(None if card == FREE else micro_usd(settings.budget_per_challenge_usd))
    try:
        yield JudgeLine(llm, _NoBook(), run="rehearsal", budget=budget, card=card, patience=Patience(tries=3))
    finally:
        await llm.close()


class _NoBook:
    """A rehearsal keeps nothing."""

    async def answers(self, _requests: Sequence[str]) -> dict[str, PaidAnswer]:
        return {}

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        return paid
