"""The caps on spending, and the minimum prize."""

from __future__ import annotations

from clara_eval.config.settings import Settings
from clara_eval.core.dollars import MICRO, micro_usd
from clara_eval.core.errors import Deferred
from clara_eval.judge.costs.ledger import Caps

LOOK_AGAIN_SECONDS = 6 * 3600
"""A prize does not grow, but a setting may change: the challenge is looked at a few times a day."""


def caps_of(settings: Settings) -> Caps:
    month = micro_usd(settings.budget_per_month_usd)
    return Caps(
        per_challenge=micro_usd(settings.budget_per_challenge_usd),
        per_poster_day=micro_usd(settings.budget_per_poster_day_usd),
        per_month=month,
        new_posters_month=None if month is None else int(month * settings.new_posters_share),
    )


def check_prize(worth: int | None, min_prize_usd: float | None, now: int) -> None:
    """Raise `Deferred` for a prize under the minimum, or of unknown worth if there is a minimum."""
    least = micro_usd(min_prize_usd)
    if not least or (worth is not None and worth >= least):
        return
    found = "of no known worth in dollars does not reach" if worth is None else f"of ${worth / MICRO:.2f} is under"
    raise Deferred(
        f"The prize {found} the minimum of ${least / MICRO:.2f}.",
        remedy="The poster may post the scores; the operator may lower CLARA_MIN_PRIZE_USD.",
        retry_at=now + LOOK_AGAIN_SECONDS,
    )
