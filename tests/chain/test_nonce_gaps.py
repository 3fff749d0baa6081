"""A nonce that is missing before ours is found and filled, however it went missing: every round is posted once."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.support.faulty_node import MiscountingNode, refuses
from tests.support.posting import (
    DIGEST,
    SCORES_POSTED,
    Killed,
    Mortal,
    World,
    decide,
    dies_before_sending,
    foreign_transaction,
    instantly,
    more_rounds,
    post_and_die,
    post_together,
    world,
)
from tests.support.signers import LocalWeb3Signer

from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.model import Challenge
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.chain.sender import FILLING, Receipt, SendOutcome, TransactionSender
from clara_eval.chain.transaction import ContractCall, StoredTransaction, evaluator_policy, read_signed
from clara_eval.chain.wallet import RemoteSigner, Wallet
from clara_eval.challenges.calls import publish
from clara_eval.core.errors import Stalled, Temporary
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore

Way = Literal["lie", "reorg"]


@asynccontextmanager
async def miscounted(chain: LocalChain, folder: Path, **more: Any) -> AsyncIterator[tuple[World, MiscountingNode]]:
    """A world whose only node counts as it is told."""
    async with (
        MiscountingNode(chain.rpc_url) as node,
        world(chain, folder, urls=[node.url], **more) as w,
    ):
        yield w, node


async def begin(w: World, node: MiscountingNode, way: Way, gap: int) -> None:
    """Let whoever signs from now on take a nonce that is `gap` too high."""
    if way == "lie":
        node.extra = gap
        return
    for _ in range(gap):
        await foreign_transaction(w)


async def end(w: World, node: MiscountingNode, way: Way, gap: int) -> None:
    """The truth comes out: the node counts rightly, or the foreign transactions are gone with their blocks."""
    if way == "lie":
        node.extra = 0
    else:
        await w.local.reorg(gap)


class Hooked:
    """The account of a process around which something happens after its rehearsal and before its first broadcast."""

    def __init__(
        self, account: EthereumAccount, rehearsed: Callable[[], Awaitable[None]], signed: Callable[[], Awaitable[None]]
    ) -> None:
        self._account, self._rehearsed, self._signed = account, rehearsed, signed
        self._is_done = {"rehearse": False, "broadcast": False}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)

    async def rehearse(self, call: Any) -> None:
        await self._account.rehearse(call)
        if not self._is_done["rehearse"]:
            self._is_done["rehearse"] = True
            await self._rehearsed()

    async def broadcast(self, tx: StoredTransaction) -> Any:
        if not self._is_done["broadcast"]:
            self._is_done["broadcast"] = True
            await self._signed()
        return await self._account.broadcast(tx)


async def count_posts(w: World, challenges: Sequence[Challenge]) -> list[int]:
    """How many ScoresPosted events each challenge has."""
    wanted = {"topics": [SCORES_POSTED], "fromBlock": "0x0", "toBlock": "latest"}
    asked = [wanted | {"address": challenge.address} for challenge in challenges]
    return [len(await w.rpc("eth_getLogs", one)) for one in asked]


async def signed(w: World) -> dict[str, set[int]]:
    """By run and intention, the nonces that were signed."""
    found: dict[str, set[int]] = {}
    for tx in await w.store.pending_nonces(w.account.address):
        found.setdefault(f"{tx.run} {tx.intention}", set()).add(tx.nonce)
    return found


async def no_news(_seconds: int) -> None:
    """Nothing happens meanwhile."""


async def sign_and_die(w: World) -> StoredTransaction:
    """A process signs the world's post and ends before it sends it."""
    with pytest.raises(Killed):
        await w.post(TransactionSender(dies_before_sending(w), w.store, w.clock.pace()))
    return (await w.attempts())[-1]


