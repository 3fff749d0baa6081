"""The only place where settings become adapters: an `App` for the evaluator, a `Caller` for everybody else.

Both stand on the same chain, sender and store. Nothing is connected that is not needed: the node is asked when a room
first asks it, models are built when a run opens them. Leaving the context closes all of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clara_eval.chain.dollars import is_dollar
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge
from clara_eval.chain.retries import NodeRetries
from clara_eval.chain.rpc import Rpc
from clara_eval.chain.sender import Receipt, SendTimeouts, TransactionSender
from clara_eval.chain.sending import EthereumAccount
from clara_eval.chain.signing_policy import SigningPolicy, agent_policy, evaluator_policy
from clara_eval.chain.wallet import Wallet, open_wallet
from clara_eval.challenges.evaluate import Options, Ports
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.challenges.stored_results import MAX_TRACE_BYTES, ApiRecords, StoreRecords
from clara_eval.config.networks import Network
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.dollars import micro_usd
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.evaluation.plan import EvaluationPlan
from clara_eval.harness import Machine
from clara_eval.judge.cached_llm import CachedLlm
from clara_eval.judge.costs.prices import FREE
from clara_eval.judge.costs.run_budget import RunBudget
from clara_eval.judge.port import PaidAnswer
from clara_eval.judge.providers.registry import (
    build_llm,
    models_of,
    parse_jury,
    price_cards,
    token_limits,
)
from clara_eval.judge.retry import RetryPolicy
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.store.on_demand import StoreOnDemand
from clara_eval.store.open import open_store, opened_store
from clara_eval.store.ports import Store
from clara_eval.store.publication.cloudflare_kv import CloudflareKv
from clara_eval.store.publication.ipfs import IpfsPublication
from clara_eval.store.publication.port import Publication
from clara_eval.store.sql_store import SqlStore
from clara_eval.submissions.fetch import FetchLimits, UriFetch, Web
from clara_eval.submissions.fetch.contents import IpfsContents

SERVICE_RETRIES = NodeRetries()
"""Of the service's questions to nodes: each ends within a minute."""
PERSON_RETRIES = NodeRetries(pauses=(0.1, 0.3, 0.6), total_seconds=45.0)
"""Of a person's commands: somebody waits for the answer."""
CALIBRATION_RUN = "calibration"
"""The run under which answers about labelled pairs are kept."""


@dataclass(frozen=True, slots=True)
class App:
    settings: Settings
    store: SqlStore
    chain: EthereumChain
    sender: TransactionSender
    ports: Ports
    models: ModelPool
    places: tuple[Publication, ...] = ()
    """Where posted results are published beside this store; what gives a trace its address comes first."""
    wallet: Wallet | None = None
    """The evaluator's key with its policy; None is a dry run."""

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
        return Options(
            network=self.settings.network,
            plan=plan,
            review_above_usd=self.settings.review_above_usd,
            calibration=self.settings.calibration,
            calibration_floor=self.settings.calibration_floor,
            objection_window=self.settings.objection_window,
            objection_judge=self.settings.objection_judge,
            seconds=seconds,
            dry_run=dry_run,
            gives_up=gives_up,
            sent=sent,
        )


@asynccontextmanager
async def open_app(settings: Settings, *, pace: SendTimeouts | None = None) -> AsyncIterator[App]:
    """Everything a door needs, closed again on leaving."""
    wallet = open_wallet(settings, _evaluator_policy(settings))
    store = await open_store(settings.database_url)
    chain = _chain(settings, SERVICE_RETRIES)
    dry_address = to_address(settings.evaluator_address) if settings.evaluator_address else None
    account = EthereumAccount(chain, wallet, factory=_factory(settings), dry_address=dry_address)
    sender = TransactionSender(account, store, pace or SendTimeouts())
    models = ModelPool(settings, store)
    fetch = UriFetch(settings.ipfs_gateway)
    machine = open_machine(settings)
    try:
        ports = Ports(chain, fetch, store, sender, models, machine)
        yield App(settings, store, chain, sender, ports, models, publication_places(settings), wallet)
    finally:
        machine.close()
        await models.close()
        await chain.close()
        await store.close()


