"""Prices of model calls, the caps and the ledger of spending, the money of one run and of reading one entry.

Amounts are millionths of a dollar, rounded up. An unknown price is None, never free.
Invariant: an amount is reserved under all caps before it is paid; calls that were never answered count in full.
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

PICO = 1_000_000  # rates are whole picodollars a token: a dollar per million tokens is a million of them
BATCH_DIVISOR = 2  # Message Batches cost half of the single call's price
HIDDEN_TOKENS = 1024
"""What a provider may add to a prompt of its own (roles, the schema's instructions), counted in the worst case."""
BYTES_PER_TOKEN = 3.5
"""For estimates of code and JSON; the worst case counts one token a byte, which no tokenizer exceeds."""


@dataclass(frozen=True, slots=True)
class PriceCard:
    """Picodollars per token, by kind of token. `beyond` prices calls with more than `up_to` input tokens."""

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
        """Return the cost of so many tokens; those cached and written to a cache are among the sent ones."""
        card = self._card(sent)
        total = card.input * max(0, sent - cached - written) + card.output * answered
        return _micro(total + card.cached * cached + card.cache_write * written, batch=batch)

    def worst(self, prompt: Prompt, *, batch: bool = False) -> int:
        """Return the most that one call can cost: a token per byte, nothing cached, the longest answer."""
        tokens = len((prompt.system + prompt.user).encode()) + len(prompt.schema_json) + HIDDEN_TOKENS
        card = self._card(tokens)
        return _micro(max(card.input, card.cache_write) * tokens + card.output * prompt.max_tokens, batch=batch)

    def _card(self, input_tokens: int) -> PriceCard:
        if self.beyond is None or self.up_to is None or input_tokens <= self.up_to:
            return self
        return self.beyond


def _micro(pico: int, *, batch: bool) -> int:
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
            rates = [_pico(Fraction(amount.strip())) for amount in amounts.split("/")]
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


def _pico(usd_per_million: Fraction) -> int:
    return math.ceil(usd_per_million * PICO)


def no_price(judge: str) -> ConfigError:
    return ConfigError(
        f"{judge} has no known price, so the budget cannot be kept.",
        # In quotes, so that a log that shortens addresses keeps what follows.
        remedy=f'Name it: CLARA_PRICES="{judge}"=INPUT/OUTPUT in dollars per million tokens (0/0 for your own '
        "machine), or set the CLARA_BUDGET_… caps to none.",
    )


def public_price(model: str, provider: str, at: datetime, address: str | None = None) -> PriceCard | None:
    """Return the public table's price, by address or by provider; None if unknown."""
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
        return _pico(Fraction(tiers[-1] if tiers else getattr(price, "base", price)))

    starts = sorted({tier.start for price in vars(prices).values() for tier in getattr(price, "tiers", ())})
    card: PriceCard | None = None
    # From the highest tier down, so that each card knows the one beyond it.
    for start, up_to in reversed(list(zip([0, *starts], [*starts, None], strict=True))):
        normal = rate("input_mtok", start)
        cached, written = rate("cache_read_mtok", start, normal), rate("cache_write_mtok", start, normal)
        card = PriceCard(normal, rate("output_mtok", start), cached, written, up_to, card)
    return card


KNOWN_AFTER_SECONDS = 7 * 86400  # a poster is known once an evaluation of his was paid for this long ago


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper bounds in millionths of a dollar; None is no bound."""

    per_challenge: int | None
    per_poster_day: int | None
    per_month: int | None
    new_posters_month: int | None = None
    """Of the month, what posters that are not known yet may take together: a hundred new names cannot empty it."""

    @property
    def tightest(self) -> int | None:
        caps = (self.per_challenge, self.per_poster_day, self.per_month)
        return min((cap for cap in caps if cap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Spend:
    """One line of the ledger: reserved first, settled to the real amount later."""

    id: int
    run: str
    poster: str
    purpose: str
    reserved_micro_usd: int
    settled_micro_usd: int | None
    at: int


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


WASTE_TIMES = 2
LEAST_WASTE = 500_000
"""A run stops when answers of no use cost so many times its estimate, and at least these millionths of a dollar."""


Extend = Callable[[int], Awaitable[int]]
"""Told what a run needs in all; returns what it may spend then. Raises Deferred over a cap of the ledger."""


@dataclass(slots=True)
class RunBudget:
    """`cap_micro_usd` None is no bound. `spent` is all that counts against it, without calls in flight."""

    cap_micro_usd: int | None
    spent: int = 0  # at first what earlier attempts paid or may have paid
    lost: int = 0
    """Of `spent`, the worst case of calls that were sent and never answered, and the cost of answers of no use."""
    reserved: int = 0
    unsure_micro_usd: int = 0
    """What this attempt may have been charged for nothing, for the ledger; without what the next attempt looks for."""
    kept_micro_usd: int = 0  # for comparisons: no other call takes it
    extend: Extend | None = None
    most_wasted: int | None = None  # no call is made once answers that are of no use cost this much; None is no bound
    wasted: int = 0
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def reserve(self, judge: str, card: PriceCard | None, prompt: Prompt) -> int:
        return (await self.reserve_all(judge, card, (prompt,)))[0]

    async def reserve_all(
        self, judge: str, card: PriceCard | None, prompts: Sequence[Prompt], *, batch: bool = False
    ) -> list[int]:
        """Reserve the worst case of every call, all or nothing; one amount for each prompt."""
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
                retry_after_seconds=LOOK_AGAIN_SECONDS,
            )
        amounts = [card.worst(prompt, batch=batch) for prompt in prompts]
        needed = sum(amounts)
        kept = 0 if all(prompt.purpose == "comparison" for prompt in prompts) else self.kept_micro_usd
        while self.cap_micro_usd is not None and self.spent + self.reserved + needed + kept > self.cap_micro_usd:
            if self.reserved:
                self._freed.clear()
                await self._freed.wait()
            elif not await self._extended(self.cap_micro_usd, needed + kept):
                raise self._over(self.cap_micro_usd, needed, kept)
        self.reserved += needed
        return amounts

    async def _extended(self, cap: int, needed: int) -> bool:
        try:
            most = await self.extend(self.spent + needed) if self.extend else cap
        except Deferred:
            return False  # a cap of the day or month has no room for more than was quoted: it goes on with less
        self.cap_micro_usd = max(self.cap_micro_usd or cap, most)
        return self.cap_micro_usd > cap

    def charge(self, reserved: int, cost: int | None) -> None:
        self.spent += cost or 0
        self.release(reserved)

    def lose(self, cost: int) -> None:
        """Count an answer that was charged and is not kept as paid for nothing."""
        self.lost += cost
        self.waste(cost)

    def waste(self, cost: int) -> None:
        self.unsure_micro_usd += cost
        self.wasted += cost

    def unsure(self, reserved: int, *, is_looked_for: bool = False) -> None:
        """Count the reservation as spent: the call was sent and never answered.

        `is_looked_for`: the next attempt asks the provider for this very answer and pays for it then.
        """
        self.lost += reserved
        self.unsure_micro_usd += 0 if is_looked_for else reserved
        self.charge(reserved, reserved)

    def release(self, reserved: int) -> None:
        self.reserved -= reserved
        self._freed.set()

    def _over(self, cap: int, worst: int, kept: int) -> OutOfBudget:
        for_games = f", ${kept / MICRO:.2f} is kept for comparisons" if kept else ""
        return OutOfBudget(
            f"The budget of ${cap / MICRO:.2f} is used up: ${self.spent / MICRO:.4f} spent{for_games}, "
            f"and what comes next may cost ${worst / MICRO:.4f}.",
            remedy="Raise CLARA_BUDGET_PER_CHALLENGE_USD; what is paid for is kept and not paid again.",
            is_lost=self.spent - self.lost + worst + kept <= cap,
        )


MARGIN_PERCENT = 130
"""Share of an entry's usual cost that it may use without a full share: answers are sometimes asked again."""
SLOW_CALLS = 2  # a question that got no answer in time was sent so often, and each may have been charged


@dataclass(frozen=True, slots=True)
class ReadingBudget:
    """Millionths of a dollar for all entries together, with the prices; part of a plan."""

    micro_usd: int
    input: int  # picodollars for a token of a prompt, at the dearest of the models that may read
    output: int
    answer_tokens: int  # of a usual answer, with the thinking that is expected before it

    @property
    def card(self) -> PriceCard:
        return PriceCard(self.input, self.output, self.input, self.input)

    def usual(self, prompts: Iterable[Prompt], answer_tokens: int | None = None) -> int:
        answer = self.answer_tokens if answer_tokens is None else answer_tokens
        texts = (prompt.system + prompt.user + prompt.schema_json for prompt in prompts)
        return sum(self.card.price(estimated_tokens(text), answer) for text in texts)


@dataclass(slots=True)
class EntryShare:
    """What the answers about one entry may use together; without `money` only tokens are bounded."""

    money: ReadingBudget | None
    most: int
    needs: int
    tokens: int = 0
    spent: int = 0

    def check_money(self, prompt: Prompt, requests: Sequence[str], answer_tokens: int | None) -> None:
        """Raise AnswerCut unless the share pays for this request, by default with an answer of usual length."""
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
        """Count an answer. A slow one without tokens may have been charged in full."""
        self.tokens += answer.output_tokens
        if self.money is not None:
            is_slow = answer.stop == "max_tokens" and not answer.input_tokens and not answer.output_tokens
            card = self.money.card
            self.spent += SLOW_CALLS * card.worst(prompt) if is_slow else card.cost(answer)


def next_to_read(left: int, usual: Mapping[str, int]) -> dict[str, int]:
    """Return the entries to read now, smallest first, each with its bound; none if none fits.

    Entries for which an equal share suffices get it; else the smallest, as many as there is money for.
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
