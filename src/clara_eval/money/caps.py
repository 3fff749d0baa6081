"""How much may be spent, and whether a challenge is worth it.

Comes in: the settings and a prize. Goes out: `Caps` in millionths of a dollar, and the worth of a prize in dollars
where it is known. Under the minimum prize a challenge is `Deferred`, with the reason and the moment it is looked at
again. A token that is not the network's known dollar has no known worth: it never passes for a prize.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal

from clara_eval.challenge.model import Token
from clara_eval.errors import Deferred
from clara_eval.networks import Network
from clara_eval.settings import Settings
from clara_eval.trace.store import Caps

MICRO = 1_000_000
LOOK_AGAIN_SECONDS = 6 * 3600
"""A prize does not grow, but a setting may change: the challenge is looked at a few times a day."""


def caps_of(settings: Settings) -> Caps:
    """The caps of these settings, rounded down to the millionth of a dollar."""
    return Caps(
        per_challenge=micro_usd(settings.budget_per_challenge_usd),
        per_poster_day=micro_usd(settings.budget_per_poster_day_usd),
        per_month=micro_usd(settings.budget_per_month_usd),
    )


def micro_usd(usd: float | None) -> int | None:
    """Dollars as the setting says them, in millionths; None stays None: no bound."""
    if usd is None:
        return None
    return int((Decimal(str(usd)) * MICRO).to_integral_value(rounding=ROUND_DOWN))


def worth_micro_usd(token: Token, amount: int, network: Network) -> int | None:
    """What an amount is worth, where the token is the network's dollar; a symbol proves nothing."""
    is_dollar = network.usdc is None or token.address == network.usdc
    if not is_dollar:
        return None
    return amount * MICRO // int(10**token.decimals)


def check_prize(worth: int | None, min_prize_usd: float | None, now: int) -> None:
    """Raise `Deferred` for a prize under the minimum, or of unknown worth where a minimum is set."""
    least = micro_usd(min_prize_usd)
    if not least or (worth is not None and worth >= least):
        return
    found = "of no known worth in dollars does not reach" if worth is None else f"of ${worth / MICRO:.2f} is under"
    raise Deferred(
        f"The prize {found} the minimum of ${least / MICRO:.2f}.",
        remedy="The poster may post the scores; the operator may lower CLARA_MIN_PRIZE_USD.",
        retry_at=now + LOOK_AGAIN_SECONDS,
    )
