"""Posting on a real node with a real store: exactly once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulty_node import FaultyNode, refuses, status
from tests.support.posting import (
    DIGEST,
    Killed,
    Mortal,
    closed,
    decide,
    dies_before_sending,
    foreign_transaction,
    more_rounds,
    post_and_die,
    post_together,
    wallet_of,
    world,
)
from tests.support.signers import LocalWeb3Signer
from tests.support.web3_chain import web3_of

from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.model import ChallengeStatus, PostedBy, Winners, read_calldata
from clara_eval.chain.sender import SendOutcome, TransactionSender
from clara_eval.chain.transaction import StoredTransaction, evaluator_policy, read_signed
from clara_eval.chain.wallet import RemoteSigner, Wallet
from clara_eval.challenges.calls import advance, finalize, publish
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.errors import (
    CannotPublish,
    Disagrees,
    NotYet,
    Temporary,
    Unscorable,
)
from clara_eval.devnet.local_chain import DAY, LocalChain
from clara_eval.devnet.local_chain import local_chain as fresh_chain
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore


async def test_a_post_is_confirmed_and_carries_the_digest(local_chain: LocalChain, tmp_path: Path) -> None:
    """The winners stand on the chain, the digest in the transaction, the signed bytes in the store."""
    async with world(local_chain, tmp_path) as w:
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.CONFIRMED, PostedBy.EVALUATOR)
        assert await w.chain.results.winners_on_chain(w.challenge.address, 3) == w.winners.entries
        posted = await w.chain.results.posted_by(w.challenge)
        assert posted is not None
        assert posted.tx_hash == receipt.tx_hash
        assert read_calldata(posted.calldata) == (w.winners, DIGEST)
        (attempt,) = await w.attempts()
        assert attempt.tx_hash == receipt.tx_hash
        assert (await w.post()).tx_hash == receipt.tx_hash
        assert await w.posts() == 1


async def test_advance_post_finalize_take_the_same_sender(local_chain: LocalChain, tmp_path: Path) -> None:
    """The keeper's calls end confirmed, each with its own nonce, and repeat harmlessly."""
    async with world(local_chain, tmp_path) as w:
        address = await closed(local_chain)
        challenge = await look_at_challenge(w.chain, address)
        with pytest.raises(NotYet, match="still Open"):
            await publish(challenge, decide(challenge), DIGEST, sender=w.sender)
        with pytest.raises(NotYet, match="No scores are posted"):
            await finalize(challenge, sender=w.sender)
        assert (await advance(challenge, sender=w.sender)).outcome is SendOutcome.CONFIRMED
        receipt = await publish(challenge, decide(challenge), DIGEST, sender=w.sender)
        assert receipt.outcome is SendOutcome.CONFIRMED
        with pytest.raises(NotYet, match="12 hours"):
            await finalize(challenge, sender=w.sender)
        await local_chain.move_time(DAY)
        assert (await finalize(challenge, sender=w.sender)).outcome is SendOutcome.CONFIRMED
        assert (await finalize(challenge, sender=w.sender)).outcome is SendOutcome.CONFIRMED
        assert (await w.chain.results.scoring_state(address)).status is ChallengeStatus.FINALIZED
        rows = await w.store.pending_nonces(w.account.address)
        assert [row.intention for row in rows] == ["finalize", "post_scores", "advance_to_scoring"]
        assert len({row.nonce for row in rows}) == 3


async def test_what_others_advanced_is_already_done(local_chain: LocalChain, tmp_path: Path) -> None:
    """When anybody else was faster, the keeper sends nothing and says so."""
    async with world(local_chain, tmp_path) as w:
        receipt = await advance(w.challenge, sender=w.sender)
        assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.ALREADY_DONE, None)
        assert await w.store.pending_nonces(w.account.address) == []


