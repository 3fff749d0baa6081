"""The engine on a real chain and a real store: from due to posted, recognised, reviewed, closed, finalized."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from eth_typing import HexStr
from tests.support.faulty_node import MiscountingNode
from tests.support.rounds import closed_by_a_payment, closed_round, replace_from
from tests.support.service import (
    FAST,
    PACE,
    Turning,
    checksum_of,
    eventually,
    posted_round,
    raised,
    settings_of,
    turning,
)
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.actions.operator import preflight
from clara_eval.app import App, open_app
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.model import Challenge
from clara_eval.chain.rpc import Meaning
from clara_eval.chain.sender import Intention, send_again
from clara_eval.chain.transaction import StoredTransaction
from clara_eval.challenges.challenge_index import read_document, summaries
from clara_eval.challenges.review import known_review
from clara_eval.challenges.status import StatusWriter, attempts_key, read_attempts
from clara_eval.challenges.venue import is_still_current, pin_challenge
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, ConfigError, NotFound, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.round import CONFIG, data_uri, entry, post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, USDC, Handed, LocalChain, PostedTerms
from clara_eval.documents.results import Created, PrizeClaims, RoundResult, read
from clara_eval.documents.store_keys import claims_key, created_key, result_key, scores_key
from clara_eval.service.due import LAST_TICK, EngineOptions, read_report, save_report
from clara_eval.service.engine import only_process
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics, ServiceHealth
from clara_eval.service.record import UNCLAIMED
from clara_eval.store.leases import Busy, held


@pytest.mark.specification("1", "Clara runs the scoring automatically after the submission deadline")
async def test_a_due_challenge_is_advanced_evaluated_posted_and_finalized(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The scheduler advances, evaluates, posts and finalizes a due challenge without a request."""
    address = await closed_round(local_chain)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        done = await world.until(address, "complete")
        assert (done["progress"], done["postedBy"]) == (100, "evaluator")
        assert await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call() > 0

        async def shows_the_post() -> bool:
            row = (await summaries(world.app.store, world.app.chain_id))[address]
            return (row.chainStatus, row.postedBy, bool(row.scorePostedAt)) == ("scoring", "evaluator", True)

        await eventually(shows_the_post)
        await local_chain.move_time(12 * HOUR + 1)
        await world.engine.tick()
        board = await summaries(world.app.store, world.app.chain_id)
        assert await as_web3(local_chain.challenge(address)).functions.status().call() == 2
        await world.engine.tick()
        board = await summaries(world.app.store, world.app.chain_id)
        assert board[address].chainStatus == "finalized"
        await check_claims(world, local_chain, address)
        assert b'clara_evaluations_total{outcome="complete"} 1.0' in world.engine.metrics.render()


async def check_claims(world: Turning, chain: LocalChain, address: Address) -> None:
    """Each claim is written down with its transaction, and what is all taken is asked about no more."""
    store, chain_id = world.app.store, world.app.chain_id
    for _ in range(2):
        await chain.mine(3)
        await world.engine.tick()
    created = await read(store, chain_id, Created, created_key(address))
    assert created is not None
    assert (await web3_of(chain).eth.get_transaction_receipt(HexStr(created.txHash)))["blockNumber"] == created.block
    result = await read(store, chain_id, RoundResult, result_key(address))
    assert result is not None
    winners = [winner.address for winner in result.winners]
    paid = {agent.address: agent for agent in chain.agents}
    for taken in range(len(winners) + 1):
        await chain.mine(3)
        await world.engine.tick()
        claims = await read(store, chain_id, PrizeClaims, claims_key(address))
        assert claims is not None
        assert ([claim.address for claim in claims.claims], claims.winners) == (winners[:taken], len(winners))
        assert (address in json.loads(await store.get(chain_id, UNCLAIMED) or "{}")) is (taken < len(winners))
        assert all(claim.at and int(claim.amount) for claim in claims.claims)
        if taken < len(winners):
            await chain.send(paid[Address(winners[taken])], chain.challenge(address), "claimPrize")


class Gone(BaseException):
    """The process ends here."""


