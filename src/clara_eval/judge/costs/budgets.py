"""Prices of model calls, spending caps, and the budgets of one run and of one entry's extraction.

Amounts are millionths of a dollar, rounded up. An unknown price is None, never free.
Invariant: the worst case of a call is reserved within all caps before the call; without an answer it counts in full.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError, Deferred, OutOfBudget
from clara_eval.core.extras import require
from clara_eval.core.model import MICRO, micro_usd
from clara_eval.judge.port import Answer, AnswerCut, Prompt

PICO = 1_000_000  # picodollars in a microdollar; a dollar per million tokens is this many picodollars per token
BATCH_DIVISOR = 2  # Message Batches cost half the price of single calls
HIDDEN_TOKENS = 1024  # worst case of what a provider adds to a prompt: roles and instructions about the schema
BYTES_PER_TOKEN = 3.5  # to estimate code and JSON; the worst case is one token per byte, which no tokenizer exceeds


@dataclass(frozen=True, slots=True)
class PriceCard:
    """Picodollars per token, by kind of token; `beyond` is the card for more than `up_to` input tokens."""

    input: int
    output: int
    cached: int
    cache_write: int
    up_to: int | None = None
    beyond: PriceCard | None = None

    def cost(self, answer: Answer, *, batch: bool = False) -> int:
        kinds = answer.input_tokens, answer.output_tokens, answer.cached_tokens, answer.cache_write_tokens
        return self.price(*kinds, batch=batch)

    def price(self, sent: int, answered: int, cached: int = 0, written: int = 0, *, batch: bool = False) -> int:
        """Return the cost of these tokens; `sent` includes those cached and those written to a cache."""
        card = self._card(sent)
        total = card.input * max(0, sent - cached - written) + card.output * answered
        return _to_micro(total + card.cached * cached + card.cache_write * written, batch=batch)

    def worst(self, prompt: Prompt, *, batch: bool = False) -> int:
        """Return the most that one call can cost: one token per byte, nothing cached, the longest answer."""
        tokens = len((prompt.system + prompt.user).encode()) + len(prompt.schema_json) + HIDDEN_TOKENS
        card = self._card(tokens)
        return _to_micro(max(card.input, card.cache_write) * tokens + card.output * prompt.max_tokens, batch=batch)

    def _card(self, input_tokens: int) -> PriceCard:
        if self.beyond is None or self.up_to is None or input_tokens <= self.up_to:
            return self
        return self.beyond


def _to_micro(pico: int, *, batch: bool) -> int:
    return -(-pico // (PICO * BATCH_DIVISOR if batch else PICO))


FREE = PriceCard(0, 0, 0, 0)


def estimated_tokens(text: str) -> int:
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def parse_prices(text: str) -> dict[str, PriceCard]:
    """Parse `CLARA_PRICES`: a comma list of `JUDGE=INPUT/OUTPUT`, in dollars per million tokens."""
    cards: dict[str, PriceCard] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, amounts = part.rpartition("=")
        try:
            rates = [_pico_per_token(Fraction(amount.strip())) for amount in amounts.split("/")]
        except (ValueError, ZeroDivisionError):
            rates = []
        if not name or len(rates) != 2 or min(rates) < 0:
            raise ConfigError(
                f"CLARA_PRICES: {part[:100]!r} is not a price.",
                remedy="Write JUDGE=INPUT/OUTPUT in dollars per million tokens, for example "
                "openai:qwen3@http://host/v1=0.1/0.4.",
            )
        cards[name.strip().rstrip("/")] = PriceCard(rates[0], rates[1], rates[0], rates[0])
    return cards


def _pico_per_token(usd_per_million: Fraction) -> int:
    return math.ceil(usd_per_million * PICO)


def no_price(judge: str) -> ConfigError:
    return ConfigError(
        f"{judge} has no known price, so the budget cannot be kept.",
        # Quoted, so that a log that shortens addresses keeps the text after it.
        remedy=f'Name it: CLARA_PRICES="{judge}"=INPUT/OUTPUT in dollars per million tokens (0/0 for your own '
        "machine), or set the CLARA_BUDGET_… caps to none.",
    )


def public_price(model: str, provider: str, at: datetime, address: str | None = None) -> PriceCard | None:
    """Return the price in the public table, by address or by provider; None if unknown."""
    require(provider, f"The price of {model}")
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, known = get_snapshot().find_provider_model(model, None, None if address else provider, address)
    except LookupError:
        return None
    prices = known.get_prices(at)
    if prices.input_mtok is None or prices.output_mtok is None:
        return None

    def rate(name: str, start: int, instead: int = 0) -> int:
        price = getattr(prices, name)
        if price is None:
            return instead
        tiers = [tier.price for tier in getattr(price, "tiers", ()) if tier.start <= start]
        return _pico_per_token(Fraction(tiers[-1] if tiers else getattr(price, "base", price)))

    starts = sorted({tier.start for price in vars(prices).values() for tier in getattr(price, "tiers", ())})
    card: PriceCard | None = None
    # From the highest tier down: each card holds the one beyond it.
    for start, up_to in reversed(list(zip([0, *starts], [*starts, None], strict=True))):
        normal = rate("input_mtok", start)
        cached, written = rate("cache_read_mtok", start, normal), rate("cache_write_mtok", start, normal)
        card = PriceCard(normal, rate("output_mtok", start), cached, written, up_to, card)
    return card


KNOWN_AFTER_SECONDS = 7 * 86400  # a poster is known this long after the first paid evaluation


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds in millionths of a dollar; None is no bound."""

    per_challenge: int | None
    per_poster_day: int | None
    per_month: int | None
    new_posters_month: int | None = None  # part of `per_month` for all new posters: many new accounts cannot use it up

    @property
    def tightest(self) -> int | None:
        caps = (self.per_challenge, self.per_poster_day, self.per_month)
        return min((cap for cap in caps if cap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Spend:
    """One line of the ledger: an amount that is reserved first and settled to the real cost later."""

    id: int
    run: str
    poster: str
    purpose: str
    reserved_micro_usd: int
    settled_micro_usd: int | None
    at: int


RECHECK_SECONDS = 6 * 3600  # until the next attempt: a prize does not grow, but the operator may change a setting


def caps_of(settings: Settings) -> Caps:
    month = micro_usd(settings.budget_per_month_usd)
    return Caps(
        per_challenge=micro_usd(settings.budget_per_challenge_usd),
        per_poster_day=micro_usd(settings.budget_per_poster_day_usd),
        per_month=month,
        new_posters_month=None if month is None else int(month * settings.new_posters_share),
    )


def check_prize(worth: int | None, min_prize_usd: float | None, now: int) -> None:
    """Raise Deferred for a prize below the minimum, or of unknown worth if there is a minimum."""
    least = micro_usd(min_prize_usd)
    if not least or (worth is not None and worth >= least):
        return
    found = "of no known worth in dollars does not reach" if worth is None else f"of ${worth / MICRO:.2f} is under"
    raise Deferred(
        f"The prize {found} the minimum of ${least / MICRO:.2f}.",
        remedy="The poster may post the scores; the operator may lower CLARA_MIN_PRIZE_USD.",
        retry_at=now + RECHECK_SECONDS,
    )


WASTE_TIMES = 2  # a run stops when unusable answers cost this many times its estimate
LEAST_WASTE = 500_000  # millionths of a dollar; no run stops for less


Extend = Callable[[int], Awaitable[int]]
"""Given a run's total need, returns its new cap. Raises Deferred if a cap of the ledger is exceeded."""


@dataclass(slots=True)
class RunBudget:
    """The money of one run, in millionths of a dollar."""

    cap_micro_usd: int | None  # None: no bound
    spent: int = 0  # by this and earlier attempts, without `reserved`
    lost: int = 0  # the part of `spent` for calls without an answer (worst case) and for unusable answers
    reserved: int = 0  # for calls in flight
    unsure_micro_usd: int = 0  # what this attempt may have paid for nothing, without answers the next will collect
    kept_micro_usd: int = 0  # for comparisons: other calls do not use it
    extend: Extend | None = None
    most_wasted: int | None = None  # no call is made once unusable answers cost this much; None: no bound
    wasted: int = 0  # by this and earlier attempts
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, judge: str, card: PriceCard | None, prompt: Prompt, wait: float = math.inf) -> int:
        return (await self.reserve_all(judge, card, (prompt,), wait))[0]

    async def reserve_all(
        self, judge: str, card: PriceCard | None, prompts: Sequence[Prompt], wait: float = math.inf, batch: bool = False
    ) -> list[int]:
        """Reserve the worst case of every call, all or nothing. Raises TimeoutError after a `wait` of seconds."""
        if card is None:
            if self.cap_micro_usd is not None:
                raise no_price(judge)
            return [0] * len(prompts)
        if self.most_wasted is not None and self.wasted >= self.most_wasted:
            raise OutOfBudget(
                f"Answers that cannot be used cost ${self.wasted / MICRO:.2f} so far, {WASTE_TIMES} times the estimate "
                "of the whole round or more: no more is asked.",
                remedy=f"Is {judge} the right model, and does its endpoint take a JSON Schema? Name another judge in "
                "CLARA_JUDGES; if its answers are cut, raise CLARA_ANSWER_TOKENS and evaluate anew "
                "(`evaluate --restart`).",
                is_lost=True,
                retry_after_seconds=RECHECK_SECONDS,
            )
        amounts = [card.worst(prompt, batch=batch) for prompt in prompts]
        needed = sum(amounts)
        kept = 0 if all(prompt.purpose == "comparison" for prompt in prompts) else self.kept_micro_usd
        ends_at = asyncio.get_running_loop().time() + wait
        while self.cap_micro_usd is not None and self.spent + self.reserved + needed + kept > self.cap_micro_usd:
            async with asyncio.timeout_at(ends_at):
                if self.reserved:
                    self._freed.clear()
                    await self._freed.wait()
                elif not await self._extend_cap(self.cap_micro_usd, needed + kept):
                    raise self._out_of_budget(self.cap_micro_usd, needed, kept)
        self.reserved += needed
        return amounts

    async def _extend_cap(self, cap: int, needed: int) -> bool:
        try:
            most = await self.extend(self.spent + needed) if self.extend else cap
        except Deferred:
            return False  # the cap of the day or month is reached: the run goes on within its own
        self.cap_micro_usd = max(self.cap_micro_usd or cap, most)
        return self.cap_micro_usd > cap

    def charge(self, reserved: int, cost: int | None) -> None:
        self.spent += cost or 0
        self.release(reserved)

    def lose(self, cost: int) -> None:
        """Count the cost of an answer that was charged and is not saved."""
        self.lost += cost
        self.waste(cost)

    def waste(self, cost: int) -> None:
        """Count the cost of unusable answers."""
        self.unsure_micro_usd += cost
        self.wasted += cost

    def charge_unanswered(self, reserved: int, *, is_collected_later: bool = False) -> None:
        """Count the whole reservation of a call that was sent and not answered as spent.

        `is_collected_later`: the next attempt fetches this answer from the provider and pays for it then.
        """
        self.lost += reserved
        self.unsure_micro_usd += 0 if is_collected_later else reserved
        self.charge(reserved, reserved)

    def release(self, reserved: int) -> None:
        self.reserved -= reserved
        self._freed.set()

    def _out_of_budget(self, cap: int, worst: int, kept: int) -> OutOfBudget:
        for_comparisons = f", ${kept / MICRO:.2f} is kept for comparisons" if kept else ""
        return OutOfBudget(
            f"The budget of ${cap / MICRO:.2f} is used up: ${self.spent / MICRO:.4f} spent{for_comparisons}, "
            f"and what comes next may cost ${worst / MICRO:.4f}.",
            remedy="Raise CLARA_BUDGET_PER_CHALLENGE_USD; what is paid for is kept and not paid again.",
            is_lost=self.spent - self.lost + worst + kept <= cap,
        )


MARGIN_PERCENT = 130  # of an entry's usual cost, as its bound when money is short: some answers need a retry
SLOW_CALLS = 2  # calls of a question that ends as `TooSlow`; each may have been charged


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """The budget for reading all entries, and the prices to estimate with; part of a plan."""

    micro_usd: int
    input: int  # picodollars per prompt token of the most expensive model that may read
    output: int
    answer_tokens: int  # of a usual answer, thinking included

    @property
    def card(self) -> PriceCard:
        return PriceCard(self.input, self.output, self.input, self.input)

    def usual(self, prompts: Iterable[Prompt], answer_tokens: int | None = None) -> int:
        answer = self.answer_tokens if answer_tokens is None else answer_tokens
        texts = (prompt.system + prompt.user + prompt.schema_json for prompt in prompts)
        return sum(self.card.price(estimated_tokens(text), answer) for text in texts)


@dataclass(slots=True)
class EntryShare:
    """The budget of all answers about one entry; without `money` only tokens are bounded."""

    money: ReadingBudget | None
    most: int
    needs: int
    tokens: int = 0
    spent: int = 0

    def check_money(self, prompt: Prompt, requests: Sequence[str], answer_tokens: int | None) -> None:
        """Raise AnswerCut unless the share covers this request; by default the answer has usual length."""
        if self.money is None:
            return
        needed = max(self.needs, self.spent + self.money.usual((prompt,), answer_tokens))
        if needed > self.most:
            raise AnswerCut(
                f"To read it costs ${needed / MICRO:.4f} or more, and this round's budget for reading has "
                f"${self.most / MICRO:.4f} for it",
                requests,
                "Raise CLARA_BUDGET_PER_CHALLENGE_USD",
            )

    def count(self, prompt: Prompt, answer: Answer) -> None:
        """Count an answer; a timeout, which has no tokens, may have been charged in full."""
        self.tokens += answer.output_tokens
        if self.money is not None:
            is_slow = answer.stop == "max_tokens" and not answer.input_tokens and not answer.output_tokens
            card = self.money.card
            self.spent += SLOW_CALLS * card.worst(prompt) if is_slow else card.cost(answer)


def next_to_read(left: int, usual: Mapping[str, int]) -> dict[str, int]:
    """Return the entries to read now, cheapest first, each with its bound; none if none fits.

    All entries for which an equal share suffices get that share. If there are none, as many of the cheapest as `left`
    pays for get their usual cost with a margin.
    """
    waiting = sorted(usual, key=lambda name: (usual[name], name))
    share = left // len(waiting) if waiting else 0
    if fitting := {name: share for name in waiting if usual[name] <= share}:
        return fitting
    chosen: dict[str, int] = {}
    for name in waiting:
        bound = usual[name] * MARGIN_PERCENT // 100
        if bound > left:
            break
        chosen[name] = bound
        left -= bound
    return chosen