async def test_a_dry_run_sends_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without a key everything is rehearsed and nothing is sent or recorded."""
    async with world(local_chain, tmp_path) as w:
        before = await w.rpc("eth_blockNumber")
        for dry_address in (local_chain.evaluator.address, None):
            dry = EthereumAccount(w.chain, None, dry_address=dry_address)
            receipt = await w.post(TransactionSender(dry, w.store, w.clock.pace()))
            assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.DRY_RUN, None)
            assert read_calldata(bytes.fromhex(receipt.calldata[2:]))[0] == w.winners
        assert await w.rpc("eth_blockNumber") == before
        assert await w.store.pending_nonces(local_chain.evaluator.address) == []
        assert (await w.chain.results.scoring_state(w.challenge.address)).score_posted_at == 0


async def test_a_dry_run_of_a_stranger_says_not_evaluator(local_chain: LocalChain, tmp_path: Path) -> None:
    """The rehearsal uses the address that would send."""
    async with world(local_chain, tmp_path) as w:
        dry = EthereumAccount(w.chain, None, dry_address=local_chain.agents[9].address)
        with pytest.raises(CannotPublish, match="NotEvaluator"):
            await w.post(TransactionSender(dry, w.store, w.clock.pace()))


async def test_the_wrong_key_is_refused_before_anything_is_signed(local_chain: LocalChain, tmp_path: Path) -> None:
    """A key that is not the evaluator's gets the contract's reason and the remedy."""
    async with world(local_chain, tmp_path) as w:
        wrong = EthereumAccount(w.chain, wallet_of(local_chain.agents[9].key), factory=local_chain.deployment.factory)
        with pytest.raises(CannotPublish, match="Use the evaluator's key") as caught:
            await w.post(TransactionSender(wrong, w.store, w.clock.pace()))
        assert "NotEvaluator" in str(caught.value)
        assert await w.attempts() == []


async def test_a_challenge_the_factory_does_not_know_is_not_signed(local_chain: LocalChain, tmp_path: Path) -> None:
    """The wallet signs only for challenges of the factory, or for those a person named."""
    async with world(local_chain, tmp_path) as w:
        stranger = EthereumAccount(w.chain, wallet_of(local_chain.evaluator.key), factory=None)
        with pytest.raises(CannotPublish, match="not a known challenge"):
            await w.post(TransactionSender(stranger, w.store, w.clock.pace()))
        stranger.trust(w.challenge.address)
        receipt = await w.post(TransactionSender(stranger, w.store, w.clock.pace()))
        assert receipt.outcome is SendOutcome.CONFIRMED


async def test_an_empty_wallet_is_named(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without ETH for gas the error says what to do."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("anvil_setBalance", local_chain.evaluator.address, "0x0")
        with pytest.raises(CannotPublish, match="Send ETH"):
            await w.post()


async def test_too_few_submitters_is_unscorable(local_chain: LocalChain, tmp_path: Path) -> None:
    """A challenge with fewer submitters than winners is refused before the node is asked."""
    async with world(local_chain, tmp_path) as w:
        short = replace(w.challenge, submissions=w.challenge.submissions[:2])
        with pytest.raises(Unscorable, match="2 submitters for 3 winners"):
            await publish(short, w.winners, DIGEST, sender=w.sender)


async def test_the_poster_posts_first(local_chain: LocalChain, tmp_path: Path) -> None:
    """We stop, send nothing, and say whose result stands."""
    async with world(local_chain, tmp_path) as w:
        other = Winners(tuple(replace(winner, score=1) for winner in w.winners.entries))
        rows = [(web3_of(w.local).to_checksum_address(e.account), e.agent_id, 1, e.prize_amount) for e in other.entries]
        await local_chain.send(local_chain.poster, local_chain.challenge(w.challenge.address), "postScores", rows)
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.ALREADY_DONE, PostedBy.POSTER)
        assert "by the poster" in receipt.detail
        assert await w.attempts() == []


async def test_expired_first(local_chain: LocalChain, tmp_path: Path) -> None:
    """An expired challenge is refused by name, without any transaction."""
    async with world(local_chain, tmp_path) as w:
        await local_chain.move_time(8 * DAY)
        await local_chain.send(local_chain.owner, local_chain.challenge(w.challenge.address), "expire")
        with pytest.raises(CannotPublish, match="Expired"):
            await w.post()
        assert await w.attempts() == []


async def test_a_lost_store_finds_its_own_post_on_the_chain(local_chain: LocalChain, tmp_path: Path) -> None:
    """With an empty store the same bytes on the chain are recognised as our post."""
    async with world(local_chain, tmp_path) as w:
        first = await w.post()
        empty = await SqliteStore.open(tmp_path / "other.db")
        again = await w.post(TransactionSender(w.account, empty, w.clock.pace()))
        await empty.close()
        assert (again.outcome, again.tx_hash, again.posted_by) == (
            SendOutcome.CONFIRMED,
            first.tx_hash,
            PostedBy.EVALUATOR,
        )
        assert await w.posts() == 1


async def test_another_result_than_the_recorded_one_stops(local_chain: LocalChain, tmp_path: Path) -> None:
    """Once a transaction is signed, other winners are never sent under the same intention."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)
        assert (await w.post()).outcome is SendOutcome.UNKNOWN
        with pytest.raises(Disagrees, match="differs from what is to be sent"):
            await publish(w.challenge, w.winners, "0x" + "d2" * 32, sender=w.sender)


# -- crashes


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_every_step_it_posts_exactly_once(local_chain: LocalChain, tmp_path: Path, after: bool) -> None:
    """However the process dies, before or after any step, the restart ends with one post and one nonce."""
    async with world(local_chain, tmp_path) as w:
        deaths = 0
        for step in range(1, 100):
            snapshot = await local_chain.snapshot()
            store = await SqliteStore.open(tmp_path / f"{step}.db")
            mortal = Mortal(step, after=after)
            sender, log = mortal.wrap(w.account), mortal.wrap(store)
            pace = w.clock.pace(lease_seconds=0.02)
            try:
                await w.post(TransactionSender(sender, log, pace))
            except Killed:
                deaths += 1
            receipt = await w.post(TransactionSender(w.account, store, pace))
            assert receipt.outcome is SendOutcome.CONFIRMED
            assert await w.posts() == 1
            assert len({tx.nonce for tx in await store.transactions(w.challenge.run, "post_scores")}) == 1
            await store.close()
            await local_chain.revert(snapshot)
            if not mortal.is_dead:
                break
        assert deaths >= 12


