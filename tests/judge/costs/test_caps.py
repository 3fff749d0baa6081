"""Caps from the settings, the worth of prizes, and the cap that a hundred challenges cannot drain."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.actions.published import spend_document, spend_report
from clara_eval.chain.model import PrizeToken, is_dollar, worth_micro_usd
from clara_eval.config.settings import NETWORKS, Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import Deferred
from clara_eval.core.model import micro_usd, usd
from clara_eval.judge.costs.budgets import KNOWN_AFTER_SECONDS, Caps, Spend, caps_of, check_prize
from clara_eval.store.sql_store import SqlStore

DOLLAR = 1_000_000


def test_caps_are_the_settings_to_the_millionth() -> None:
    """What the operator wrote is the cap, without binary rounding; an empty value is no bound."""
    found = caps_of(Settings.from_env({"CLARA_BUDGET_PER_CHALLENGE_USD": "0.29", "CLARA_BUDGET_PER_MONTH_USD": "1.1"}))
    assert (found.per_challenge, found.per_month) == (290_000, 1_100_000)
    assert micro_usd(None) is None
    assert found.new_posters_month == 550_000
    assert caps_of(Settings.from_env({"CLARA_BUDGET_PER_MONTH_USD": "none"})).new_posters_month is None


def test_only_the_networks_dollar_has_a_worth() -> None:
    """A token that merely calls itself USDC is worth nothing known."""
    base = NETWORKS["base"]
    real = PrizeToken(Address(str(base.usdc)), "USDC", 6)
    fake = PrizeToken(Address("0x" + "11" * 20), "USDC", 6)
    assert worth_micro_usd(real, 5_000_000, base) == 5 * DOLLAR
    assert worth_micro_usd(fake, 5_000_000, base) is None
    assert worth_micro_usd(PrizeToken(fake.address, "TUSD", 18), 2 * 10**18, NETWORKS["local"]) == 2 * DOLLAR


@pytest.mark.parametrize("name", ["local", "base", "base-sepolia"])
def test_the_set_dollar_is_the_dollar_everywhere(name: str) -> None:
    """CLARA_USDC is the one dollar of its network, for prizes and wallets alike; no other token is."""
    ours, other = Address("0x" + "aa" * 20), Address("0x" + "bb" * 20)
    settings = Settings.from_env({"CLARA_NETWORK": name, "CLARA_USDC": ours})
    assert settings.network.usdc == ours
    assert is_dollar(ours, settings.network)
    assert not is_dollar(other, settings.network)
    assert worth_micro_usd(PrizeToken(ours, "X", 6), 7_000_000, settings.network) == 7 * DOLLAR
    assert worth_micro_usd(PrizeToken(other, "USDC", 6), 7_000_000, settings.network) is None


@pytest.mark.parametrize(
    ("worth", "reason"),
    [
        (None, r"^The prize of no known worth in dollars does not reach the minimum of \$10\.00\."),
        (9_990_000, r"^The prize of \$9\.99 is under the minimum of \$10\.00\."),
    ],
)
def test_a_small_or_unknown_prize_waits(worth: int | None, reason: str) -> None:
    """Under the minimum the challenge is deferred with a reason, one sentence, and a moment."""
    with pytest.raises(Deferred, match=reason) as deferred:
        check_prize(worth, 10.0, now=1000)
    assert deferred.value.retry_at == 1000 + 6 * 3600


def test_a_prize_at_the_minimum_passes() -> None:
    """The minimum itself is enough, and without a minimum everything is."""
    check_prize(10 * DOLLAR, 10.0, now=0)
    check_prize(None, None, now=0)
    check_prize(None, 0.0, now=0)


@pytest.mark.specification("6", "Option A: the platform subsidizes, within a cap")
async def test_a_hundred_challenges_of_one_poster_stop_at_the_cap(store: SqlStore) -> None:
    """However many challenges one poster brings at once, what is reserved never passes the cap by a millionth."""
    caps = Caps(per_challenge=None, per_poster_day=50 * DOLLAR, per_month=None)
    quotes = [3_510_000 + number for number in range(100)]

    async def reserve(number: int, quote: int) -> str:
        try:
            await store.reserve_spend(f"31337:0x{number:040x}", "0xposter", "evaluation", quote, caps)
        except Deferred as deferred:
            return "deferred" if deferred.retry_at else "no moment"
        return "reserved"

    results = await asyncio.gather(*(reserve(number, quote) for number, quote in enumerate(quotes)))
    spent = sum(spend.reserved_micro_usd for spend in await store.spends())
    assert results.count("reserved") == 14
    assert results.count("deferred") == 86
    assert spent <= 50 * DOLLAR < spent + min(quotes)


@pytest.mark.specification("10.4", "What if someone creates 100 challenges to drain eval budget?")
async def test_a_hundred_new_posters_leave_the_month_to_those_who_are_known(store: SqlStore) -> None:
    """All new posters share part of the month's budget; posters who paid before are not limited by it."""
    caps = Caps(None, 50 * DOLLAR, per_month=350 * DOLLAR, new_posters_month=175 * DOLLAR)
    now = [1_770_000_000.0]
    store = replace(store, now=lambda: now[0])
    first = await store.reserve_spend("31337:0xold", "0xknown", "evaluation", DOLLAR, caps)
    await store.settle_spend(first, DOLLAR)
    now[0] += KNOWN_AFTER_SECONDS

    async def reserve(number: int) -> str:
        try:
            await store.reserve_spend(f"31337:0x{number:040x}", f"0xnew{number}", "evaluation", 4 * DOLLAR, caps)
        except Deferred as deferred:
            return str(deferred)
        return "reserved"

    results = await asyncio.gather(*(reserve(number) for number in range(100)))
    assert results.count("reserved") == 43
    assert "The budget per month for new posters of $175.00 does not allow another $4.00" in next(
        one for one in results if one != "reserved"
    )
    await store.reserve_spend("31337:0xagain", "0xknown", "evaluation", 50 * DOLLAR, caps)