async def all_posted(w: World, challenges: Sequence[Challenge], receipts: Sequence[Receipt], gap: int) -> None:
    """Each once, each with one nonce, and the gap filled with as many transactions of zero to ourselves."""
    assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * len(challenges)
    assert await count_posts(w, challenges) == [1] * len(challenges)
    nonces = await signed(w)
    assert {len(taken) for taken in nonces.values()} == {1}
    rows = [tx for tx in await w.store.pending_nonces(w.account.address) if tx.intention.startswith(FILLING)]
    assert len({tx.nonce for tx in rows}) == gap
    for said in (read_signed(tx.raw) for tx in rows):
        assert (said.to, said.value, said.data) == (w.account.address, 0, b"")
    assert await w.sender.find_gap() is None


@pytest.mark.parametrize("gap", [1, 5])
@pytest.mark.parametrize("way", ["lie", "reorg"])
async def test_a_gap_at_rest_is_filled(local_chain: LocalChain, tmp_path: Path, way: Way, gap: int) -> None:
    """Signed with a nonce too high and not sent: after a restart this round and two others are each posted once."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        challenges = await more_rounds(w, 2)
        true = await w.account.next_nonce()
        await begin(w, node, way, gap)
        assert (await sign_and_die(w)).nonce == true + gap
        await end(w, node, way, gap)
        receipts = await post_together(w, challenges, no_news)
        await all_posted(w, challenges, receipts, gap)


@pytest.mark.parametrize("gap", [1, 5])
@pytest.mark.parametrize("way", ["lie", "reorg"])
async def test_a_gap_between_rehearsal_and_broadcast_is_filled(
    local_chain: LocalChain, tmp_path: Path, way: Way, gap: int
) -> None:
    """The nonce goes wrong after the rehearsal and is right again at the broadcast: all rounds are each posted once."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        challenges = await more_rounds(w, 2)
        words: list[str] = []
        first: Any = Hooked(w.account, lambda: begin(w, node, way, gap), lambda: end(w, node, way, gap))
        sender = TransactionSender(first, w.store, w.clock.pace())

        async def hear(told: str) -> None:
            words.append(told)

        sender.notices.append(hear)
        receipt = await w.post(sender)
        receipts = [receipt, *await post_together(w, challenges[1:], no_news)]
        await all_posted(w, challenges, receipts, gap)
        assert "filled with" in words[0]
        assert "of zero to ourselves" in words[0]


@pytest.mark.parametrize("gap", [1, 5])
async def test_a_reorg_that_takes_a_post_and_what_was_before_it(
    local_chain: LocalChain, tmp_path: Path, gap: int
) -> None:
    """A post that was mined after foreign transactions vanishes with them: the same bytes land once more."""
    async with miscounted(local_chain, tmp_path) as (w, _node):
        for _ in range(gap):
            await foreign_transaction(w)
        first = await w.post()
        await w.local.reorg(gap + 1)
        assert await w.posts() == 0
        again = await w.post()
        assert again.tx_hash == first.tx_hash
        await all_posted(w, [w.challenge], [again], gap)


@pytest.mark.parametrize("after", [False, True])
async def test_killed_at_every_step_of_filling_it_posts_once(
    local_chain: LocalChain, tmp_path: Path, after: bool
) -> None:
    """Before or after whichever step the process dies, the restart fills the same nonces and posts once."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        deaths = 0
        for step in range(1, 150, 2):
            snapshot = await w.local.snapshot()
            store = await SqliteStore.open(tmp_path / f"{step}.db")
            this = replace(w, store=store)
            node.extra = 2
            await sign_and_die(this)
            node.extra = 0
            mortal = Mortal(step, after=after)
            pace = w.clock.pace(lease_seconds=0.02)
            try:
                await w.post(TransactionSender(mortal.wrap(w.account), mortal.wrap(store), pace))
            except Killed:
                deaths += 1
            receipt = await w.post(TransactionSender(w.account, store, pace))
            await all_posted(this, [w.challenge], [receipt], 2)
            await store.close()
            await w.local.revert(snapshot)
            if not mortal.is_dead:
                break
        assert deaths >= 10


@pytest.mark.parametrize("last_step", ["prepare", "save_transaction", "broadcast"])
async def test_a_real_process_is_killed_while_it_fills(local_chain: LocalChain, tmp_path: Path, last_step: str) -> None:
    """SIGKILL right after a filling is signed, recorded or sent: the next process fills the same nonces and posts."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 3
        await sign_and_die(w)
        node.extra = 0
        assert await post_and_die(w, node.url, tmp_path / "store.db", last_step) == -signal.SIGKILL
        later = SqlStore(w.store.driver, now=lambda: time.time() + 1000)  # the dead process's lease has run out
        receipt = await w.post(TransactionSender(w.account, later, w.clock.pace()))
        await all_posted(w, [w.challenge], [receipt], 3)