@pytest.mark.parametrize("last_step", ["prepare", "save_transaction", "broadcast"])
async def test_a_real_process_is_killed(local_chain: LocalChain, tmp_path: Path, last_step: str) -> None:
    """A process that gets SIGKILL right after signing, recording or sending leaves a store that posts exactly once."""
    async with world(local_chain, tmp_path) as w:
        database = tmp_path / "killed.db"
        assert await post_and_die(w, local_chain.rpc_url, database, last_step) == -signal.SIGKILL
        store = await SqliteStore.open(database)
        recorded = await store.transactions(w.challenge.run, "post_scores")
        assert len(recorded) == (0 if last_step == "prepare" else 1)
        later = SqlStore(store.driver, now=lambda: time.time() + 1000)  # the dead process's lease has run out
        receipt = await w.post(TransactionSender(w.account, later, w.clock.pace()))
        await store.close()
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert not recorded or receipt.tx_hash == recorded[0].tx_hash
        assert await w.posts() == 1


async def test_the_posters_own_key_is_called_the_poster(local_chain: LocalChain, tmp_path: Path) -> None:
    """When the wallet is the poster's, the result is not called the evaluator's."""
    async with world(local_chain, tmp_path) as w:
        sender = EthereumAccount(w.chain, wallet_of(local_chain.poster.key), factory=local_chain.deployment.factory)
        receipt = await w.post(TransactionSender(sender, w.store, w.clock.pace()))
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.CONFIRMED, PostedBy.POSTER)


# -- two at once


async def test_two_publishers_on_one_key_post_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """With one store the second waits for the first; both report the same transaction."""
    async with world(local_chain, tmp_path) as w:
        first, second = await asyncio.gather(w.post(), w.post())
        assert first.tx_hash == second.tx_hash
        assert (first.outcome, second.outcome) == (SendOutcome.CONFIRMED, SendOutcome.CONFIRMED)
        assert await w.posts() == 1