async def test_an_evaluation_that_cost_nothing_makes_nobody_known(store: SqlStore) -> None:
    """A poster is known by money that was spent a week ago, not by having asked."""
    caps = Caps(None, None, per_month=10, new_posters_month=5)
    now = [1_770_000_000.0]
    store = replace(store, now=lambda: now[0])
    free = await store.reserve_spend("1:0xa", "p", "evaluation", 1, caps)
    await store.settle_spend(free, 0)
    await store.reserve_spend("1:0xb", "q", "evaluation", 1, caps)
    now[0] += KNOWN_AFTER_SECONDS
    for poster in ("p", "q"):
        with pytest.raises(Deferred, match="new posters"):
            await store.reserve_spend(f"1:{poster}", poster, "evaluation", 6, caps)


async def test_what_was_not_used_is_free_again(store: SqlStore) -> None:
    """Settling to the real amount makes room under the cap, to the millionth."""
    caps = Caps(None, None, per_month=10)
    first = await store.reserve_spend("1:0xa", "p", "evaluation", 10, caps)
    with pytest.raises(Deferred):
        await store.reserve_spend("1:0xb", "p", "evaluation", 1, caps)
    await store.settle_spend(first, 9)
    await store.reserve_spend("1:0xb", "p", "evaluation", 1, caps)


def spend(number: int, run: str, poster: str, reserved: int, settled: int | None, at: int) -> Spend:
    return Spend(number, run, poster, "evaluation", reserved, settled, at)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from("pq"),
            st.integers(0, 10**9),
            st.none() | st.integers(0, 10**9),
            st.integers(0, 4 * 10**9),
        )
    )
)
def test_every_table_of_the_report_adds_up(rows: list[tuple[str, str, int, int | None, int]]) -> None:
    """Challenges, posters and months are three cuts of the same sum."""
    report = spend_report(spend(number, *row) for number, row in enumerate(rows))
    for table in (report["challenge"], report["poster"], report["month"]):
        assert sum(line.micro_usd for line in table) == report["total"][0].micro_usd
        assert sum(line.open_micro_usd for line in table) == report["total"][0].open_micro_usd


def test_the_report_as_json() -> None:
    """Dollars are exact decimal strings, and a reservation is shown as open."""
    report = spend_report([spend(1, "1:0xa", "p", 5 * DOLLAR, 3_510_001, 0), spend(2, "1:0xb", "p", DOLLAR, None, 0)])
    document = spend_document(report)
    assert document["total"] == {"name": "total", "usd": "4.510001", "openUsd": "1.000000", "evaluations": 2}
    assert document["byMonth"] == [{"month": "1970-01", "usd": "4.510001", "openUsd": "1.000000", "evaluations": 2}]
    assert usd(0) == "0.000000"


async def test_room_that_running_evaluations_take_is_looked_for_soon(store: SqlStore) -> None:
    """Reservations give back what they do not use, so the next look is in a minute; money really spent waits for its day."""
    caps = Caps(None, None, per_month=10)
    first = await store.reserve_spend("1:0xa", "p", "evaluation", 10, caps)
    with pytest.raises(Deferred) as soon:
        await store.reserve_spend("1:0xb", "p", "evaluation", 1, caps)
    await store.settle_spend(first, 10)
    with pytest.raises(Deferred) as later:
        await store.reserve_spend("1:0xb", "p", "evaluation", 1, caps)
    now = time.time()
    assert soon.value.retry_at is not None
    assert later.value.retry_at is not None
    assert soon.value.retry_at <= now + 60
    assert later.value.retry_at > soon.value.retry_at
