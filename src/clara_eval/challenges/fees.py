"""Compute the fee of an evaluation, paid by the platform, the prize pool or the poster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from clara_eval.core.errors import BadInput
from clara_eval.core.model import MICRO

FeeMode = Literal["platform", "prize_pool", "poster"]

SHARE_BPS = 100  # Of the prize pool
MIN_FEE_USD = 1
MAX_FEE_USD = 50


@dataclass(frozen=True, slots=True)
class Fee:
    mode: FeeMode
    amount: int  # The fee in base units, 0 if the platform pays
    escrow: int  # The prize pool that goes into the contract
    total: int  # The poster's payment without the contract's bond
    decimals: int

    @property
    def shown(self) -> str:
        if self.amount == 0:
            return "The platform pays for the evaluation."
        words = "is taken from the prize pool before escrow" if self.mode == "prize_pool" else "is added to the prize"
        return f"The evaluation fee of ${dollars(self.amount, self.decimals)} {words}."


def fee(mode: FeeMode, prize_pool_units: int, decimals: int, quote_micro_usd: int | None = None) -> Fee:
    """Compute the fee of one challenge, rounded down to base units; a quote is rounded up."""
    if mode not in get_args(FeeMode):
        remedy = f"Use one of: {', '.join(get_args(FeeMode))}."
        raise BadInput(f"Fee mode {mode!r} is not known.", path="feeMode", remedy=remedy)
    if prize_pool_units <= 0:
        raise BadInput("The prize pool has to be more than 0.", path="prizePool")
    if not 0 <= decimals <= 36:
        raise BadInput(f"{decimals} decimals are not usable for a token.", path="decimals")
    if mode == "platform":
        return Fee(mode, 0, prize_pool_units, prize_pool_units, decimals)
    dollar: int = 10**decimals
    if mode == "poster":
        if quote_micro_usd is None:
            text = "The poster pays the evaluation, and its price is not known: a judge has no known token price."
            raise BadInput(text, path="quote", remedy="Choose judges with known prices, or another fee mode.")
        if quote_micro_usd < 0:
            raise BadInput("A quote cannot be negative.", path="quote")
        amount = -(-quote_micro_usd * dollar // MICRO)
        return Fee(mode, amount, prize_pool_units, prize_pool_units + amount, decimals)
    amount = min(max(prize_pool_units * SHARE_BPS // 10_000, MIN_FEE_USD * dollar), MAX_FEE_USD * dollar)
    if amount >= prize_pool_units:
        raise BadInput(
            f"A prize pool of ${dollars(prize_pool_units, decimals)} leaves nothing after the evaluation fee of "
            f"${dollars(amount, decimals)}.",
            path="prizePool",
            remedy=f"Offer more than ${dollars(amount, decimals)}.",
        )
    return Fee(mode, amount, prize_pool_units - amount, prize_pool_units, decimals)


def dollars(units: int, decimals: int) -> str:
    whole, rest = divmod(units, 10**decimals)
    digits = f"{rest:0{decimals}d}" if decimals else ""
    return f"{whole}.{digits.rstrip('0').ljust(2, '0')}"