async def test_two_machines_on_one_key_post_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without a common store the nonce and the contract keep it to one post, and only one transaction is mined."""
    async with world(local_chain, tmp_path) as w:
        other = await SqliteStore.open(tmp_path / "other.db")
        before = await w.account.next_nonce()
        receipts = await asyncio.gather(w.post(), w.post(TransactionSender(w.account, other, w.clock.pace())))
        await other.close()
        assert {receipt.outcome for receipt in receipts} == {SendOutcome.CONFIRMED}
        assert await w.posts() == 1
        assert await w.account.next_nonce() == before + 1


async def test_two_challenges_on_one_wallet_do_not_fight(local_chain: LocalChain, tmp_path: Path) -> None:
    """Two challenges due together are both posted, with neighbouring nonces."""
    async with world(local_chain, tmp_path) as w:
        address = await closed(local_chain)
        await local_chain.send(local_chain.owner, local_chain.challenge(address), "advanceToScoring")
        second = await look_at_challenge(w.chain, address)
        receipts = await asyncio.gather(w.post(), publish(second, decide(second), DIGEST, sender=w.sender))
        assert {receipt.outcome for receipt in receipts} == {SendOutcome.CONFIRMED}
        rows = await w.store.pending_nonces(w.account.address)
        assert rows[0].nonce == rows[1].nonce + 1


async def test_many_wait_to_be_mined_at_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """While transactions wait to be mined the wallet is free for the next: all are sent before the first is mined."""
    async with world(local_chain, tmp_path) as w:
        challenges = await more_rounds(w, 2)
        await w.rpc("evm_setAutomine", False)
        seen: list[int] = []

        async def mine_when_all_are_sent(_seconds: int) -> None:
            pool = await w.rpc("txpool_content")
            seen.append(sum(map(len, pool["pending"].values())))
            if seen[-1] == len(challenges):
                name = f"wallet:31337:{w.account.address}"
                assert await w.store.take_lease(name, "somebody else", 5)
                await w.store.drop_lease(name, "somebody else")
                await w.rpc("evm_setAutomine", True)
                await w.rpc("anvil_mine", 1)

        receipts = await post_together(w, challenges, mine_when_all_are_sent)
        assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * 3
        assert len(challenges) in seen
        nonces = sorted(row.nonce for row in await w.store.pending_nonces(w.account.address))
        assert nonces == list(range(nonces[0], nonces[0] + 3))
        assert await w.posts() == 1


async def test_what_is_stuck_is_raised_once_however_many_wait_for_it(local_chain: LocalChain, tmp_path: Path) -> None:
    """Each of several that wait behind a stuck transaction would raise it: together they raise it once a period."""
    async with world(local_chain, tmp_path) as w:
        challenges = await more_rounds(w, 2)
        await w.rpc("evm_setAutomine", False)

        async def mine_after_a_minute(seconds: int) -> None:
            if seconds >= 60:
                await w.rpc("evm_setAutomine", True)
                await w.rpc("anvil_mine", 1)

        receipts = await post_together(w, challenges, mine_after_a_minute)
        assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * 3
        rows = await w.store.pending_nonces(w.account.address)
        assert Counter(row.nonce for row in rows) == dict.fromkeys({row.nonce for row in rows}, 2)
        landed = {receipt.tx_hash for receipt in receipts}
        assert sorted(row.nonce for row in rows if row.tx_hash in landed) == sorted({row.nonce for row in rows})


async def test_a_reorg_that_drops_several_posts_is_repaired(tmp_path: Path) -> None:
    """Posts in flight together that vanish in a reorg are all sent again, the same bytes, and each stands once."""
    async with fresh_chain() as chain, world(chain, tmp_path, confirmations=5) as w:
        challenges = await more_rounds(w, 1)
        has_reorged = False

        async def reorg_then_mine(_seconds: int) -> None:
            nonlocal has_reorged
            if has_reorged:
                await w.rpc("anvil_mine", 1)
                return
            posted = [(await w.chain.results.scoring_state(one.address)).score_posted_at for one in challenges]
            if all(posted):
                await chain.reorg(2)
                assert await w.posts() == 0
                has_reorged = True

        receipts = await post_together(w, challenges, reorg_then_mine)
        assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * 2
        assert has_reorged
        rows = await w.store.pending_nonces(w.account.address)
        assert {row.tx_hash for row in rows} == {receipt.tx_hash for receipt in receipts}
        assert await w.posts() == 1


# -- stuck, dropped, replaced, reorganised


async def test_a_stuck_transaction_is_replaced_with_more_money_only(local_chain: LocalChain, tmp_path: Path) -> None:
    """The replacement has the same nonce and calldata, an eighth more fee at least, and lands."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)

        async def mine_after_the_bump(_waits: int) -> None:
            if len(await w.attempts()) >= 2:
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine_after_the_bump
        receipt = await w.post()
        first, second = await w.attempts()
        assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.CONFIRMED, second.tx_hash)
        assert (first.nonce, read_signed(first.raw).data) == (second.nonce, read_signed(second.raw).data)
        assert second.max_fee_per_gas >= first.max_fee_per_gas * 9 // 8
        assert second.max_priority_fee_per_gas >= first.max_priority_fee_per_gas * 9 // 8
        assert await w.posts() == 1


async def test_the_cheap_attempt_mines_after_the_bump(local_chain: LocalChain, tmp_path: Path) -> None:
    """When a miner takes the older attempt, that is success."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)

        async def mine_the_first(_waits: int) -> None:
            rows = await w.attempts()
            if len(rows) == 2:
                await w.rpc("anvil_dropTransaction", rows[1].tx_hash)
                await w.rpc("eth_sendRawTransaction", rows[0].raw)
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine_the_first
        receipt = await w.post()
        assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.CONFIRMED, (await w.attempts())[0].tx_hash)
        assert await w.posts() == 1


async def test_never_mined_is_unknown_and_goes_on_later(local_chain: LocalChain, tmp_path: Path) -> None:
    """A transaction that nobody mines ends as unknown with its hash; the next call finishes it."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)
        receipt = await w.post()
        rows = await w.attempts()
        assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.UNKNOWN, rows[-1].tx_hash)
        assert len({row.nonce for row in rows}) == 1
        assert rows[-1].max_fee_per_gas <= 5 * rows[0].max_fee_per_gas
        await w.rpc("anvil_mine", 1)
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1


