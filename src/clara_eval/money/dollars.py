"""What is a dollar: the one rule by which a token counts as one, and how amounts of dollars are written.

Comes in: a token and the network, whose dollar is `CLARA_USDC` where that is set (`Settings.network`). Goes out:
whether the token is a dollar, and what an amount of it is worth in millionths of one. A symbol proves nothing: only the
address counts. A local chain for which no dollar is set is a rehearsal: there every token counts as one.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import overload

from clara_eval.challenge.model import Address, Token
from clara_eval.networks import Network

MICRO = 1_000_000


def is_dollar(token: Address, network: Network) -> bool:
    """Whether one of this token counts as one dollar."""
    return network.usdc is None or token == network.usdc


def poses_as_dollar(token: Address, symbol: str, network: Network) -> bool:
    """Whether a token only calls itself what the network's own dollar is called."""
    return symbol.upper() in {"USD", "USDC"} and not is_dollar(token, network)


def worth_micro_usd(token: Token, amount: int, network: Network) -> int | None:
    """What an amount of a token is worth; None where the token is not our dollar."""
    return amount * MICRO // int(10**token.decimals) if is_dollar(token.address, network) else None


def micro_usd(usd: float | None) -> int | None:
    """Dollars as the setting says them, in millionths, rounded down; None stays None: no bound."""
    if usd is None:
        return None
    return int((Decimal(str(usd)) * MICRO).to_integral_value(rounding=ROUND_DOWN))


@overload
def usd(micro: int) -> str: ...
@overload
def usd(micro: None) -> None: ...
@overload
def usd(micro: int | None) -> str | None: ...
def usd(micro: int | None) -> str | None:
    """Millionths of a dollar as a decimal number without loss; None stays None: nobody knows."""
    return None if micro is None else f"{micro // MICRO}.{micro % MICRO:06d}"
