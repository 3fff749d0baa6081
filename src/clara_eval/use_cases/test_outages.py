"""Whatever is out of order outside, no entry loses its place by it: outages are waited for, and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from clara_eval.app import App, open_app
from clara_eval.challenge.model import Address
from clara_eval.demo.lifecycle import local_settings, write_trace
from clara_eval.demo.round import data_uri, entry, post_round
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain
from clara_eval.engine.endings import ending_of
from clara_eval.engine.options import EngineOptions
from clara_eval.errors import Temporary
from clara_eval.hashing import keccak_hex
from clara_eval.pipeline.replay import check_trace
from clara_eval.pipeline.scoring_window import Window
from clara_eval.pipeline.status import read_status
from clara_eval.publish.send import Outcome, Pace
from clara_eval.settings import Settings
from clara_eval.testing.ipfs_gateway import LocalGateway
from clara_eval.use_cases.evaluate import EvaluationRequest, evaluate

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


async def run(app: App, address: Address) -> tuple[Outcome | None, list[Address], list[str]]:
    done = await evaluate(app, address, EvaluationRequest())
    outcome = done.receipt.outcome if done.receipt else None
    return outcome, [w.account for w in done.walk.winners.entries], [flag.code for flag in done.walk.flags]


async def test_a_gateway_that_is_down_costs_nobody_a_place(local_chain: LocalChain, tmp_path: Path) -> None:
    """While the gateway is away nothing is judged and the status says who is waited for; then the best entry wins."""
    async with LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        async with open_app(settings_of(local_chain, tmp_path, gateway.url), pace=Pace(poll_seconds=0.02)) as app:
            with pytest.raises(Temporary, match="1 of 4 submissions cannot be read yet") as caught:
                await evaluate(app, address)
            status = await read_status(app.store, app.chain_id, address) or {}
            assert status["status"] == "pending"
            assert best in status["reason"]
            assert caught.value.longest_pause_seconds is not None
            await gateway.start()
            outcome, winners, _ = await run(app, address)
    assert outcome is Outcome.CONFIRMED
    assert winners[0] == best


async def test_the_next_gateway_is_asked(local_chain: LocalChain, tmp_path: Path) -> None:
    """Of several gateways one that answers is enough, whichever it is."""
    async with LocalGateway() as away, LocalGateway() as empty, LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        await empty.start()
        await gateway.start()
        several = f"{away.url}, {empty.url},{gateway.url}"
        async with open_app(settings_of(local_chain, tmp_path, several), pace=Pace(poll_seconds=0.02)) as app:
            outcome, winners, _ = await run(app, address)
    assert outcome is Outcome.CONFIRMED
    assert winners[0] == best
    assert empty.asked > 0


async def test_an_outage_to_the_end_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """With a quarter of the window left the rest is judged; the missing entry holds the post, and the trace holds."""
    async with LocalGateway() as gateway:
        address, best = await round_with_best_on_ipfs(local_chain, gateway)
        async with open_app(settings_of(local_chain, tmp_path, gateway.url), pace=Pace(poll_seconds=0.02)) as app:
            with pytest.raises(Temporary):
                await evaluate(app, address)
            challenge = await app.chain.challenge_at(address, await app.chain.head())
            left = challenge.scoring_deadline - challenge.block.timestamp
            await local_chain.move_time(int(0.8 * left))
            outcome, winners, flags = await run(app, address)
            assert outcome is None
            assert best not in winners[:1]
            assert "outage_verdict" in flags
            with (await write_trace(app, address)).open() as lines:
                checked = await check_trace(lines)
    assert [(r.code, r.is_outage) for r in checked.walk.rejected] == [("unreachable", True)]


def test_no_pause_outlasts_the_window() -> None:
    """However long an outage lasts or a server asks to wait, a window has room for twenty attempts."""
    window = Window(0, 3600, 100)
    outage = Temporary("down", retry_after_seconds=99_999)
    outage.longest_pause_seconds = window.longest_pause_seconds
    ending = ending_of(outage, "0xa", failures=30, now=0, options=EngineOptions())
    assert ending.retry_at == 180
    assert not window.is_nearly_over
    assert Window(0, 3600, 2700).is_nearly_over