async def test_two_machines_without_a_common_store_close_a_gap(local_chain: LocalChain, tmp_path: Path) -> None:
    """One has signed two nonces too high, the other knows nothing of it: both rounds are posted once."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        mine, theirs = await more_rounds(w, 1)
        node.extra = 2
        await sign_and_die(w)
        node.extra = 0
        other = await SqliteStore.open(tmp_path / "other.db")
        elsewhere = TransactionSender(w.account, other, w.clock.pace())
        receipts = await asyncio.gather(w.post(), publish(theirs, decide(theirs), DIGEST, sender=elsewhere))
        await other.close()
        assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * 2
        assert await count_posts(w, [mine, theirs]) == [1, 1]


async def test_one_wrong_answer_makes_no_gap(local_chain: LocalChain, tmp_path: Path) -> None:
    """A count that is wrong once, too high or too low, is asked again before a nonce is chosen."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        challenges = await more_rounds(w, 1)
        for _ in range(5):
            await foreign_transaction(w)
        true = await w.account.next_nonce()
        for extra, challenge in zip((3, -3), challenges, strict=True):
            node.extra, node.lies = extra, 1
            await publish(challenge, decide(challenge), DIGEST, sender=w.sender)
        assert node.lies == 0
        assert sorted(await signed(w), key=str) == sorted(f"{one.run} post_scores" for one in challenges)
        assert await w.account.next_nonce() == true + 2


@pytest.mark.parametrize("extra", [4, -4])
@pytest.mark.parametrize("honest", [1, 2])
async def test_one_node_of_several_that_miscounts_is_outvoted(
    local_chain: LocalChain, tmp_path: Path, extra: int, honest: int
) -> None:
    """Beside honest nodes a wrong count chooses no nonce; of two that differ the lower is taken, which harms nothing."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        for _ in range(5):
            await foreign_transaction(w)
        true, node.extra = await w.account.next_nonce(), extra
        rpc = Rpc([node.url, *[w.local.rpc_url] * honest], chain_id=31337, retries=NodeRetries(sleep=instantly))
        w.chain.blocks.rpc, before = rpc, w.chain.blocks.rpc
        await before.close()
        assert await w.account.next_nonce() == (true if extra > 0 or honest == 2 else true + extra)
        if extra > 0 or honest == 2:
            assert (await w.post()).outcome is SendOutcome.CONFIRMED
            assert await w.account.next_nonce() == true + 1


async def test_a_count_that_is_too_low_is_no_gap(local_chain: LocalChain, tmp_path: Path) -> None:
    """If a transaction of ours is mined behind what seems to be missing, the count is wrong and nothing is filled."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        challenges = await more_rounds(w, 1)
        await foreign_transaction(w)
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        node.extra = -2
        assert await w.sender.find_gap() is None
        receipt = await publish(challenges[1], decide(challenges[1]), DIGEST, sender=w.sender)
        assert receipt.outcome is SendOutcome.CONFIRMED
        assert {len(taken) for taken in (await signed(w)).values()} == {1}
        assert len(await signed(w)) == 2


