"""Joins the adapters for what posters and agents do, as `app` does for the evaluation.

Comes in: the settings. Goes out: a `Desk`. Nothing is asked of a node, a service or a store before the first action
does, so a server without any settings still starts and says what it can do. A caller from elsewhere (`is_local=False`)
never gets the local wallet, local files or the local IPFS node.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from clara_eval.chain.agent_node import AgentNode
from clara_eval.chain.rpc import Rpc
from clara_eval.chain.wallet import Wallet
from clara_eval.challenge.model import Address, to_address
from clara_eval.errors import BadInput, ConfigError
from clara_eval.eval_config import EvalConfig
from clara_eval.fetch.contents import IpfsContents
from clara_eval.publish.policy import agent_policy, evaluator_policy
from clara_eval.settings import Settings
from clara_eval.store.rows import ApiRecords, StoreRecords
from clara_eval.trace.store import Store
from clara_eval.use_cases.port import Desk, Quote


@dataclass(frozen=True, slots=True)
class OpenedDesk:
    """A desk and how to close what is behind it."""

    desk: Desk
    close: Callable[[], Awaitable[None]]


def make_desk(settings: Settings, *, is_local: bool, store: Store | None = None) -> OpenedDesk:
    """One caller's desk; nothing is connected yet. A store that is given stays its owner's."""
    rpc = Rpc(settings.rpc_urls, chain_id=settings.network.chain_id, rounds=2)
    records = _records(settings, store)
    evaluator = evaluator_address(settings)

    async def close() -> None:
        await records.close()
        await rpc.close()

    desk = Desk(
        settings=settings,
        node=AgentNode(rpc),
        wallet=_wallet(settings, evaluator) if is_local else None,
        records=records,
        contents=IpfsContents(settings.ipfs_api if is_local else None, settings.ipfs_gateway),
        quote=_quote(settings),
        evaluator=evaluator,
        is_local=is_local,
    )
    return OpenedDesk(desk, close)


@asynccontextmanager
async def open_desk(settings: Settings, *, is_local: bool = True, store: Store | None = None) -> AsyncIterator[Desk]:
    """The same as a context."""
    opened = make_desk(settings, is_local=is_local, store=store)
    try:
        yield opened.desk
    finally:
        await opened.close()


def _records(settings: Settings, store: Store | None) -> StoreRecords | ApiRecords:
    if settings.api_url and store is None:
        return ApiRecords(settings.api_url)
    return StoreRecords(settings.database_url, settings.network.chain_id, store)


def _wallet(settings: Settings, evaluator: Address | None) -> Wallet | None:
    if settings.wallet_key is None:
        return None
    try:
        factory = to_address(settings.factory)
    except ConfigError:
        factory = None  # nothing can be posted then; the policy refuses what needs it
    policy = agent_policy(settings.network.chain_id, factory=factory, evaluator=evaluator)
    return Wallet(settings.wallet_key, policy, name="CLARA_WALLET_KEY")


def evaluator_address(settings: Settings) -> Address | None:
    """Clara's address: as set, else of the evaluator's key or keystore; None if neither is here."""
    if settings.evaluator_address:
        return to_address(settings.evaluator_address)
    if settings.evaluator_key is not None:
        return Wallet(settings.evaluator_key, evaluator_policy(settings.network.chain_id)).address
    if settings.evaluator_keystore is not None:
        try:
            return to_address("0x" + json.loads(settings.evaluator_keystore.read_text())["address"].removeprefix("0x"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadInput):
            return None
    return None


def _quote(settings: Settings) -> Quote:
    def of(config: EvalConfig, entries: int) -> int | None:
        from clara_eval.llm.registry import parse_jury, price_cards
        from clara_eval.use_cases.quote import quote

        jury = parse_jury(settings.judges)
        return quote(config, entries, jury, price_cards(settings, jury))

    return of