def publication_places(settings: Settings) -> tuple[Publication, ...]:
    """Every place that the settings name, in the order in which results go there."""
    places: list[Publication] = []
    if settings.ipfs_api and settings.traces_public != "never":
        places.append(IpfsPublication(settings.ipfs_api))
    if (kv := settings.kv) is not None:
        places.append(CloudflareKv(*kv, api=settings.kv_url))
    return tuple(places)


def trace_fetch(settings: Settings) -> UriFetch:
    """Reads traces from IPFS: larger than any submission, so with limits of their own."""
    return UriFetch(settings.ipfs_gateway, Web(FetchLimits(max_bytes=MAX_TRACE_BYTES, total_seconds=300.0)))


@asynccontextmanager
async def open_chain(network: Network, rpc_url: str, *, first_block: int | None = None) -> AsyncIterator[EthereumChain]:
    """A reader of one network through somebody's own node, for those who check."""
    chain = EthereumChain(
        Rpc([rpc_url], chain_id=network.chain_id, retries=PERSON_RETRIES), network, first_block=first_block
    )
    try:
        yield chain
    finally:
        await chain.close()


@asynccontextmanager
async def open_reader(settings: Settings, judges: str = "") -> AsyncIterator[StructuredLlm | None]:
    """The first model of the jury, with the challenge's cap; nothing is kept. None where the jury has no model."""
    models = models_of(parse_jury(judges or settings.judges))[:1]
    if not models:
        yield None
        return
    llm = build_llm(models[0], settings)
    card = price_cards(settings, models)[models[0].text]
    budget = RunBudget(None if card == FREE else micro_usd(settings.budget_per_challenge_usd))
    try:
        line = CachedLlm(llm, _NoBook(), run="rehearsal", budget=budget, card=card, policy=RetryPolicy(tries=3))
        yield StructuredLlm(line, token_limits(settings, models))
    finally:
        await llm.close()


@asynccontextmanager
async def open_jury(
    settings: Settings, judges: str = ""
) -> AsyncIterator[tuple[dict[str, StructuredLlm | None], SqlStore]]:
    """Every judge of the jury with the cap of one challenge, and the store that keeps their answers; None: no model."""
    jury = parse_jury(judges or settings.judges)
    async with opened_store(settings.database_url) as store:
        pool = ModelPool(settings.model_copy(update={"judges_as_set": ",".join(judge.text for judge in jury)}), store)
        free = all(card == FREE for card in price_cards(settings, jury).values())
        budget = RunBudget(None if free else micro_usd(settings.budget_per_challenge_usd))
        models, limits = {judge.text for judge in models_of(jury)}, token_limits(settings, jury)
        try:
            yield (
                {
                    j.text: StructuredLlm(pool.line(j.text, CALIBRATION_RUN, budget, 3600.0), limits)
                    if j.text in models
                    else None
                    for j in jury
                },
                store,
            )
        finally:
            await pool.close()


class _NoBook:
    """A rehearsal keeps nothing."""

    async def answers(self, _requests: Sequence[str]) -> dict[str, PaidAnswer]:
        return {}

    async def answered(self, _requests: Sequence[str]) -> set[str]:
        return set()

    async def save_answer(self, paid: PaidAnswer) -> PaidAnswer:
        return paid


@dataclass(frozen=True, slots=True)
class Caller:
    """What the use cases of one caller have at hand: a poster, an agent, or somebody who looks.

    Nothing is asked of a node, a service or a store before the first use case does.
    """

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
    """Whether the caller sits at this machine: only then are files read, content pinned and the local key used."""
    pace: SendTimeouts
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One wallet does one thing at a time: two calls at once must not post the same thing twice."""
    known: list[Address] = field(default_factory=list)
    """Challenges of the factory met so far, oldest first."""
    seen: dict[Address, tuple[float, Challenge]] = field(default_factory=dict)
    """When a challenge was read last, and what it said; only for callers from elsewhere."""

    @property
    def factory(self) -> Address:
        return to_address(self.settings.factory, what="CLARA_CHALLENGE_FACTORY")

    @property
    def chain_id(self) -> int:
        return self.settings.network.chain_id

    def is_dollar(self, token: Address) -> bool:
        """Whether one of this token counts as a dollar: the network's own, or listed in CLARA_WALLET_TOKENS."""
        listed = (part.strip().lower() for part in self.settings.wallet_tokens.split(","))
        return is_dollar(token, self.settings.network) or token in listed

    def explorer(self, kind: str, value: str) -> str | None:
        base = self.settings.network.explorer
        return f"{base}/{kind}/{value}" if base else None

    def page(self, address: str) -> str | None:
        """The challenge's page at the service, for people; None where no service is set."""
        return f"{self.settings.api_url.rstrip('/')}/challenges/{address}" if self.settings.api_url else None

    async def close(self) -> None:
        await self.store.close()
        await self.chain.close()