async def test_what_is_still_pending_has_not_lost_its_nonce(local_chain: LocalChain, tmp_path: Path) -> None:
    """A count so high that our nonce seems used does not make a second signature while ours waits in the pool."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        await w.rpc("evm_setAutomine", False)
        assert (await w.post()).outcome is SendOutcome.UNKNOWN
        node.extra = 5

        async def tell_the_truth(waits: int) -> None:
            if waits % 5 == 0:
                node.extra = 0
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = tell_the_truth
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert len({row.nonce for row in await w.attempts()}) == 1
        assert await w.posts() == 1


async def test_a_foreign_pending_transaction_is_waited_for(local_chain: LocalChain, tmp_path: Path) -> None:
    """While somebody's transaction waits for the missing nonce, ours is not put in its place."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 1
        await sign_and_die(w)
        node.extra = 0
        await w.rpc("evm_setAutomine", False)
        sent = {"from": w.account.address, "to": w.local.owner.address, "value": "0x1"}
        foreign = await w.rpc("eth_sendTransaction", sent)

        async def mine_soon(waits: int) -> None:
            if waits == 3:
                await w.rpc("anvil_mine", 1)
                await w.rpc("evm_setAutomine", True)

        w.clock.on_wait = mine_soon
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert await w.rpc("eth_getTransactionReceipt", foreign) is not None
        assert not [name for name in await signed(w) if FILLING in name]


async def test_a_foreign_pending_transaction_that_is_stuck_is_outbid(local_chain: LocalChain, tmp_path: Path) -> None:
    """Somebody's transaction for the missing nonce that nobody mines is replaced after a while, and all goes on."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 1
        await sign_and_die(w)
        node.extra = 0
        await w.rpc("evm_setAutomine", False)
        fees = {"maxFeePerGas": hex(10**9 + 10**8), "maxPriorityFeePerGas": "0x1"}
        sent = {"from": w.account.address, "to": w.local.owner.address, "value": "0x1"}
        foreign = await w.rpc("eth_sendTransaction", sent | fees)

        async def mine_ours(_waits: int) -> None:
            filled = [tx for tx in await w.store.pending_nonces(w.account.address) if tx.intention.startswith(FILLING)]
            pool = [await w.rpc("eth_getTransactionByHash", tx.tx_hash) for tx in filled]
            if any(pool):
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine_ours
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert await w.rpc("eth_getTransactionReceipt", foreign) is None
        assert await w.posts() == 1


async def test_a_filling_that_is_stuck_is_raised(local_chain: LocalChain, tmp_path: Path) -> None:
    """What fills a nonce is sent again and paid for better like everything else, on its nonce."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 1
        await sign_and_die(w)
        node.extra = 0
        await w.rpc("evm_setAutomine", False)

        async def mine_late(waits: int) -> None:
            if waits >= 7:
                await w.rpc("anvil_mine", 1)

        w.clock.on_wait = mine_late
        receipt = await w.post()
        rows = [tx for tx in await w.store.pending_nonces(w.account.address) if tx.intention.startswith(FILLING)]
        assert len(rows) > 1
        await all_posted(w, [w.challenge], [receipt], 1)


@pytest.mark.parametrize("gap", [17, 40])
async def test_a_wide_gap_is_filled_in_pieces(local_chain: LocalChain, tmp_path: Path, gap: int) -> None:
    """More than a pool takes at once is filled in several looks."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = gap
        await sign_and_die(w)
        node.extra = 0
        await all_posted(w, [w.challenge], [await w.post()], gap)


async def test_a_gap_too_wide_to_fill_is_left_behind(local_chain: LocalChain, tmp_path: Path) -> None:
    """A post signed a million nonces too high is signed again with the next one; the contract takes only one."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        challenges = await more_rounds(w, 1)
        true, node.extra = await w.account.next_nonce(), 1_000_000
        far = await sign_and_die(w)
        node.extra = 0
        receipts = await post_together(w, challenges, no_news)
        assert [receipt.outcome for receipt in receipts] == [SendOutcome.CONFIRMED] * 2
        assert await count_posts(w, challenges) == [1, 1]
        assert {tx.nonce for tx in await w.store.pending_nonces(w.account.address)} == {far.nonce, true, true + 1}
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        await w.rpc("anvil_setNonce", w.account.address, hex(far.nonce - 9))
        assert await w.sender.find_gap() is None
        (last,) = (await more_rounds(w, 1))[1:]
        await publish(last, decide(last), DIGEST, sender=w.sender)
        assert (await w.store.transactions(last.run, "post_scores"))[0].nonce == far.nonce - 9