@pytest.mark.specification("9", "Error handling and retry of the post")
async def test_dropped_from_the_pool_is_sent_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """When the node forgets our transaction, the same bytes go out again."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)

        async def drop_then_mine(waits: int) -> None:
            if waits == 1:
                await w.rpc("anvil_dropTransaction", (await w.attempts())[0].tx_hash)
            if waits >= 3:
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = drop_then_mine
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert len(await w.attempts()) == 1
        assert await w.posts() == 1


@pytest.mark.parametrize("depth", [1, 3, 10])
async def test_a_reorg_that_drops_the_post_is_repaired(tmp_path: Path, depth: int) -> None:
    """While we wait for confirmations the post vanishes: it is sent again, the same bytes, and stands once."""
    # A node of its own: on one that went back to many snapshots, anvil was seen to lose the contracts in a reorg.
    async with fresh_chain() as chain, world(chain, tmp_path, confirmations=depth + 2) as w:
        has_reorged = False

        async def reorg_then_mine(_waits: int) -> None:
            nonlocal has_reorged
            if has_reorged:
                await w.rpc("anvil_mine", 1)
            elif await w.posts() == 1:  # the node mines a moment after it has taken a transaction
                await w.rpc("anvil_mine", depth - 1) if depth > 1 else None
                await chain.reorg(depth)
                assert await w.posts() == 0
                has_reorged = True

        w.clock.on_wait = reorg_then_mine
        receipt = await w.post()
        (attempt,) = await w.attempts()
        assert (receipt.outcome, receipt.tx_hash, has_reorged) == (SendOutcome.CONFIRMED, attempt.tx_hash, True)
        assert await w.posts() == 1


async def test_a_reorg_after_the_end_is_repaired_by_the_next_call(local_chain: LocalChain, tmp_path: Path) -> None:
    """Asked again after its post was taken back, it posts the same bytes once more."""
    async with world(local_chain, tmp_path) as w:
        first = await w.post()
        await local_chain.reorg(1)
        assert await w.posts() == 0
        again = await w.post()
        assert (again.outcome, again.tx_hash) == (SendOutcome.CONFIRMED, first.tx_hash)
        assert await w.posts() == 1


async def test_the_base_fee_jumps(local_chain: LocalChain, tmp_path: Path) -> None:
    """A base fee ten times higher than when we signed only costs a replacement."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)

        async def dear_blocks(_waits: int) -> None:
            attempts = await w.attempts()
            if attempts:
                await w.rpc("anvil_setNextBlockBaseFeePerGas", attempts[0].max_fee_per_gas * 4)
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = dear_blocks
        receipt = await w.post()
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert len(await w.attempts()) >= 2
        assert await w.posts() == 1


async def test_a_base_fee_above_the_cap_waits(local_chain: LocalChain, tmp_path: Path) -> None:
    """Above the cap nothing dearer is signed; when the fee falls the recorded bytes land."""
    async with world(local_chain, tmp_path, max_fee_per_gas=3 * 10**9) as w:
        await w.rpc("evm_setAutomine", False)

        async def too_dear(_waits: int) -> None:
            await w.rpc("anvil_setNextBlockBaseFeePerGas", 200 * 10**9)
            await w.rpc("anvil_mine", 1)

        w.clock.on_wait = too_dear
        assert (await w.post()).outcome is SendOutcome.UNKNOWN
        assert all(row.max_fee_per_gas <= 3 * 10**9 for row in await w.attempts())
        await w.rpc("anvil_setNextBlockBaseFeePerGas", 10**9)
        await w.rpc("anvil_mine", 1)

        async def cheap_again(_waits: int) -> None:
            await w.rpc("anvil_mine", 1)

        w.clock.on_wait = cheap_again
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1


async def test_a_nonce_used_by_a_stranger_is_replaced_after_proof(local_chain: LocalChain, tmp_path: Path) -> None:
    """When a foreign transaction takes our recorded nonce, another nonce is taken and the post stands once."""
    async with world(local_chain, tmp_path) as w:
        with pytest.raises(Killed):
            await w.post(TransactionSender(dies_before_sending(w), w.store, w.clock.pace()))
        await foreign_transaction(w)
        receipt = await w.post()
        lost, landed = await w.attempts()
        assert (receipt.outcome, receipt.tx_hash) == (SendOutcome.CONFIRMED, landed.tx_hash)
        assert landed.nonce == lost.nonce + 1
        assert await w.posts() == 1


async def test_an_unfinished_transaction_before_ours_is_sent_too(local_chain: LocalChain, tmp_path: Path) -> None:
    """A recorded but never sent transaction of another challenge does not block the wallet."""
    async with world(local_chain, tmp_path) as w:
        with pytest.raises(Killed):
            await w.post(TransactionSender(dies_before_sending(w), w.store, w.clock.pace()))
        address = await closed(local_chain)
        second = await look_at_challenge(w.chain, address)
        receipt = await advance(second, sender=w.sender)
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1
        assert (await w.post()).outcome is SendOutcome.CONFIRMED


async def test_a_revert_is_named_and_may_be_tried_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """A transaction that the chain reverts ends as reverted; the next call uses a new nonce and succeeds."""
    async with world(local_chain, tmp_path) as w:

        class Starved:
            """Signs with too little gas, as after a change of state between rehearsal and mining."""

            def __getattr__(self, name: str) -> Any:
                return getattr(w.account, name)

            async def prepare(
                self, call: Any, *, attempt: int, nonce: int, recorded: Any, over: Any
            ) -> StoredTransaction:
                good = await w.account.prepare(call, attempt=attempt, nonce=nonce, recorded=recorded, over=over)
                poor = replace(read_signed(good.raw), gas=60_000)
                return await w.account._sign(poor, recorded, call, attempt)

        starved: Any = Starved()
        assert (await w.post(TransactionSender(starved, w.store, w.clock.pace()))).outcome is SendOutcome.REVERTED
        assert await w.posts() == 0
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        first, second = await w.attempts()
        assert second.nonce == first.nonce + 1
        assert await w.posts() == 1


