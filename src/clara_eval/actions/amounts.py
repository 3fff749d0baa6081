"""Parse and format amounts, moments, durations and payouts exactly; only `round_amount` rounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from clara_eval.chain.model import PrizeToken
from clara_eval.core.errors import BadInput
from clara_eval.core.untrusted import escaped
from clara_eval.documents.results import Token

_AMOUNT = re.compile(
    r"\$?\s*(\d{1,3}(?:[_,]\d{3})+|\d{1,30})(?:\.(\d{1,36}))?\s*([A-Za-z][A-Za-z0-9.]{0,15})?", re.ASCII
)
_SPAN = re.compile(r"(?:in\s+)?((?:\d{1,7}(?:\.\d{1,6})?\s*[a-z]+\s*)+)", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.ASCII)
_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600}
_SECONDS |= {"d": 86400, "day": 86400, "w": 604800, "week": 604800}

SPLITS: dict[str, tuple[int, ...]] = {
    "top1": (10000,),
    "top3": (6000, 2500, 1500),
    "top5": (4000, 2500, 1500, 1000, 1000),
}
MAX_WINNERS = 25


def parse_amount(text: str, token: PrizeToken, *, is_dollar: bool = True) -> int:
    """Return base units; a currency in the text must be the token's symbol, or dollars if `is_dollar`."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{text[:40]!r} is not an amount.", remedy='Write it like "100" or "12.5 USDC".')
    whole, fraction, symbol = found.group(1), found.group(2) or "", found.group(3)
    asked = {(symbol or "").lower(), "usd" if text.strip().startswith("$") else ""}
    if not asked <= {"", token.symbol.lower(), *(["usd"] if is_dollar else [])}:
        raise BadInput(
            f"The amount is in {symbol or 'dollars'}, but the prize token is {token.symbol}.",
            remedy="Give the amount in the prize token, or name another token by its address.",
        )
    if len(fraction.rstrip("0")) > token.decimals:
        raise BadInput(f"{text[:40]!r} has more decimals than {token.symbol} ({token.decimals}).")
    return int(re.sub("[_,]", "", whole) + fraction.rstrip("0").ljust(token.decimals, "0"))


def show_amount(units: int, token: PrizeToken | Token) -> str:
    """Format as `12.50 USDC`, without rounding."""
    whole, rest = divmod(units, 10**token.decimals)
    fraction = str(rest).rjust(token.decimals, "0").rstrip("0") if rest else ""
    return f"{whole}{'.' + fraction.ljust(min(2, token.decimals), '0') if fraction else ''} {token.symbol}"


def round_amount(units: int, token: PrizeToken | Token) -> str:
    """Format as `1,250.00 USDC` for a column; ≈ marks an amount cut to two decimals."""
    cents, rest = divmod(units * 100, 10**token.decimals)
    return f"{'≈' if rest else ''}{cents // 100:,}.{cents % 100:02d} {escaped(token.symbol)[:12]}"


def parse_span(text: str) -> int | None:
    """Return the seconds in "7 days" or "1d 12h"; None if the text is not a duration."""
    found = _SPAN.fullmatch(text.strip().lower().replace(",", " "))
    if found is None:
        return None
    total = 0.0
    for number, unit in _PART.findall(found.group(1)):
        seconds = _SECONDS.get(unit) or (_SECONDS.get(unit.removesuffix("s")) if len(unit) > 2 else None)
        if seconds is None:
            return None
        total += float(number) * seconds
    return round(total)


def parse_deadline(text: str, now: int) -> int:
    """Return a future Unix time from a duration after `now`, a timestamp, or a date with a time zone."""
    if (span := parse_span(text)) is not None:
        moment = now + span
    elif re.fullmatch(r"[0-9]{9,11}", text.strip()):
        moment = int(text)
    else:
        try:
            date = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadInput(
                f"deadline {text[:40]!r} is not a moment.",
                remedy='Write "7 days", "36h", or a date with its time zone: "2026-12-01T12:00:00Z".',
            ) from None
        if date.tzinfo is None:
            raise BadInput(f"deadline {text[:40]!r} has no time zone.", remedy='Add one, such as "Z" for UTC.')
        moment = int(date.timestamp())
    if moment <= now:
        raise BadInput(f"The deadline {text[:40]!r} is not in the future.", remedy='Say for example "7 days".')
    if moment > now + 10 * 366 * 86400:
        raise BadInput(f"The deadline {text[:40]!r} is more than ten years away.")
    return moment


def parse_payout(payout: str | Sequence[int], winner_count: int | None = None) -> tuple[int, ...]:
    """Return basis points from `top1`, `top3`, `top5`, `equal` (needs a winner count), or a list."""
    shares = _parse_split(payout, winner_count) if isinstance(payout, str) else tuple(payout)
    if not 1 <= len(shares) <= MAX_WINNERS:
        raise BadInput(f"{len(shares)} winners are not possible.", path="payout", remedy=f"1 to {MAX_WINNERS} are.")
    if any(not isinstance(share, int) or not 0 < share <= 10000 for share in shares) or sum(shares) != 10000:
        raise BadInput(
            f"The shares {list(shares)} do not pay out the whole prize.",
            path="payout",
            remedy="Give basis points above 0 that sum to 10000, best first.",
        )
    if winner_count is not None and winner_count != len(shares):
        raise BadInput(
            f"{len(shares)} shares cannot pay {winner_count} winners.",
            path="winnerCount",
            remedy="Leave winnerCount away, or give one share for each winner.",
        )
    return shares


def _parse_split(payout: str, winner_count: int | None) -> tuple[int, ...]:
    name = payout.strip().lower()
    if name in SPLITS:
        return SPLITS[name]
    if name == "equal":
        if winner_count is None or not 1 <= winner_count <= MAX_WINNERS:
            raise BadInput(
                "An equal split needs the number of winners.", path="winnerCount", remedy=f"Give 1 to {MAX_WINNERS}."
            )
        share = 10000 // winner_count
        return (*[share] * (winner_count - 1), 10000 - share * (winner_count - 1))
    try:
        return tuple(int(part) for part in name.split(","))
    except ValueError:
        raise BadInput(
            f"{payout[:40]!r} is not a payout split.",
            path="payout",
            remedy="Use top1, top3, top5, equal, or basis points such as 5000,3000,2000.",
        ) from None


def show_count(count: int, noun: str) -> str:
    """Format as `one winner` or `3 winners`."""
    return f"one {noun}" if count == 1 else f"{count} {noun}s"


def show_moment(at: int) -> str:
    """Format as `2026-12-01 12:00:00 UTC`, or as `second N` outside the calendar."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {at}"


def show_wait(seconds: int) -> str:
    """Format the two largest units: `2 d 3 h`, `12 min`, `40 s`."""
    parts = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(max(0, seconds), size)
        parts += [f"{count} {name}"] if count else []
    return " ".join(parts[:2]) or "0 s"
