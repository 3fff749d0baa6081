"""The networks where challenges live, as facts: chain id, factory, first block, registry, USDC, explorer.

`local` has no fixed addresses: a devnet prints them and the settings carry them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    chain_id: int
    factory: str | None
    from_block: int
    identity_registry: str | None
    usdc: str | None
    explorer: str | None
    confirmations: int
    """Blocks on top of a transaction before it counts as final for us."""
    finality_tag: str
    """The block tag at which submissions may be pinned."""
    contracts: str = "1"
    """Which version of the contracts is deployed there."""
    reputation_registry: str | None = None
    """The canonical registry of feedback (ERC-8004), where its agents are those of the identity registry."""


NETWORKS = {
    "base": Network(
        name="base",
        chain_id=8453,
        factory="0x4eafc31ee6b06bbe71e3c2f66afe9429f8554c0d",
        from_block=42040783,
        identity_registry="0x8004a169fb4a3325136eb29fa0ceb6d2e539a432",
        usdc="0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        explorer="https://basescan.org",
        confirmations=10,
        finality_tag="safe",
        reputation_registry="0x8004baa17c55a88189ae136b182e5fda19de9b63",
    ),
    "base-sepolia": Network(
        name="base-sepolia",
        chain_id=84532,
        factory="0x76b61d018dc6697954cedc7c0854b66e942783d8",
        from_block=37504827,
        identity_registry="0xaee21064f9f7c24fd052cc3598a60cc50591d1b3",
        usdc="0xfc4568a4d4cdf01eb929346e215889a5d12d0113",
        explorer="https://sepolia.basescan.org",
        confirmations=3,
        finality_tag="safe",
    ),
    "local": Network(
        name="local",
        chain_id=31337,
        factory=None,
        from_block=0,
        identity_registry=None,
        usdc=None,
        explorer=None,
        confirmations=1,
        finality_tag="latest",
    ),
}


def network_of_chain(chain_id: object) -> Network | None:
    """The network with this chain id, as a number or as its text; None where none is known."""
    return next((one for one in NETWORKS.values() if str(one.chain_id) == str(chain_id)), None)