async def test_after_a_dead_attempt_a_new_result_may_be_posted(local_chain: LocalChain, tmp_path: Path) -> None:
    """Other winners are refused only while an older signature could still land."""
    async with world(local_chain, tmp_path) as w:
        with pytest.raises(Killed):
            await w.post(TransactionSender(dies_before_sending(w), w.store, w.clock.pace()))
        with pytest.raises(Disagrees):
            await publish(w.challenge, w.winners, "0x" + "d2" * 32, sender=w.sender)
        await foreign_transaction(w)
        receipt = await publish(w.challenge, w.winners, "0x" + "d2" * 32, sender=w.sender)
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1


async def test_the_poster_posts_while_ours_waits(local_chain: LocalChain, tmp_path: Path) -> None:
    """Ours is signed and sent when the poster's lands first: we stop and say whose result stands."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)
        rows = [
            (web3_of(w.local).to_checksum_address(e.account), e.agent_id, 5, e.prize_amount) for e in w.winners.entries
        ]
        data = local_chain.challenge(w.challenge.address).encode_abi("postScores", args=[rows])

        async def poster_overtakes(waits: int) -> None:
            if waits == 1:
                await w.rpc("anvil_dropTransaction", (await w.attempts())[0].tx_hash)
                await local_chain.node.post(local_chain.poster, w.challenge.address, data)
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = poster_overtakes
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.ALREADY_DONE, PostedBy.POSTER)
        assert await w.posts() == 1


async def test_the_posters_post_in_the_same_block_reverts_ours(local_chain: LocalChain, tmp_path: Path) -> None:
    """Our transaction is mined behind the poster's and reverts: the outcome names the poster, not a bare revert."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)
        rows = [
            (web3_of(w.local).to_checksum_address(e.account), e.agent_id, 5, e.prize_amount) for e in w.winners.entries
        ]
        data = local_chain.challenge(w.challenge.address).encode_abi("postScores", args=[rows])

        async def poster_pays_more(waits: int) -> None:
            if waits == 1:
                dear = {"maxFeePerGas": hex(90 * 10**9), "maxPriorityFeePerGas": hex(80 * 10**9), "gas": hex(900_000)}
                sender = {"from": local_chain.poster.address, "to": w.challenge.address, "data": data}
                await w.rpc("eth_sendTransaction", sender | dear)
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = poster_pays_more
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.ALREADY_DONE, PostedBy.POSTER)
        assert await w.posts() == 1


async def test_ours_lands_between_the_look_and_the_rehearsal(local_chain: LocalChain, tmp_path: Path) -> None:
    """A refusal that only says that our own post has just landed is not an error."""
    async with world(local_chain, tmp_path) as w:
        await w.rpc("evm_setAutomine", False)
        assert (await w.post()).outcome is SendOutcome.UNKNOWN

        class LandsMeanwhile:
            def __getattr__(self, name: str) -> Any:
                return getattr(w.account, name)

            async def rehearse(self, call: Any) -> None:
                await w.rpc("anvil_mine", 1)
                await w.account.rehearse(call)

        meanwhile: Any = LandsMeanwhile()
        assert (await w.post(TransactionSender(meanwhile, w.store, w.clock.pace()))).outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1