async def sign_and_die(app: App, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate up to the recorded post, and end before any node has seen it."""
    send = EthereumAccount.broadcast

    async def broadcast(self: EthereumAccount, tx: StoredTransaction) -> Meaning | None:
        if tx.intention == Intention.POST_SCORES:
            raise Gone
        return await send(self, tx)

    with monkeypatch.context() as patch:
        patch.setattr(EthereumAccount, "broadcast", broadcast)
        with pytest.raises(Gone):
            await evaluate(app, address, EvaluationRequest(is_named=True))


async def test_a_post_that_an_earlier_key_signed_is_not_lost(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed and never sent, then the service starts with another key: the recorded bytes land once, and all goes on."""
    address = await closed_round(local_chain)
    before = settings_of(local_chain, tmp_path)
    async with open_app(before, pace=PACE) as app:
        await sign_and_die(app, address, monkeypatch)
        recorded = await app.store.transactions(f"{app.chain_id}:{address}", Intention.POST_SCORES)
    assert await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call() == 0
    after = settings_of(local_chain, tmp_path, CLARA_EVALUATOR_KEY=local_chain.agents[20].key)
    earlier = local_chain.evaluator.address
    balance = await local_chain.node.rpc("eth_getBalance", earlier, "latest")
    await local_chain.node.rpc("anvil_setBalance", earlier, "0x0")
    async with turning(after) as world:
        await eventually(lambda: _has_report(world.app))
        assert "BalanceLow" in raised(world.engine.metrics)
        report = await read_report(world.app)
        assert report is not None
        assert f"The earlier key's wallet {earlier} cannot pay" in str(report.problems)
        await local_chain.node.rpc("anvil_setBalance", earlier, balance)
        await world.engine.tick()

        async def landed() -> bool:
            return bool(await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call())

        await eventually(landed)
        await world.engine.tick()
        done = await world.until(address, "complete")
        assert done["postedBy"] == "evaluator"
        scores = await read_document(world.app.store, world.app.chain_id, scores_key(address))
        assert scores is not None
        assert scores["txHash"] == recorded[0].tx_hash
        assert scores["traceDigest"]
        await local_chain.move_time(12 * HOUR + 1)
        await world.engine.tick()
        assert await as_web3(local_chain.challenge(address)).functions.status().call() == 2
        run = f"{world.app.chain_id}:{address}"
        assert await world.app.store.transactions(run, Intention.POST_SCORES) == recorded
        (final,) = await world.app.store.transactions(run, Intention.FINALIZE)
        assert final.sender == world.app.evaluator


async def test_what_an_earlier_key_signed_about_a_block_that_is_gone_is_not_sent(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reorg after the signature, then another key: nobody could replace the post, so it does not go out."""
    address = await closed_by_a_payment(local_chain)
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        await sign_and_die(app, address, monkeypatch)
        pinned = await pin_challenge(app.chain, app.store, address)
        (signed,) = await app.store.transactions(f"{app.chain_id}:{address}", Intention.POST_SCORES)
        assert await is_still_current(app.store, app.chain, signed)
    await replace_from(local_chain, pinned.block.number)
    after = settings_of(local_chain, tmp_path, CLARA_EVALUATOR_KEY=local_chain.agents[20].key)
    async with open_app(after, pace=PACE) as app:
        assert not await is_still_current(app.store, app.chain, signed)
        again = await send_again(
            app.chain, app.store, local_chain.evaluator.address, partial(is_still_current, app.store, app.chain)
        )
        recorded = await app.store.pending_nonces(local_chain.evaluator.address)
        assert again == len({tx.nonce for tx in recorded if tx.intention != Intention.POST_SCORES})
    await local_chain.mine(2)
    assert await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call() == 0


async def gapped_round(
    chain: LocalChain, node: MiscountingNode, settings: Settings, monkeypatch: pytest.MonkeyPatch, gap: int
) -> Address:
    """A round whose post is signed with a nonce that is too high, and not sent; the node counts rightly again."""
    address = await closed_round(chain)
    await chain.send(chain.owner, chain.challenge(address), "advanceToScoring")
    async with open_app(settings, pace=PACE) as app:
        node.extra = gap
        await sign_and_die(app, address, monkeypatch)
        node.extra = 0
    return address


async def test_a_nonce_gap_is_told_and_filled(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check names the gap, the service raises an alert, fills it and posts the round before and the one after it."""
    async with MiscountingNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)
        first = await gapped_round(local_chain, node, settings, monkeypatch, 3)
        (wallet,) = [finding for finding in await preflight(settings) if not finding.ok]
        assert "are missing, and 1 signed transaction waits for it. `clara-eval serve` fills it" in wallet.detail
        second = await closed_round(local_chain)
        async with turning(settings) as world:
            told = list[dict[str, object]]()

            def watched(pulse: ServiceHealth, name: str, value: object) -> None:
                object.__setattr__(pulse, name, value)
                if name == "wallet_problem" and value:  # the next tick may be over before we look
                    told.append(pulse.report("1"))

            monkeypatch.setattr(ServiceHealth, "__setattr__", watched)
            for address in (first, second):
                assert (await world.until(address, "complete"))["postedBy"] == "evaluator"
            assert b'clara_alerts_total{alert="NonceGap"} 1.0' in world.engine.metrics.render()
            assert told[0]["status"] == "degraded"
            assert "filled with transactions of zero to ourselves" in str(told[0]["problems"])
            await world.engine.tick()
            assert world.engine.health.report("1")["problems"] == []
            for address in (first, second):
                rows = await world.app.store.transactions(f"{world.app.chain_id}:{address}", Intention.POST_SCORES)
                assert len({row.nonce for row in rows}) == 1
        assert all(finding.ok for finding in await preflight(settings))


async def test_a_gap_at_rest_is_filled_by_the_tick(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing to send (the poster was first), a tick fills the gap, and the check is good again."""
    async with MiscountingNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)
        address = await gapped_round(local_chain, node, settings, monkeypatch, 2)
        agents, prizes = [checksum_of(local_chain, index) for index in range(3)], (300 * USDC, 125 * USDC, 75 * USDC)
        winners = [(account, 0, 1, prize) for account, prize in zip(agents, prizes, strict=True)]
        await local_chain.send(local_chain.poster, local_chain.challenge(address), "postScores", winners)
        async with turning(settings) as world:
            assert (await world.until(address, "complete"))["postedBy"] == "poster"
            await world.engine.tick()
            assert world.engine.health.report("1")["problems"] == []
        assert all(finding.ok for finding in await preflight(settings))


async def test_the_status_says_that_a_nonce_is_missing(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a gap is filled the status is publishing and says which nonce is missing; then the round is complete."""
    said: list[tuple[str, str | None]] = []
    async with MiscountingNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)
        address = await gapped_round(local_chain, node, settings, monkeypatch, 1)
        async with open_app(settings, pace=PACE) as app:
            request = EvaluationRequest(is_named=True, progress=lambda one: said.append((one.status, one.reason)))
            await evaluate(app, address, request)
    (waits,) = [reason for state, reason in said if state == "publishing" and reason]
    assert "is missing, and 1 signed transaction waits for it: it is filled with a transaction of zero" in waits
    assert said[-1][0] == "complete"


async def test_a_gap_of_an_earlier_key_calls_a_person(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the earlier key could sign what fills it: the alert says so, and the service with that key posts."""
    async with MiscountingNode(local_chain.rpc_url) as node:
        before = settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)
        address = await gapped_round(local_chain, node, before, monkeypatch, 2)
        after = settings_of(local_chain, tmp_path, CLARA_EVALUATOR_KEY=local_chain.agents[20].key)
        async with turning(after) as world:
            await eventually(lambda: _has_report(world.app))
            assert "NonceGap" in raised(world.engine.metrics)
            report = await read_report(world.app)
            assert report is not None
            assert "Only that earlier key can sign what fills it" in str(report.problems)
        async with turning(before) as world:
            await world.until(address, "complete")


async def test_an_evaluation_waits_for_the_key_of_its_challenge(local_chain: LocalChain, tmp_path: Path) -> None:
    """Queued for one key, it is left alone by a process with another, and taken by one with its own."""
    address = await closed_round(local_chain)
    first = settings_of(local_chain, tmp_path)
    async with turning(first, mode="api-only") as world:
        await world.engine.requests.request(address)
    other = settings_of(local_chain, tmp_path, CLARA_EVALUATOR_KEY=local_chain.agents[20].key)
    async with turning(other) as world:
        await eventually(lambda: _has_report(world.app))
        await asyncio.sleep(0.5)
        assert (await world.status(address))["status"] == "none"
        assert raised(world.engine.metrics) == set()
    async with turning(first) as world:
        await world.until(address, "complete")


async def test_with_an_empty_store_a_post_is_recognised(local_chain: LocalChain, tmp_path: Path) -> None:
    """Everything lost but the chain: the post is found with its sender, and nothing is evaluated or sent again."""
    address = await closed_round(local_chain)
    first, second = tmp_path / "first", tmp_path / "second"
    async with turning(settings_of(local_chain, first)) as world:
        await world.until(address, "complete")
    nonce = await web3_of(local_chain).eth.get_transaction_count(_checksum(local_chain))
    async with turning(settings_of(local_chain, second)) as world:
        done = await world.until(address, "complete")
        assert done["postedBy"] == "evaluator"
        scores = await read_document(world.app.store, world.app.chain_id, scores_key(address))
        assert scores is not None
        assert [row["prizeAmount"] for row in scores["rankings"]] == ["300000000", "125000000", "75000000"]
    assert await web3_of(local_chain).eth.get_transaction_count(_checksum(local_chain)) == nonce


def _checksum(chain: LocalChain) -> Any:
    from eth_utils.address import to_checksum_address

    return to_checksum_address(chain.evaluator.address)


async def test_a_post_by_the_poster_is_labelled(local_chain: LocalChain, tmp_path: Path) -> None:
    """The poster was first: we say so and send nothing."""
    address = await closed_round(local_chain)
    contract = local_chain.challenge(address)
    await local_chain.send(local_chain.poster, contract, "advanceToScoring")
    agents = [checksum_of(local_chain, index) for index in range(3)]
    prizes = (300 * USDC, 125 * USDC, 75 * USDC)
    winners = [(account, 0, 1, prize) for account, prize in zip(agents, prizes, strict=True)]
    await local_chain.send(local_chain.poster, contract, "postScores", winners)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        done = await world.until(address, "complete")
        assert done["postedBy"] == "poster"
        assert "poster" in done["reason"]


async def test_a_poster_who_is_faster_while_we_publish_is_shown_with_his_own_winners(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Between our ranking and our post the poster posts others: the leaderboard is his, and ours is not shown as posted."""
    address = await closed_round(local_chain)
    contract = local_chain.challenge(address)
    await local_chain.send(local_chain.poster, contract, "advanceToScoring")
    wallet = f"wallet:31337:{local_chain.evaluator.address.lower()}"
    agents = [checksum_of(local_chain, index) for index in (6, 7, 8)]
    winners = [(account, 0, 1, prize * USDC) for account, prize in zip(agents, (300, 125, 75), strict=True)]
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        assert await app.store.take_lease(wallet, "somebody", 60)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "publishing")
        await local_chain.send(local_chain.poster, contract, "postScores", winners)
        await world.app.store.drop_lease(wallet, "somebody")
        assert (await world.until(address, "complete"))["postedBy"] == "poster"

        async def shows_his() -> bool:
            found = await read_document(world.app.store, world.app.chain_id, scores_key(address)) or {}
            return [row["address"] for row in found["rankings"]] == [agent.lower() for agent in agents]

        await eventually(shows_his)
        found = await read_document(world.app.store, world.app.chain_id, scores_key(address)) or {}
        assert (found["postedBy"], found["traceDigest"], bool(found["publishedAt"])) == ("poster", None, True)


async def test_several_challenges_are_finalized_at_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """All that are due are sent before the first is mined, so that one which waits keeps no other from its claims."""
    addresses = [await posted_round(local_chain) for _ in range(3)]

    async def start(challenge: Challenge) -> None:
        raise AssertionError(challenge.address)

    metrics = Metrics()
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        tick = partial(run_tick, app, Alerts(metrics), metrics, start)
        await tick()
        await local_chain.move_time(12 * HOUR)
        await local_chain.node.rpc("evm_setAutomine", False)
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            async with asyncio.timeout(30):
                while sum(map(len, (await local_chain.node.rpc("txpool_content"))["pending"].values())) < 3:
                    assert not ticking.done(), ticking.result()
                    await asyncio.sleep(0.02)
            await local_chain.node.rpc("evm_setAutomine", True)
            await local_chain.mine()
        assert ticking.result().problems == []
    assert [await as_web3(local_chain.challenge(a)).functions.status().call() for a in addresses] == [2, 2, 2]


async def test_a_finalize_that_does_not_land_holds_up_no_evaluation(local_chain: LocalChain, tmp_path: Path) -> None:
    """The wallet is busy: the tick starts what is due, gives up finalizing for now, and ends."""
    contract = local_chain.challenge(await posted_round(local_chain))
    started: list[Address] = []

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    metrics = Metrics()
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        tick = partial(run_tick, app, Alerts(metrics), metrics, start)
        await tick()
        await local_chain.move_time(12 * HOUR)
        later = await closed_round(local_chain)
        assert await app.store.take_lease(f"wallet:31337:{app.sender.address}", "somebody", 60)
        report = await asyncio.wait_for(tick(options=EngineOptions(finalize_seconds=0.3)), 60)
        assert (started, report.problems) == ([later], ["Finalizing is taking long: it continues at the next tick."])
        await app.store.drop_lease(f"wallet:31337:{app.sender.address}", "somebody")
        await tick(options=EngineOptions(finalize_seconds=60))
        assert await as_web3(contract).functions.status().call() == 2


async def test_too_few_submissions_are_unscorable(local_chain: LocalChain, tmp_path: Path) -> None:
    """With one submission the contract cancels and refunds; we call it and say why."""
    address = await post_round(local_chain)
    content = entry("ring_buffer").encode()
    await local_chain.submit_all(address, [Handed(local_chain.agents[0], data_uri(content), keccak_hex(content))])
    await local_chain.move_time(HOUR + 1)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        ended = await world.until(address, "unscorable")
        assert ended["reason"]


@pytest.mark.specification("5", "For high-value challenges, human review")
async def test_a_large_prize_waits_for_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """Nothing is posted before the approval; then exactly the approved result; a second decision is refused."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "review")
        await world.engine.tick()
        assert await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call() == 0
        with pytest.raises(BadInput, match="digest"):
            await world.engine.requests.decide(address, "approve", "looked at nothing")
        looked_at = (await known_review(world.app.store, world.app.chain_id, address)).digest
        await world.engine.requests.decide(address, "approve", "looked at it", looked_at)
        assert (await world.until(address, "complete"))["postedBy"] == "evaluator"
        with pytest.raises(BadInput, match="already approved"):
            await world.engine.requests.decide(address, "reject", "")


async def test_a_rejected_result_is_failed_and_never_posted(local_chain: LocalChain, tmp_path: Path) -> None:
    """Rejection ends the evaluation with the person's reason."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "review")
        await world.engine.requests.decide(address, "reject", "smells")
        assert "smells" in (await world.until(address, "failed"))["reason"]
        await world.engine.tick()
        assert await as_web3(local_chain.challenge(address)).functions.scorePostedAt().call() == 0


async def test_a_late_rejection_takes_no_post_back(local_chain: LocalChain, tmp_path: Path) -> None:
    """While a result waited the poster posted: rejecting ours afterwards leaves the challenge complete."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "review")
        prizes = zip(range(3), (1200 * USDC, 500 * USDC, 300 * USDC), strict=True)
        winners = [(checksum_of(local_chain, index), 0, 1, prize) for index, prize in prizes]
        await local_chain.send(local_chain.poster, local_chain.challenge(address), "postScores", winners)
        await world.engine.tick()
        assert (await world.status(address))["postedBy"] == "poster"
        await world.engine.requests.decide(address, "reject", "too late")
        assert (await world.status(address))["status"] == "complete"


async def test_a_config_that_is_not_the_committed_one_is_never_evaluated(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Another config in the metadata than the hash on chain: failed, with both hashes named."""
    config = json.dumps(CONFIG)
    uri = build_metadata(title="T", problem_statement="", skills=(), config_text=config)
    other = config_hash(config.replace("higher", "lower").encode())
    terms = PostedTerms(
        challenge_uri=uri, eval_config_hash=other, payout_bps=(10000,), prize_pool=USDC, open_seconds=HOUR
    )
    address = await local_chain.post_challenge(terms)
    await submit_round(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        assert other in (await world.until(address, "failed"))["reason"]


async def test_a_small_prize_is_deferred_with_reason_and_time(local_chain: LocalChain, tmp_path: Path) -> None:
    """Under the minimum prize nothing is spent; the status says why and until when."""
    address = await closed_round(local_chain)
    async with turning(settings_of(local_chain, tmp_path, CLARA_MIN_PRIZE_USD="501")) as world:
        waiting = await world.until(address, "deferred")
        assert "minimum of $501.00" in waiting["reason"]
        assert waiting["retryAt"] > waiting["updatedAt"]


async def test_what_interfaces_may_ask_for(local_chain: LocalChain, tmp_path: Path) -> None:
    """A request for an open, an unknown or a posted challenge is refused in words; one for a failed one starts it."""
    address = await post_round(local_chain)
    await submit_round(local_chain, address)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        with pytest.raises(NotYet, match="submissions are open"):
            await world.engine.requests.request(address)
        with pytest.raises(NotFound):
            await world.engine.requests.request(Address("0x" + "99" * 20))
        await local_chain.move_time(HOUR + 1)
        name = await world.engine.requests.request(address)
        assert name == f"evaluate:31337:{address}:1"
        await world.until(address, "complete")
        with pytest.raises(NotYet, match=r"on the chain|posted"):
            await world.engine.requests.request(address)
        assert (await summaries(world.app.store, 31337))[address].postedBy == "evaluator"


async def test_a_dead_node_does_not_keep_the_engine_from_starting(local_chain: LocalChain, tmp_path: Path) -> None:
    """It turns, says what is wrong, and is degraded, not stale."""
    settings = settings_of(local_chain, tmp_path, CLARA_RPC_URL="http://127.0.0.1:9")
    async with turning(settings) as world:

        async def told() -> bool:
            return world.engine.health.tick_problem is not None

        await eventually(told)
        report = world.engine.health.report("1")
        assert (report["status"], world.engine.health.stale_reason) == ("degraded", None)
        public = str(report["problems"])
        assert "127.0.0.1" not in public
        assert "CLARA_" not in public
        assert b"clara_rpc_up 0.0" in world.engine.metrics.render()


async def test_an_old_report_says_nothing_about_this_process(local_chain: LocalChain, tmp_path: Path) -> None:
    """A good tick before the start neither hides a node that is away now nor counts as a tick of today."""
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await eventually(lambda: _has_report(world.app))
        report = await read_report(world.app)
        assert report is not None
        await save_report(world.app, dataclasses.replace(report, at=report.at - 3600, head_block=4242))
    async with turning(settings_of(local_chain, tmp_path, CLARA_RPC_URL="http://127.0.0.1:9")) as world:
        await eventually(lambda: _shows(world, "clara_head_block 4242.0"))
        await eventually(lambda: _shows(world, 'clara_ticks_total{result="failed"}'))
        await asyncio.sleep(5 * FAST.beat_seconds)
        assert world.engine.health.report("1")["status"] == "degraded"
        assert b"clara_rpc_up 0.0" in world.engine.metrics.render()


async def _has_report(app: App) -> bool:
    return await read_report(app) is not None


async def _shows(world: Turning, line: str) -> bool:
    return line in world.engine.metrics.render().decode()


async def test_the_heart_beats_on_after_something_nobody_foresaw(local_chain: LocalChain, tmp_path: Path) -> None:
    """A report that this version cannot read, as a newer one writes it, ends neither the beat nor the lease."""
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.app.store.put(world.app.chain_id, LAST_TICK, '{"at": 99999999999, "unheardOf": 1}')
        await asyncio.sleep(5 * FAST.beat_seconds)
        before = world.engine.health.beat

        async def beats() -> bool:
            return world.engine.health.beat > before

        await eventually(beats, 10)
        assert not await world.app.store.take_lease(f"worker:{world.engine.worker}", "another", 1)


async def test_one_broken_row_keeps_no_other_challenge_waiting(local_chain: LocalChain, tmp_path: Path) -> None:
    """What cannot even be parsed is a problem of its own challenge; the tick ends well and the other is evaluated."""
    broken, due_too = await post_round(local_chain), await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await app.store.put(app.chain_id, attempts_key(broken), '{"number": 1, "unheardOf"')
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(due_too, "complete")
        report = await read_report(world.app)
        assert report is not None
        assert [problem.partition(":")[0] for problem in report.problems] == [broken]


async def test_sqlite_serves_one_process(local_chain: LocalChain, tmp_path: Path) -> None:
    """A second engine on the same file ends with a sentence that names the remedy; afterwards the file is free."""
    settings = settings_of(local_chain, tmp_path)
    async with turning(settings):
        with pytest.raises(ConfigError, match=r"Another clara-eval process .* Postgres"):
            await _start_and_stop(settings)
    with only_process(tmp_path / "engine.db"):
        pass


async def _start_and_stop(settings: Settings) -> None:
    async with turning(settings):
        pass


async def test_a_worker_declared_dead_stops(local_chain: LocalChain, tmp_path: Path) -> None:
    """Another holds its lease: it gives up its work and asks for the process to end."""
    async with turning(settings_of(local_chain, tmp_path)) as world:
        lease = f"worker:{world.engine.worker}"
        await world.app.store.drop_lease(lease, world.engine.worker)
        await world.app.store.take_lease(lease, "taker:other", 60)
        await asyncio.wait_for(world.engine.lost.wait(), 10)


async def _hold_until_lost(app: App) -> None:
    async with held(app.store, "x", "me", 0.3):
        assert not await app.store.take_lease("x", "other", 0.3)
        await app.store.drop_lease("x", "me")
        await app.store.take_lease("x", "other", 60)
        await asyncio.Event().wait()


async def test_a_lost_lease_ends_what_runs_under_it(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two cannot hold one lease, and who loses it is interrupted, with `Busy` and not with a cancellation."""
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        with pytest.raises(Busy, match="taken over x"):
            await _hold_until_lost(app)
        async with held(app.store, "y", "me", 0.3):
            pass
        assert await app.store.take_lease("y", "other", 1)


async def test_who_finds_it_held_leaves_the_holders_status_alone(local_chain: LocalChain, tmp_path: Path) -> None:
    """Another worker compares: an attempt beside it ends, says nothing in its place, and one comes after it."""
    address = await closed_round(local_chain)
    lease = f"evaluation:31337:{address}"
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        assert await app.store.take_lease(lease, "another:1", 60)
        await StatusWriter(app.store, app.chain_id, address).say("comparing", 60)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await eventually(lambda: _shows(world, 'clara_evaluations_total{outcome="busy"} 1.0'))
        found = await world.status(address)
        assert (found["status"], found["progress"], found["reason"]) == ("comparing", 60, None)
        await world.app.store.drop_lease(lease, "another:1")
        await world.engine.requests.request(address)
        await world.until(address, "complete")


async def test_half_of_the_window_gone_raises_the_alarm(local_chain: LocalChain, tmp_path: Path) -> None:
    """A result that waits too long for its person is shouted about."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "review")
        assert "DeadlineAtRisk" not in raised(world.engine.metrics)
        await local_chain.move_time(4 * 24 * HOUR)
        await world.engine.tick()
        assert b'clara_alerts_total{alert="DeadlineAtRisk"} 1.0' in world.engine.metrics.render()
        assert b"clara_review_queue 1.0" in world.engine.metrics.render()


async def test_an_api_without_workers_queues_and_does_not_run(
    local_chain: LocalChain, postgres_url: str, tmp_path: Path
) -> None:
    """What it queues waits for a worker, and a worker takes it."""
    address = await closed_round(local_chain)
    settings = settings_of(local_chain, tmp_path, CLARA_DATABASE_URL=postgres_url)
    async with turning(settings, mode="api-only") as world:
        await world.engine.requests.request(address)
        await asyncio.sleep(0.2)
        assert (await world.status(address))["status"] == "none"
    async with turning(settings) as world:
        await world.until(address, "complete")


@pytest.mark.parametrize(("column", "value"), [("application_version", "0"), ("queue_name", "chunks")])
async def test_work_in_a_queue_of_another_version_is_not_left_there(
    local_chain: LocalChain, tmp_path: Path, column: str, value: str
) -> None:
    """Queued by a version whose queues this one does not serve, the round is started anew and posted."""
    address = await closed_round(local_chain)
    settings = settings_of(local_chain, tmp_path)
    async with turning(settings, mode="api-only") as world:
        await world.engine.requests.request(address)
    with closing(sqlite3.connect(tmp_path / "engine-engine.db")) as queue:
        queue.execute(f"UPDATE workflow_status SET {column} = ? WHERE name = 'evaluate_challenge'", (value,))
        queue.commit()
    async with turning(settings) as world:
        await world.until(address, "complete")
        assert (await read_attempts(world.app.store, world.app.chain_id, address)).number >= 2, "the first never ran"