def make_caller(settings: Settings, *, is_local: bool, store: Store | None = None) -> Caller:
    """One caller; nothing is connected yet. A store that is given stays its owner's.

    A caller from elsewhere never gets the local wallet, local files or the local IPFS node.
    """
    chain = _chain(settings, PERSON_RETRIES)
    evaluator = evaluator_address(settings)
    on_demand = StoreOnDemand(settings.database_url, store)
    is_remote = settings.api_url is not None and store is None
    return Caller(
        settings=settings,
        chain=chain,
        account=_person(settings, chain, evaluator) if is_local else None,
        store=on_demand,
        records=ApiRecords(settings.api_url or "") if is_remote else StoreRecords(on_demand, settings.network.chain_id),
        contents=IpfsContents(settings.ipfs_api if is_local else None, settings.ipfs_gateway),
        evaluator=evaluator,
        is_local=is_local,
        pace=SendTimeouts(poll_seconds=0.05 if settings.network_name == "local" else 1.0, give_up_after_seconds=180.0),
    )


@asynccontextmanager
async def open_caller(
    settings: Settings, *, is_local: bool = True, store: Store | None = None
) -> AsyncIterator[Caller]:
    """The same as a context."""
    caller = make_caller(settings, is_local=is_local, store=store)
    try:
        yield caller
    finally:
        await caller.close()


def _chain(settings: Settings, retries: NodeRetries) -> EthereumChain:
    rpc = Rpc(settings.rpc_urls, chain_id=settings.network.chain_id, retries=retries)
    return EthereumChain(rpc, settings.network, first_block=settings.first_block)


def _factory(settings: Settings) -> Address | None:
    known = settings.challenge_factory or settings.network.factory
    return to_address(known) if known else None


def _person(settings: Settings, chain: EthereumChain, evaluator: Address | None) -> EthereumAccount | None:
    """A poster's or agent's own wallet. For a person a transaction counts when it is in a block."""
    if settings.wallet_key is None:
        return None
    factory, network = _factory(settings), settings.network
    policy = agent_policy(network.chain_id, factory=factory, evaluator=evaluator, contracts=network.contracts)
    wallet = Wallet(settings.wallet_key, policy, name="CLARA_WALLET_KEY")
    return EthereumAccount(chain, wallet, factory=factory, confirmations=1)


def _evaluator_policy(settings: Settings) -> SigningPolicy:
    registry = reputation_registry(settings)
    return evaluator_policy(settings.network.chain_id, contracts=settings.network.contracts, reputation=registry)


def reputation_registry(settings: Settings) -> Address | None:
    """Where feedback is given; None where that is off. ConfigError where it is on and no registry is known."""
    if settings.reputation == "off":
        return None
    known = settings.reputation_registry or settings.network.reputation_registry
    if known is None:
        raise ConfigError(
            f"CLARA_REPUTATION={settings.reputation}, and the network {settings.network_name!r} has no registry.",
            remedy="Set CLARA_REPUTATION_REGISTRY, or CLARA_REPUTATION=off.",
        )
    return to_address(known)


def evaluator_address(settings: Settings) -> Address | None:
    """Clara's address: as set, else of the evaluator's key or keystore; None if neither is here."""
    if settings.evaluator_address:
        return to_address(settings.evaluator_address)
    if settings.evaluator_key is not None:
        return Wallet(settings.evaluator_key, _evaluator_policy(settings)).address
    if settings.evaluator_keystore is not None:
        try:
            return to_address("0x" + json.loads(settings.evaluator_keystore.read_text())["address"].removeprefix("0x"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadInput):
            return None
    return None


def open_machine(settings: Settings) -> Machine:
    """The machine as the operator's settings say it."""
    return Machine(solc=settings.solc, cache=settings.cache_dir.expanduser())
