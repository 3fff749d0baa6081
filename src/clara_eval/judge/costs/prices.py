"""Prices of model calls in millionths of a dollar, rounded up. An unknown price is None, never free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from clara_eval.core.errors import ConfigError
from clara_eval.core.extras import require
from clara_eval.judge.port import Answer, Prompt

PICO = 1_000_000  # rates are whole picodollars a token: a dollar per million tokens is a million of them
BATCH_DIVISOR = 2  # Message Batches cost half of the single call's price
HIDDEN_TOKENS = 1024
"""What a provider may add to a prompt of its own (roles, the schema's instructions), counted in the worst case."""
BYTES_PER_TOKEN = 3.5
"""For estimates of code and JSON; the worst case counts one token a byte, which no tokenizer exceeds."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that an answer is expected to use; the last two are part of the input."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PriceCard:
    """Picodollars per token, by kind of token. `beyond` prices calls with more than `up_to` input tokens."""

    input: int
    output: int
    cached: int
    cache_write: int
    up_to: int | None = None
    beyond: PriceCard | None = None

    def cost(self, answer: Answer | Tokens, *, batch: bool = False) -> int:
        card = self._card(answer.input_tokens)
        cached, written = answer.cached_tokens, answer.cache_write_tokens
        total = card.input * max(0, answer.input_tokens - cached - written) + card.output * answer.output_tokens
        return _micro(total + card.cached * cached + card.cache_write * written, batch=batch)

    def worst(self, prompt: Prompt, *, batch: bool = False) -> int:
        """Return the most that one call can cost: a token per byte, nothing cached, the longest answer."""
        tokens = _size(prompt.system) + _size(prompt.user) + len(prompt.schema_json) + HIDDEN_TOKENS
        card = self._card(tokens)
        total = max(card.input, card.cache_write) * tokens + card.output * prompt.max_tokens
        return _micro(total, batch=batch)

    def _card(self, input_tokens: int) -> PriceCard:
        if self.beyond is None or self.up_to is None or input_tokens <= self.up_to:
            return self
        return self.beyond


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


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
