"""Which token counts as a dollar on a network, and what an amount of it is worth."""

from __future__ import annotations

from clara_eval.chain.model import PrizeToken
from clara_eval.config.networks import Network
from clara_eval.core.address import Address
from clara_eval.core.dollars import MICRO


def is_dollar(token: Address, network: Network) -> bool:
    """Whether one of this token counts as one dollar."""
    return network.usdc is None or token == network.usdc


def poses_as_dollar(token: Address, symbol: str, network: Network) -> bool:
    """Whether a token only calls itself what the network's own dollar is called."""
    return symbol.upper() in {"USD", "USDC"} and not is_dollar(token, network)


def worth_micro_usd(token: PrizeToken, amount: int, network: Network) -> int | None:
    """Return what an amount is worth; None if the token is not our dollar."""
    return amount * MICRO // int(10**token.decimals) if is_dollar(token.address, network) else None
