"""Whatever is out of order outside, no entry loses its place by it: outages are waited for, and told."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.ipfs_gateway import LocalGateway
from tests.support.objections import by_node
from tests.support.statuses import read_status

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.actions.review import approve
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendOutcome, SendTimeouts
from clara_eval.challenges.replay import check_trace
from clara_eval.challenges.review import known_review
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import local_settings, write_trace
from clara_eval.devnet.demo.round import data_uri, entry, post_round
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain
from clara_eval.evaluation.round import Window
from clara_eval.service.attempt_runner import ending_of
from clara_eval.service.due import EngineOptions

BEST, WEAKER = "deque_window", ("nested_flags", "unfinished", "ring_buffer")


def settings_of(chain: LocalChain, place: Path, gateways: str) -> Settings:
    return local_settings(chain, place / "store.db", place).model_copy(update={"ipfs_gateway": gateways})


async def round_with_best_on_ipfs(chain: LocalChain, gateway: LocalGateway) -> tuple[Address, Address]:
    """A closed round whose best entry is on IPFS; the others are on chain."""
    address = await post_round(chain)
    best = entry(BEST).encode()
    handed = [Handed(chain.agents[0], gateway.add(best), keccak_hex(best))]
    for number, name in enumerate(WEAKER, start=1):
        text = entry(name).encode()
        handed.append(Handed(chain.agents[number], data_uri(text), keccak_hex(text)))
    await chain.submit_all(address, handed)
    await chain.move_time(HOUR + 1)
    return address, chain.agents[0].address


async def run(app: App, address: Address) -> tuple[SendOutcome | None, list[Address], list[str]]:
    done = await evaluate(app, address, EvaluationRequest())
    outcome = done.receipt.outcome if done.receipt else None
    return outcome, [w.account for w in done.winners.entries], [flag.code for flag in done.result.flags]


async def test_a_gateway_that_is_down_costs_nobody_a_place(local_chain: LocalChain, tmp_path: Path) -> None:
    """The others are judged at once, and a person is told until when the missing one is tried; then the best wins."""
    async with LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        async with open_app(
            settings_of(local_chain, tmp_path, gateway.url), pace=SendTimeouts(poll_seconds=0.02)
        ) as app:
            first, again = await evaluate(app, address), await evaluate(app, address)
            assert first.review is not None
            assert (first.receipt, again.digest) == (None, first.digest), "the same reason, the same result"
            assert any(best in reason for reason in first.review.reasons)
            window = first.challenge.scoring_deadline - first.challenge.deadline
            assert first.review.posts_at == first.challenge.deadline + min(window // 4, 12 * HOUR)
            assert first.retry_seconds is not None
            assert first.retry_seconds <= 900
            status = await read_status(app.store, app.chain_id, address) or {}
            assert (status["status"], status["postsAt"]) == ("review", first.review.posts_at)
            assert best not in status["reason"], "who is near the money is not public"
            await gateway.start()
            outcome, winners, flags = await run(app, address)
    assert outcome is SendOutcome.CONFIRMED
    assert winners[0] == best
    assert "outage_verdict" not in flags


async def test_nothing_is_judged_while_nobody_can_be_read(local_chain: LocalChain, tmp_path: Path) -> None:
    """Where all that can be judged is out of reach the outage is ours: it is waited for, and junk gains nothing."""
    async with LocalGateway() as gateway:
        address = await post_round(local_chain)
        texts = [entry(name).encode() for name in (BEST, *WEAKER[:2])]
        handed = [
            Handed(agent, gateway.add(text), keccak_hex(text))
            for agent, text in zip(local_chain.agents[1:], texts, strict=False)
        ]
        junk = Handed(local_chain.agents[0], data_uri(b"\x00\x01"), keccak_hex(b"\x00\x01"))
        await local_chain.submit_all(address, [junk, *handed])
        await local_chain.move_time(HOUR + 1)
        async with open_app(
            settings_of(local_chain, tmp_path, gateway.url), pace=SendTimeouts(poll_seconds=0.02)
        ) as app:
            with pytest.raises(Temporary, match="3 of 4 submissions cannot be read yet") as caught:
                await evaluate(app, address)
            assert caught.value.longest_pause_seconds is not None
            status = await read_status(app.store, app.chain_id, address) or {}
            assert status["status"] == "pending"
            await gateway.start()
            outcome, winners, _ = await run(app, address)
    assert outcome is SendOutcome.CONFIRMED
    assert winners[0] == local_chain.agents[1].address


async def test_the_next_gateway_is_asked(local_chain: LocalChain, tmp_path: Path) -> None:
    """Of several gateways one that answers is enough, whichever it is."""
    async with LocalGateway() as away, LocalGateway() as empty, LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        await empty.start()
        await gateway.start()
        several = f"{away.url}, {empty.url},{gateway.url}"
        async with open_app(settings_of(local_chain, tmp_path, several), pace=SendTimeouts(poll_seconds=0.02)) as app:
            outcome, winners, _ = await run(app, address)
    assert outcome is SendOutcome.CONFIRMED
    assert winners[0] == best
    assert empty.asked > 0


async def test_an_outage_does_not_hold_the_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """A quarter of the window later the round is posted without the entry, and the trace says that the clock ruled."""
    async with LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        async with open_app(
            settings_of(local_chain, tmp_path, gateway.url), pace=SendTimeouts(poll_seconds=0.02)
        ) as app:
            waiting = await evaluate(app, address)
            assert waiting.review is not None
            assert waiting.review.posts_at is not None
            await local_chain.move_time(waiting.review.posts_at - waiting.challenge.deadline)
            outcome, winners, flags = await run(app, address)
            assert outcome is SendOutcome.CONFIRMED
            assert best not in winners[:1]
            assert "outage_verdict" in flags
            assert (await known_review(app.store, app.chain_id, address)).state == "lapsed"
            lines = (await write_trace(app, address)).read_text().splitlines(keepends=True)
            checked = await check_trace(lines, app.chain)
            assert await by_node(tmp_path, lines) == 0
    assert [(r.code, r.is_outage) for r in checked.result.rejected] == [("unreachable", True)]
    assert [(r.kind, r.by, r.at) for r in checked.result.rulings] == [("default", "the clock", waiting.review.posts_at)]
    assert any("no person reviewed" in point for point in checked.not_proven)


async def test_a_person_may_post_without_the_missing_entry(local_chain: LocalChain, tmp_path: Path) -> None:
    """An approval is for the result that was looked at: the entry is not asked for again, whatever it does now."""
    async with LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        async with open_app(
            settings_of(local_chain, tmp_path, gateway.url), pace=SendTimeouts(poll_seconds=0.02)
        ) as app:
            waiting = await evaluate(app, address)
            await approve(app.store, app.chain_id, address, note="It never answered.", digest=waiting.digest)
            await gateway.start()
            posted = await evaluate(app, address)
    assert posted.receipt is not None
    assert (posted.receipt.outcome, posted.digest) == (SendOutcome.CONFIRMED, waiting.digest)
    assert best not in [winner.account for winner in posted.winners.entries][:1]


def test_no_pause_outlasts_the_window() -> None:
    """However long an outage lasts or a server asks to wait, a window has room for twenty attempts."""
    window = Window(0, 3600, 100)
    outage = Temporary("down", retry_after_seconds=99_999)
    outage.longest_pause_seconds = window.longest_pause_seconds
    ending = ending_of(outage, "0xa", failures=30, now=0, options=EngineOptions())
    assert ending.retry_at == 180
    assert not window.is_nearly_over
    assert Window(0, 3600, 2700).is_nearly_over
