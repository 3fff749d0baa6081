"""Build chains, signing policies, publishers, fetchers and the harness machine from settings."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.chain.transaction import SigningPolicy, evaluator_policy
from clara_eval.chain.wallet import Wallet
from clara_eval.config.settings import Network, Settings, listed
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.harness import Machine
from clara_eval.store.publication.cloudflare_kv import CloudflareKv
from clara_eval.store.publication.ipfs import IpfsPublication
from clara_eval.store.publication.publish_documents import Publication
from clara_eval.submissions.fetch import UriFetch

SERVICE_RETRIES = NodeRetries()  # for the service: each request to a node ends within a minute
PERSON_RETRIES = NodeRetries(pauses=(0.1, 0.3, 0.6), total_seconds=45.0)  # for commands: a person waits


def chain_of(settings: Settings, retries: NodeRetries) -> EthereumChain:
    rpc = Rpc(listed(settings.rpc_url), chain_id=settings.network.chain_id, retries=retries)
    return EthereumChain(rpc, settings.network, first_block=settings.first_block)


@asynccontextmanager
async def open_chain(network: Network, rpc_url: str, *, first_block: int | None = None) -> AsyncIterator[EthereumChain]:
    """Open a network through the given node, to check a result independently."""
    rpc = Rpc([rpc_url], chain_id=network.chain_id, retries=PERSON_RETRIES)
    chain = EthereumChain(rpc, network, first_block=first_block)
    try:
        yield chain
    finally:
        await chain.close()


def factory_of(settings: Settings) -> Address | None:
    known = settings.challenge_factory or settings.network.factory
    return to_address(known) if known else None


def evaluator_policy_of(settings: Settings) -> SigningPolicy:
    registry = reputation_registry(settings)
    return evaluator_policy(settings.network.chain_id, contracts=settings.network.contracts, reputation=registry)


def reputation_registry(settings: Settings) -> Address | None:
    """Return the feedback registry; None if feedback is off, ConfigError if it is on without one."""
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
    """Return the evaluator's address as set, else of its key or keystore; None if unknown."""
    if settings.evaluator_address:
        return to_address(settings.evaluator_address)
    if settings.evaluator_key is not None:
        return Wallet(settings.evaluator_key, evaluator_policy_of(settings)).address
    if settings.evaluator_keystore is not None:
        try:
            return to_address("0x" + json.loads(settings.evaluator_keystore.read_text())["address"].removeprefix("0x"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadInput):
            return None
    return None


def publication_places(settings: Settings) -> tuple[Publication, ...]:
    is_public = settings.traces_public != "never"
    ipfs = [IpfsPublication(settings.ipfs_api)] if settings.ipfs_api and is_public else []
    return (*ipfs, *([CloudflareKv(*kv, api=settings.kv_url)] if (kv := settings.kv) is not None else []))


def open_fetch(settings: Settings) -> UriFetch:
    return UriFetch(settings.ipfs_gateway)


def open_machine(settings: Settings) -> Machine:
    return Machine(solc=settings.solc, cache=settings.cache_dir.expanduser())