async def test_a_new_key_does_not_touch_the_old_keys_attempts(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a change of key the new one signs its own transaction; the old bytes are only watched."""
    async with world(local_chain, tmp_path) as w:
        address = await closed(local_chain)
        challenge = await look_at_challenge(w.chain, address)
        with pytest.raises(Killed):
            await advance(
                challenge,
                sender=TransactionSender(dies_before_sending(w), w.store, w.clock.pace()),
            )
        key = local_chain.agents[20].key
        other = EthereumAccount(w.chain, wallet_of(key), factory=local_chain.deployment.factory)
        receipt = await advance(challenge, sender=TransactionSender(other, w.store, w.clock.pace()))
        assert receipt.outcome is SendOutcome.CONFIRMED
        old, new = await w.store.transactions(challenge.run, "advance_to_scoring")
        assert (old.sender, new.sender) == (w.account.address, other.address)
        assert receipt.tx_hash == new.tx_hash


async def test_a_key_that_moves_to_a_signer_goes_on_with_its_intention(local_chain: LocalChain, tmp_path: Path) -> None:
    """Signed here and never sent, then the key is with a remote signer: the same bytes go out, one post, one nonce."""
    async with world(local_chain, tmp_path) as w, LocalWeb3Signer(local_chain.evaluator.key) as elsewhere:
        with pytest.raises(Killed):
            await w.post(TransactionSender(dies_before_sending(w), w.store, w.clock.pace()))
        signer = RemoteSigner(elsewhere.url, local_chain.evaluator.address)
        factory = local_chain.deployment.factory
        moved = EthereumAccount(w.chain, Wallet(signer, evaluator_policy(31337)), factory=factory)
        receipt = await w.post(TransactionSender(moved, w.store, w.clock.pace()))
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert [attempt.tx_hash for attempt in await w.attempts()] == [receipt.tx_hash]
        assert await w.posts() == 1


async def test_a_remote_signer_posts_and_raises_what_is_stuck(local_chain: LocalChain, tmp_path: Path) -> None:
    """Through a signer alone, down at first: nothing is recorded while it is, then one post, raised on its nonce."""
    async with world(local_chain, tmp_path) as w, LocalWeb3Signer(local_chain.evaluator.key) as elsewhere:
        signer = RemoteSigner(elsewhere.url, local_chain.evaluator.address)
        factory = local_chain.deployment.factory
        account = EthereumAccount(w.chain, Wallet(signer, evaluator_policy(31337)), factory=factory)
        sender = TransactionSender(account, w.store, w.clock.pace())
        elsewhere.lie = "broken"
        with pytest.raises(Temporary, match="remote signer"):
            await w.post(sender)
        assert await w.attempts() == []
        elsewhere.lie = ""
        await w.rpc("evm_setAutomine", False)

        async def mine_late(waits: int) -> None:
            if waits == 6:
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine_late
        assert (await w.post(sender)).outcome is SendOutcome.CONFIRMED
        attempts = await w.attempts()
        assert len(attempts) == 2
        assert len({attempt.nonce for attempt in attempts}) == 1
        assert await w.posts() == 1


async def test_a_rivals_post_counts_only_when_it_is_deep(local_chain: LocalChain, tmp_path: Path) -> None:
    """A poster's post that a reorg could still take back is waited for, and nothing of ours is sent meanwhile."""
    async with world(local_chain, tmp_path, confirmations=4) as w:
        rows = [
            (web3_of(w.local).to_checksum_address(e.account), e.agent_id, 5, e.prize_amount) for e in w.winners.entries
        ]
        await local_chain.send(local_chain.poster, local_chain.challenge(w.challenge.address), "postScores", rows)

        async def mine(_waits: int) -> None:
            await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.ALREADY_DONE, PostedBy.POSTER)
        assert (w.clock.waits, await w.attempts()) == (3, [])


async def test_a_rivals_post_that_vanishes_is_ours_to_make(local_chain: LocalChain, tmp_path: Path) -> None:
    """When a reorg takes the poster's post back while we wait, we post."""
    async with world(local_chain, tmp_path, confirmations=4) as w:
        rows = [
            (web3_of(w.local).to_checksum_address(e.account), e.agent_id, 5, e.prize_amount) for e in w.winners.entries
        ]
        await local_chain.send(local_chain.poster, local_chain.challenge(w.challenge.address), "postScores", rows)

        async def take_back_then_mine(waits: int) -> None:
            await (local_chain.reorg(1) if waits == 1 else w.rpc("anvil_mine", 1))

        w.clock.on_wait = take_back_then_mine
        receipt = await w.post()
        assert (receipt.outcome, receipt.posted_by) == (SendOutcome.CONFIRMED, PostedBy.EVALUATOR)
        assert await w.posts() == 1


async def test_a_wallet_that_stays_busy_is_temporary(local_chain: LocalChain, tmp_path: Path) -> None:
    """While another process holds the wallet nothing is sent."""
    async with world(local_chain, tmp_path) as w:
        assert await w.store.take_lease(f"wallet:31337:{w.account.address}", "another process", 600)
        with pytest.raises(Temporary, match="busy with another transaction"):
            await w.post()
        assert await w.attempts() == []


async def test_a_wallet_taken_over_stops_the_slower_one(local_chain: LocalChain, tmp_path: Path) -> None:
    """A process that slept through its lease records and sends nothing beside the one that took over."""
    async with world(local_chain, tmp_path) as w:
        name = f"wallet:31337:{w.account.address}"

        class Oversleeps:
            """Signs, and is away until its lease has run out and another process holds the wallet."""

            def __getattr__(self, name: str) -> Any:
                return getattr(w.account, name)

            async def prepare(self, *args: Any, **named: Any) -> StoredTransaction:
                signed = await w.account.prepare(*args, **named)
                await asyncio.sleep(0.06)
                assert await w.store.take_lease(name, "another process", 600)
                return signed

        slow: Any = Oversleeps()
        with pytest.raises(Temporary, match="took over the wallet"):
            await w.post(TransactionSender(slow, w.store, w.clock.pace(lease_seconds=0.05)))
        assert await w.attempts() == []
        assert await w.posts() == 0


async def test_after_three_lost_nonces_a_person_looks(local_chain: LocalChain, tmp_path: Path) -> None:
    """An intention does not try for ever."""
    async with world(local_chain, tmp_path) as w:

        class Unlucky:
            """Somebody else uses the key just before each broadcast."""

            def __getattr__(self, name: str) -> Any:
                return getattr(w.account, name)

            async def broadcast(self, tx: StoredTransaction) -> Any:
                await foreign_transaction(w)
                return await w.account.broadcast(tx)

        unlucky: Any = Unlucky()
        with pytest.raises(CannotPublish, match="failed with 3 nonces"):
            await w.post(TransactionSender(unlucky, w.store, w.clock.pace()))
        assert await w.posts() == 0