async def test_what_could_land_twice_is_not_signed_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """A call that the contract would take twice stays with its far nonce, and a person hears why."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        call = ContractCall(w.challenge.run, "feedback:1", w.account.address, b"")

        async def never(_attempts: Sequence[StoredTransaction]) -> Receipt | None:
            return None

        node.extra = 1_000_000
        with pytest.raises(Killed):
            await TransactionSender(dies_before_sending(w), w.store, w.clock.pace()).send(call, never)
        node.extra = 0
        with pytest.raises(Stalled, match="more than 256 are missing") as caught:
            await w.sender.send(call, never)
        assert caught.value.cause == "gap"
        assert len(await w.store.transactions(call.run, call.intention)) == 1


async def test_a_count_that_cannot_be_is_not_believed(local_chain: LocalChain, tmp_path: Path) -> None:
    """A number of transactions that no account has sent is an error of the node, and nothing is signed."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 2**62
        with pytest.raises(Temporary, match="Set another node"):
            await w.post()
        assert await w.attempts() == []


async def test_an_empty_wallet_says_so_while_it_fills(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without ETH nothing is filled; with some it goes on."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 1
        await sign_and_die(w)
        node.extra = 0
        balance = await w.rpc("eth_getBalance", w.account.address, "latest")
        await w.rpc("anvil_setBalance", w.account.address, "0x0")
        with pytest.raises(Stalled, match="cannot pay the gas"):
            await w.post()
        await w.rpc("anvil_setBalance", w.account.address, balance)
        await all_posted(w, [w.challenge], [await w.post()], 1)


async def test_a_remote_signer_fills_too(local_chain: LocalChain, tmp_path: Path) -> None:
    """A key that is with a signer fills the gap and posts."""
    async with miscounted(local_chain, tmp_path) as (w, node), LocalWeb3Signer(w.local.evaluator.key) as elsewhere:
        node.extra = 2
        await sign_and_die(w)
        node.extra = 0
        signer = RemoteSigner(elsewhere.url, w.account.address)
        wallet = Wallet(signer, evaluator_policy(31337))
        account = EthereumAccount(w.chain, wallet, factory=w.local.deployment.factory)
        receipt = await w.post(TransactionSender(account, w.store, w.clock.pace()))
        await all_posted(w, [w.challenge], [receipt], 2)


async def test_a_gap_is_filled_while_nothing_is_to_be_sent(local_chain: LocalChain, tmp_path: Path) -> None:
    """The service fills a gap by itself, twice is once, and what waits behind it is not sent by that."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 3
        await sign_and_die(w)
        node.extra = 0
        gap = await w.sender.find_gap()
        assert gap is not None
        assert (len(gap.missing), gap.waiting) == (3, 1)
        await asyncio.gather(w.sender.close_gap(), w.sender.close_gap())
        assert await w.sender.find_gap() is None
        assert await w.posts() == 0
        await all_posted(w, [w.challenge], [await w.post()], 3)


async def test_without_a_key_nothing_is_filled(local_chain: LocalChain, tmp_path: Path) -> None:
    """A dry run sees no gap and signs nothing."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.extra = 1
        await sign_and_die(w)
        node.extra = 0
        dry = replace(w.sender, is_dry=True)
        assert await dry.find_gap() is None
        await dry.close_gap()
        assert (await w.post(dry)).outcome is SendOutcome.DRY_RUN
        assert not [name for name in await signed(w) if FILLING in name]


async def test_a_full_pool_is_waited_for(local_chain: LocalChain, tmp_path: Path) -> None:
    """A node that has no room for our transaction gets it again at the next look, within one attempt."""
    async with miscounted(local_chain, tmp_path) as (w, node):
        node.instead = refuses("eth_sendRawTransaction", -32000, "txpool is full")

        async def make_room(waits: int) -> None:
            if waits == 3:
                node.instead = None

        w.clock.on_wait = make_room
        assert (await w.post()).outcome is SendOutcome.CONFIRMED
        assert len(await w.attempts()) == 1
