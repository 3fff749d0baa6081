"""The evaluator's adapters, opened and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from clara_eval.app.adapters import (
    SERVICE_RETRIES,
    Connections,
    chain_of,
    evaluator_policy_of,
    factory_of,
    open_machine,
    publication_places,
)
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.sender import Receipt, SendTimeouts, TransactionSender
from clara_eval.chain.wallet import Wallet, open_wallet
from clara_eval.challenges.context import Options, Ports
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ConfigError
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.judge.providers.registry import build_llm, models_of, parse_jury
from clara_eval.store.open import open_store
from clara_eval.store.publication.publish_documents import Publication
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.fetch import UriFetch


@dataclass(frozen=True, slots=True)
class App(Connections):
    store: SqlStore
    sender: TransactionSender
    ports: Ports
    models: ModelPool
    places: tuple[Publication, ...] = ()
    """Where posted results are published; what gives a trace its address comes first."""
    wallet: Wallet | None = None
    """The evaluator's key with its policy; None is a dry run."""

    @property
    def evaluator(self) -> Address:
        """The address whose challenges are ours; ConfigError if neither key nor address is set."""
        if self.sender.can_sign or self.settings.evaluator_address:
            return self.sender.address
        raise ConfigError(
            "Neither CLARA_EVALUATOR_KEY nor CLARA_EVALUATOR_ADDRESS is set.",
            remedy="Set the key to post, or the address for a dry run.",
        )

    def build_models(self) -> int:
        """Build every model of the jury once, so that a missing key is found before a round needs it."""
        return len([build_llm(judge, self.settings) for judge in models_of(parse_jury(self.settings.judges))])

    def plan(self, *, schedule: str = "auto", max_games: int | None = None) -> EvaluationPlan:
        judges = tuple(judge.text for judge in parse_jury(self.settings.judges))
        return EvaluationPlan(judges, schedule, max_games)

    def options(
        self,
        plan: EvaluationPlan,
        *,
        seconds: float,
        sent: Callable[[Receipt], None],
        dry_run: bool = False,
        gives_up: bool = False,
    ) -> Options:
        return Options(self.settings, plan, seconds, gives_up=gives_up, dry_run=dry_run, sent=sent)


@asynccontextmanager
async def open_app(settings: Settings, *, pace: SendTimeouts | None = None) -> AsyncIterator[App]:
    """Open everything the service needs; nodes and models are asked at the first use."""
    wallet = open_wallet(settings, evaluator_policy_of(settings))
    store = await open_store(settings.database_url)
    chain = chain_of(settings, SERVICE_RETRIES)
    dry_address = to_address(settings.evaluator_address) if settings.evaluator_address else None
    account = EthereumAccount(chain, wallet, factory=factory_of(settings), dry_address=dry_address)
    sender = TransactionSender(account, store, pace or SendTimeouts())
    models = ModelPool(settings, store)
    fetch = UriFetch(settings.ipfs_gateway)
    machine = open_machine(settings)
    try:
        ports = Ports(chain, fetch, store, sender, models, machine)
        yield App(settings, chain, store, sender, ports, models, publication_places(settings), wallet)
    finally:
        machine.close()
        await models.close()
        await chain.close()
        await store.close()