async def test_finalize_knows_what_cannot_be_finalized(local_chain: LocalChain, tmp_path: Path) -> None:
    """An expired challenge is refused by name; one that others finalized is done."""
    async with world(local_chain, tmp_path) as w:
        contract = local_chain.challenge(w.challenge.address)
        snapshot = await local_chain.snapshot()
        await local_chain.move_time(8 * DAY)
        await local_chain.send(local_chain.owner, contract, "expire")
        with pytest.raises(CannotPublish, match="Expired: nothing to finalize"):
            await finalize(w.challenge, sender=w.sender)
        await local_chain.revert(snapshot)
        await w.post()
        await local_chain.move_time(DAY)
        await local_chain.send(local_chain.owner, contract, "finalize")
        assert (await finalize(w.challenge, sender=w.sender)).outcome is SendOutcome.ALREADY_DONE


# -- nodes that misbehave while we send


async def test_a_second_node_takes_over_while_sending(local_chain: LocalChain, tmp_path: Path) -> None:
    """The first node takes the transaction and then dies: the second one confirms it."""
    async with (
        FaultyNode(local_chain.rpc_url) as node,
        world(local_chain, tmp_path, urls=[node.url, local_chain.rpc_url]) as w,
    ):
        await w.rpc("evm_setAutomine", False)

        async def die_then_mine(waits: int) -> None:
            node.fault = status(500)
            await w.rpc("anvil_mine", 1)

        w.clock.on_wait = die_then_mine
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert await w.posts() == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32000, "already known"),
        (-32000, "nonce too low: next nonce 9, tx nonce 8"),
        (-32000, "replacement transaction underpriced"),
    ],
)
async def test_what_nodes_say_to_a_repeated_broadcast_is_no_failure(
    local_chain: LocalChain, tmp_path: Path, code: int, message: str
) -> None:
    """Each of these answers leaves our transaction on its way, and it is found mined."""
    async with FaultyNode(local_chain.rpc_url) as node, world(local_chain, tmp_path, urls=[node.url]) as w:
        await w.rpc("evm_setAutomine", False)

        async def answer_so(waits: int) -> None:
            node.instead = refuses("eth_sendRawTransaction", code, message)
            if waits == 3:
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = answer_so
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert len({row.nonce for row in await w.attempts()}) == 1
        assert await w.posts() == 1


async def test_no_node_while_sending_is_temporary(local_chain: LocalChain, tmp_path: Path) -> None:
    """When every node is gone the caller hears so, and the next call goes on."""
    async with FaultyNode(local_chain.rpc_url) as node, world(local_chain, tmp_path, urls=[node.url]) as w:
        node.fault = status(503)
        with pytest.raises(Temporary, match="No node answers"):
            await w.post()
        node.fault = None
        assert (await w.post()).outcome is SendOutcome.CONFIRMED


async def test_the_days_cap_survives_a_restart(local_chain: LocalChain, tmp_path: Path) -> None:
    """A new process with the same key counts what the old one signed, from the store."""
    async with world(local_chain, tmp_path) as w:
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        (row,) = await w.attempts()
        spent = read_signed(row.raw).gas * row.max_fee_per_gas
        wallet = wallet_of(local_chain.evaluator.key, max_wei_per_day=spent + 1)
        restarted = EthereumAccount(w.chain, wallet, factory=local_chain.deployment.factory)
        challenge = await look_at_challenge(w.chain, await closed(local_chain))
        with pytest.raises(CannotPublish, match="in a day is above the cap"):
            await advance(challenge, sender=TransactionSender(restarted, w.store, w.clock.pace()))
        empty = await SqliteStore.open(tmp_path / "empty.db")
        receipt = await advance(challenge, sender=TransactionSender(restarted, empty, w.clock.pace()))
        await empty.close()
        assert receipt.outcome is SendOutcome.CONFIRMED


async def test_a_node_that_lacks_a_block_for_a_moment_delays_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whatever is asked about a named block and met by a late node is asked again within the same post."""
    async with FaultyNode(local_chain.rpc_url) as node, world(local_chain, tmp_path, urls=[node.url]) as w:
        missed: set[str] = set()

        def late(call: dict[str, Any]) -> dict[str, Any] | None:
            method = call["method"]
            if method not in {"eth_call", "eth_estimateGas", "eth_getTransactionCount"} or method in missed:
                return None
            missed.add(method)
            return {"error": {"code": -32000, "message": "header not found"}}

        node.instead = late
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert missed == {"eth_call", "eth_estimateGas", "eth_getTransactionCount"}
        assert await w.posts() == 1
