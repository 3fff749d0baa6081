"""The networks where challenges live, from `networks.json`; `local` has no fixed addresses: the settings carry them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    chain_id: int
    confirmations: int
    """Blocks on top of a transaction before it counts as final for us."""
    finality_tag: str
    """The block tag at which submissions may be pinned."""
    from_block: int
    factory: str | None = None
    identity_registry: str | None = None
    usdc: str | None = None
    explorer: str | None = None
    contracts: str = "1"
    """Which version of the contracts is deployed there."""
    reputation_registry: str | None = None
    """The canonical registry of feedback (ERC-8004), where its agents are those of the identity registry."""


_FACTS = json.loads(resources.files(__package__).joinpath("networks.json").read_text("utf-8"))
NETWORKS = {name: Network(name=name, **facts) for name, facts in _FACTS.items()}


def network_of_chain(chain_id: object) -> Network | None:
    """The network with this chain id, as a number or as its text; None where none is known."""
    return next((one for one in NETWORKS.values() if str(one.chain_id) == str(chain_id)), None)
