"""Reading a challenge from a real node: everything that was posted, at one block, in few requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.faulty_node import (
    FaultyNode,
    Instead,
    answers,
    longest_range,
    no_batches,
    refuses,
    status,
)

from clara_eval.chain.blocks import Blocks
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, Checkpoint, NewChallenge, PostedBy
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.challenges.venue import look_at_challenge, read_challenge
from clara_eval.config.settings import NETWORKS
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound, NotYet, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import (
    DAY,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.service.survey import find_challenges
from clara_eval.store.sql_store import SignedTransactions
from clara_eval.store.sqlite import SqliteStore

LOCAL = NETWORKS["local"]


async def instantly(_seconds: float) -> None:
    return None


RETRIES = NodeRetries(timeout_seconds=5, sleep=instantly)


@asynccontextmanager
async def reader(urls: Sequence[str], **options: int) -> AsyncIterator[EthereumChain]:
    chain = EthereumChain(Rpc(urls, chain_id=31337, retries=RETRIES), LOCAL, first_block=0)
    if "span" in options:
        chain.events._logs.span = options["span"]
    try:
        yield chain
    finally:
        await chain.close()


async def posted_round(local_chain: LocalChain, submitters: int = 3, terms: PostedTerms | None = None) -> Address:
    address = await local_chain.post_challenge(terms)
    agents = local_chain.agents[:submitters]
    await local_chain.submit_all(address, [Handed(agent, f"data:,{agent.index}") for agent in agents])
    return address


async def closed_round(local_chain: LocalChain, submitters: int = 3, terms: PostedTerms | None = None) -> Address:
    address = await posted_round(local_chain, submitters, terms)
    await local_chain.move_time(DAY + 1)
    return address


class MemoryCheckpoints(SignedTransactions):
    """Keeps the place in memory."""

    def __init__(self) -> None:
        self.places: dict[str, Checkpoint] = {}

    async def checkpoint(self, name: str) -> Checkpoint | None:
        return self.places.get(name)

    async def save_checkpoint(self, name: str, checkpoint: Checkpoint) -> None:
        self.places[name] = checkpoint


async def test_reading_equals_what_was_posted(local_chain: LocalChain) -> None:
    """Every field of the challenge and of each submission is what the poster and the agents sent."""
    terms = PostedTerms(
        challenge_uri="data:,täsk", eval_config_hash="0x" + "ab" * 32, payout_bps=(7000, 3000), max_participants=9
    )
    address = await closed_round(local_chain, 3, terms)
    async with reader([local_chain.rpc_url]) as chain:
        read = await read_challenge(chain, address)
    assert read.challenge_uri == "data:,täsk"
    assert (read.eval_config_hash, read.private_set_hash) == ("0x" + "ab" * 32, "0x" + "00" * 32)
    assert (read.poster, read.evaluator) == (local_chain.poster.address, local_chain.evaluator.address)
    assert (read.prize_pool, read.poster_bond, read.payout_bps) == (1000 * USDC, 50 * USDC, (7000, 3000))
    assert (read.winner_count, read.max_participants, read.submission_count) == (2, 9, 3)
    assert (read.token.symbol, read.token.decimals) == ("USDC", 6) or read.token.decimals == 6
    assert read.status is ChallengeStatus.OPEN
    assert read.score_posted_at == 0
    assert read.run == f"31337:{address}"
    assert {s.submitter for s in read.submissions} == {a.address for a in local_chain.agents[:3]}
    for agent in local_chain.agents[:3]:
        submission = next(s for s in read.submissions if s.submitter == agent.address)
        assert submission.solution_uri == f"data:,{agent.index}"
        assert submission.solution_hash == keccak_hex(submission.solution_uri.encode())
        assert submission.agent_id == await local_chain.register(agent)
        assert submission.version == 1
        assert submission.submitted_at < read.deadline


async def test_a_resubmission_is_read_once_in_its_last_version(local_chain: LocalChain) -> None:
    """Two events of one submitter give one submission, the later one."""
    address = await posted_round(local_chain, 2)
    await local_chain.move_time(3700)
    await local_chain.submit(local_chain.agents[0], address, "data:,better")
    await local_chain.move_time(DAY)
    async with reader([local_chain.rpc_url]) as chain:
        read = await read_challenge(chain, address)
    mine = next(s for s in read.submissions if s.submitter == local_chain.agents[0].address)
    assert len(read.submissions) == 2
    assert (mine.solution_uri, mine.version) == ("data:,better", 2)


async def test_a_hundred_submissions_take_tens_of_requests(local_chain: LocalChain) -> None:
    """A round of 100 is read in at most twenty HTTP requests."""
    address = await closed_round(local_chain, 100)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        read = await read_challenge(chain, address)
        assert len(read.submissions) == 100
        assert node.requests <= 20, node.calls


async def test_before_the_deadline_it_is_not_yet(local_chain: LocalChain) -> None:
    """An open round is NotYet for judging, and can still be looked at."""
    address = await posted_round(local_chain)
    async with reader([local_chain.rpc_url]) as chain:
        with pytest.raises(NotYet, match="short of the first moment"):
            await read_challenge(chain, address)
        assert len((await look_at_challenge(chain, address)).submissions) == 3


async def test_no_contract_is_not_found(local_chain: LocalChain) -> None:
    """An address without code, and a contract that is no challenge, are NotFound with the address in the text."""
    nowhere = Address("0x" + "12" * 20)
    async with reader([local_chain.rpc_url]) as chain:
        with pytest.raises(NotFound, match=nowhere):
            await read_challenge(chain, nowhere)
        with pytest.raises(NotFound, match=local_chain.deployment.token):
            await read_challenge(chain, local_chain.deployment.token)


async def test_a_reading_stays_at_its_block(local_chain: LocalChain) -> None:
    """What happens after the pinned block does not change a reading at that block."""
    address = await posted_round(local_chain, 2)
    async with reader([local_chain.rpc_url]) as chain:
        block = await chain.blocks.head()
        await local_chain.submit(local_chain.agents[5], address, "data:,late")
        read = await chain.challenges.challenge_at(address, block)
    assert (read.submission_count, len(read.submissions)) == (2, 2)


async def test_a_reorg_at_the_pinned_block_is_noticed(local_chain: LocalChain) -> None:
    """After its block is replaced, a reading is refused and the block is not canonical."""
    address = await closed_round(local_chain)
    await local_chain.fund(local_chain.poster, 1)
    async with reader([local_chain.rpc_url]) as chain:
        block = await chain.blocks.safe_block()
        await local_chain.reorg(2)
        assert not await chain.blocks.is_canonical(block)

        class Stale(Blocks):
            async def safe_block(self, head: Block | None = None) -> Block:
                return block

        stale = EthereumChain(chain.blocks.rpc, LOCAL, first_block=0)
        stale.blocks = Stale(chain.blocks.rpc, LOCAL, first_block=0)
        with pytest.raises(Temporary, match="replaced"):
            await read_challenge(stale, address)
        assert len((await read_challenge(chain, address)).submissions) == 3


async def test_nodes_without_hash_pinning_and_batches_still_read(local_chain: LocalChain) -> None:
    """A node that knows only block numbers and takes no batches gives the same reading."""
    address = await closed_round(local_chain, 5)

    def old_node(call: dict[str, object]) -> dict[str, object] | None:
        params = call["params"]
        assert isinstance(params, list)
        if call["method"] == "eth_call" and isinstance(params[1], dict):
            return {"error": {"code": -32602, "message": "invalid argument 1: json: cannot unmarshal object"}}
        return None

    async with reader([local_chain.rpc_url]) as chain:
        expected = await read_challenge(chain, address)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        node.instead, node.fault = old_node, no_batches()
        assert await read_challenge(chain, address) == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-32005, "query returned more than 10000 results. Try with this block range [0x1, 0x2]."),
        (-32602, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range"),
        (-32600, "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range."),
        (-32614, "eth_getLogs is limited to a 10,000 range"),
        (-32000, "exceed maximum block range: 5000"),
        (-32047, "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800"),
        (35, "ranges over 10000 blocks are not supported on freetier"),
        (-32000, "query exceeds max results 20000"),
        (-32000, "limit exceeded"),
        (-32000, "please ask for less"),
        (-32602, "invalid params"),
    ],
)
async def test_a_refused_range_is_halved(local_chain: LocalChain, code: int, message: str) -> None:
    """Each provider's wording for a range too large leads to smaller ranges and the whole result."""
    address = await closed_round(local_chain, 4)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url], span=64) as chain:
        node.instead = longest_range(3, code, message)
        assert len((await read_challenge(chain, address)).submissions) == 4
        assert chain.events._logs.span <= 3


@pytest.mark.parametrize("code", [403, 413, 500, 503])
async def test_a_range_refused_by_an_http_status_is_made_smaller(local_chain: LocalChain, code: int) -> None:
    """A provider that answers long ranges with a bare HTTP status is asked for shorter ones; all events are read."""
    address = await closed_round(local_chain, 4)
    is_long = longest_range(3, -1, "")

    async def refuse(body: Any) -> web.Response | None:
        calls = body if isinstance(body, list) else [body]
        return web.Response(status=code) if any(is_long(call) for call in calls) else None

    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url], span=64) as chain:
        node.fault = refuse
        assert len((await read_challenge(chain, address)).submissions) == 4
        assert chain.events._logs.span <= 8
        node.fault = status(code)
        with pytest.raises(Temporary, match="No node answers"):
            await read_challenge(chain, address)


async def test_missing_events_are_not_a_smaller_round(local_chain: LocalChain) -> None:
    """When a node hides events, the reading is refused: the contract counts its submitters."""
    address = await closed_round(local_chain)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        node.instead = lambda call: {"result": []} if call["method"] == "eth_getLogs" else None
        with pytest.raises(Temporary, match="counts 3 submitters"):
            await read_challenge(chain, address)


def lacks(selector: str) -> Instead:
    """Every contract behaves as if it had no such function."""
    return refuses("eth_call", 3, "execution reverted", when=lambda c: c["params"][0]["data"].startswith(selector))


async def test_a_foreign_contract_with_only_the_plain_getter_is_read(local_chain: LocalChain) -> None:
    """A contract that does not answer getSubmission is read through submissions(address)."""
    address = await closed_round(local_chain)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        node.instead = lacks(keccak_hex(b"getSubmission(address)")[:10])
        assert len((await read_challenge(chain, address)).submissions) == 3


async def test_shares_are_read_with_either_getter(local_chain: LocalChain) -> None:
    """A contract that answers only payoutBps(uint256), or only getPayoutBps(), gives the same shares."""
    address = await closed_round(local_chain)
    for signature in (b"getPayoutBps()", b"payoutBps(uint256)"):
        node_without = lacks(keccak_hex(signature)[:10])
        async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
            node.instead = node_without
            assert (await read_challenge(chain, address)).payout_bps == (6000, 3000, 1000)


async def test_a_token_without_a_name_is_shown_in_base_units(local_chain: LocalChain) -> None:
    """Missing, garbled and bytes32 symbols, and a missing scale, never stop a reading."""
    address = await closed_round(local_chain)
    symbol, decimals = keccak_hex(b"symbol()")[:10], keccak_hex(b"decimals()")[:10]
    token = local_chain.deployment.token
    for answer, expected in (
        ("0x", f"{token[:6]}…{token[-4:]}"),
        ("0x" + b"MKR".ljust(32, b"\0").hex(), "MKR"),
        ("0x" + "ff" * 32, f"{token[:6]}…{token[-4:]}"),
    ):
        async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:

            def odd_token(call: dict[str, Any], answer: str = answer) -> dict[str, Any] | None:
                data = call["params"][0]["data"] if call["method"] == "eth_call" else ""
                return {"result": answer} if data == symbol else {"result": "0x"} if data == decimals else None

            node.instead = odd_token
            read = await read_challenge(chain, address)
            assert (read.token.symbol, read.token.decimals) == (expected, 0)


async def test_a_token_that_only_calls_itself_usdc_is_shown_by_its_address(local_chain: LocalChain) -> None:
    """On a network with a dollar of its own nobody else is shown as one; the dollar itself is."""
    address = await closed_round(local_chain)
    token = local_chain.deployment.token
    for dollar, shown in (("0x" + "9" * 40, f"{token[:6]}…{token[-4:]}"), (token, "USDC")):
        there = replace(LOCAL, usdc=dollar)
        chain = EthereumChain(Rpc([local_chain.rpc_url], chain_id=31337), there, first_block=0)
        assert (await read_challenge(chain, address)).token.symbol == shown
        await chain.close()


async def test_a_round_read_late_does_not_read_the_blocks_since(local_chain: LocalChain) -> None:
    """Long after the deadline the events are looked for before the deadline only."""
    address = await closed_round(local_chain)
    deadline_block = int(await local_chain.node.rpc("eth_blockNumber"), 16)
    await local_chain.move_time(30 * DAY)
    await local_chain.mine(200)
    asked: list[int] = []

    def note(call: dict[str, Any]) -> None:
        if call["method"] == "eth_getLogs":
            asked.append(int(call["params"][0]["toBlock"], 16))

    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url], span=4) as chain:
        node.instead = note
        assert len((await read_challenge(chain, address)).submissions) == 3
    assert max(asked) <= deadline_block


async def test_a_node_without_the_finality_tag_gives_an_older_block(local_chain: LocalChain) -> None:
    """Where `safe` is unknown, the block our confirmations deep is taken."""
    await local_chain.mine(20)
    base = replace(NETWORKS["base"], chain_id=31337)
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuses(
            "eth_getBlockByNumber", -32602, "invalid argument 0: hex string without 0x prefix",
            when=lambda call: call["params"][0] == "safe",
        )  # fmt: skip
        chain = EthereumChain(Rpc([node.url], chain_id=31337), base)
        head, safe = await chain.blocks.head(), await chain.blocks.safe_block()
        await chain.close()
    assert safe.number == head.number - base.confirmations


async def test_the_finality_tag_is_used_where_there_is_one(local_chain: LocalChain) -> None:
    """The pinned block is the node's own safe block."""
    await local_chain.mine(3)
    safe = await local_chain.node.rpc("eth_getBlockByNumber", "safe", False)
    base = replace(NETWORKS["base"], chain_id=31337)
    chain = EthereumChain(Rpc([local_chain.rpc_url], chain_id=31337), base)
    assert (await chain.blocks.safe_block()).hash == safe["hash"]
    await chain.close()


async def test_events_of_somebody_else_are_not_used(local_chain: LocalChain) -> None:
    """A node that answers with entries of another contract, or with no list, is not believed."""
    address = await closed_round(local_chain)
    entry = {
        "address": local_chain.deployment.token,
        "topics": [],
        "data": "0x",
        "blockNumber": "0x1",
        "logIndex": "0x0",
    }
    odd: list[Any] = [[entry], ["x"], {}]
    for answer in odd:
        async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
            node.instead = answers("eth_getLogs", answer)
            with pytest.raises(Temporary, match="answered eth_getLogs with"):
                await read_challenge(chain, address)


async def test_a_node_that_lacks_the_last_block_cannot_vouch_for_a_range(local_chain: LocalChain) -> None:
    """Events are used only from a node that has the block up to which it was asked."""
    await local_chain.post_challenge()
    last = await local_chain.node.rpc("eth_blockNumber")

    async def keep(_new: NewChallenge) -> None:
        raise AssertionError("nothing may be handed over")

    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        node.instead = lambda call: (
            {"result": None} if call["method"] == "eth_getBlockByNumber" and call["params"][0] == last else None
        )
        with pytest.raises(Temporary, match="No node has block"):
            await find_challenges(chain.events, MemoryCheckpoints(), local_chain.deployment.factory, 0, keep)


async def test_the_range_grows_again(local_chain: LocalChain) -> None:
    """After a refusal the range grows back step by step while the node is content."""
    await local_chain.mine(400)

    async def keep(_new: NewChallenge) -> None:
        return None

    async with reader([local_chain.rpc_url], span=4) as chain:
        await find_challenges(chain.events, MemoryCheckpoints(), local_chain.deployment.factory, 0, keep)
        assert chain.events._logs.span > 4


async def test_text_that_is_not_utf8_does_not_stop_a_reading(local_chain: LocalChain) -> None:
    """A submitter who stores bytes that are no text is read like anybody else."""
    address = await posted_round(local_chain, 2)
    agent = local_chain.agents[7]
    number = await local_chain.register(agent)
    call = local_chain.challenge(address).encode_abi("submit", args=[number, "data:,xy", bytes(32)])
    await local_chain.send_data(agent, address, call.replace(b"data:,xy".hex(), b"data:,\xff\xfe".hex()))
    await local_chain.move_time(DAY + 1)
    async with reader([local_chain.rpc_url]) as chain:
        read = await read_challenge(chain, address)
    assert next(s for s in read.submissions if s.submitter == agent.address).solution_uri == "data:,\ufffd\ufffd"


async def test_challenges_are_found_once_and_the_place_is_kept(local_chain: LocalChain) -> None:
    """A second look finds only what is new."""
    first = await local_chain.post_challenge()
    found: list[NewChallenge] = []
    places = MemoryCheckpoints()

    async def keep(new: NewChallenge) -> None:
        found.append(new)

    async with reader([local_chain.rpc_url]) as chain:
        factory = local_chain.deployment.factory
        assert await find_challenges(chain.events, places, factory, 0, keep) == 1
        assert await find_challenges(chain.events, places, factory, 0, keep) == 0
        second = await local_chain.post_challenge()
        assert await find_challenges(chain.events, places, factory, 0, keep) == 1
        assert await chain.challenges.is_challenge_of(factory, second)
        assert not await chain.challenges.is_challenge_of(factory, factory)
    assert [new.address for new in found] == [first, second]


async def test_a_restart_goes_on_where_the_store_says(local_chain: LocalChain, tmp_path: Path) -> None:
    """The place is kept in the real store: a new process reads only what is new."""
    await local_chain.post_challenge()
    found: list[Address] = []

    async def keep(new: NewChallenge) -> None:
        found.append(new.address)

    for _process in range(2):
        store = await SqliteStore.open(tmp_path / "store.db")
        async with reader([local_chain.rpc_url]) as chain:
            await find_challenges(chain.events, store, local_chain.deployment.factory, 0, keep)
        await store.close()
    assert len(found) == 1


async def test_a_crash_before_the_checkpoint_repeats_and_loses_nothing(local_chain: LocalChain) -> None:
    """When keeping fails, the same challenge is handed over again."""
    address = await local_chain.post_challenge()
    places, found = MemoryCheckpoints(), []

    async def fails(_new: NewChallenge) -> None:
        raise Temporary("disk full")

    async def keep(new: NewChallenge) -> None:
        found.append(new.address)

    async with reader([local_chain.rpc_url]) as chain:
        with pytest.raises(Temporary, match="disk full"):
            await find_challenges(chain.events, places, local_chain.deployment.factory, 0, fails)
        await find_challenges(chain.events, places, local_chain.deployment.factory, 0, keep)
    assert found == [address]


async def test_a_reorg_at_the_checkpoint_steps_back(local_chain: LocalChain) -> None:
    """A challenge that a reorg moved into an already read block number is found."""
    places, found = MemoryCheckpoints(), []

    async def keep(new: NewChallenge) -> None:
        found.append(new.address)

    await local_chain.mine(3)
    async with reader([local_chain.rpc_url]) as chain:
        factory = local_chain.deployment.factory
        await find_challenges(chain.events, places, factory, 0, keep)
        read_upto = (await chain.blocks.head()).number
        await local_chain.node.rpc("anvil_rollback", 2)
        address = await local_chain.post_challenge()
        await local_chain.mine(2)
        assert (await chain.blocks.head()).number > read_upto
        await find_challenges(chain.events, places, factory, 0, keep)
    assert found == [address]


async def read_now(chain: EthereumChain, address: Address) -> Challenge:
    return await look_at_challenge(chain, address)


@pytest.mark.parametrize("who", [PostedBy.EVALUATOR, PostedBy.POSTER])
async def test_who_posted_is_told(local_chain: LocalChain, who: PostedBy) -> None:
    """The sender of the scores, the calldata, the winners and their claims are read from the chain."""
    address = await closed_round(local_chain, 3, PostedTerms(payout_bps=(10000,)))
    contract = local_chain.challenge(address)
    await local_chain.send(local_chain.owner, contract, "advanceToScoring")
    sender = local_chain.evaluator if who is PostedBy.EVALUATOR else local_chain.poster
    best = local_chain.agents[0]
    async with reader([local_chain.rpc_url]) as chain:
        challenge = await read_now(chain, address)
        assert await chain.results.posted_by(challenge) is None
        assert await chain.results.winners_on_chain(address, 1) == ()
        winner = (best.address, await local_chain.register(best), 9000, 1000 * USDC)
        data = contract.encode_abi("postScores", args=[[winner]]) + "c0ffee"
        await local_chain.send_data(sender, address, data)
        await local_chain.mine(30)
        posted = await chain.results.posted_by(challenge)
        assert posted is not None
        assert (posted.by, posted.sender) == (who, sender.address)
        assert posted.calldata.hex() == data.removeprefix("0x")
        winners = await chain.results.winners_on_chain(address, 1)
        assert [(w.account, w.score, w.prize_amount) for w in winners] == [(best.address, 9000, 1000 * USDC)]
        await local_chain.move_time(DAY)
        await local_chain.send(local_chain.owner, contract, "finalize")
        assert await chain.results.has_claimed(address, [best.address]) == {best.address: False}
        await local_chain.send(best, contract, "claimPrize")
        assert await chain.results.has_claimed(address, [best.address]) == {best.address: True}


async def test_a_post_whose_block_is_just_made_is_looked_for_in_the_next(local_chain: LocalChain) -> None:
    """A node that tells a post before it shows the event is asked again once it has a newer block, and not before."""
    address = await closed_round(local_chain, 3, PostedTerms(payout_bps=(10000,)))
    contract, best = local_chain.challenge(address), local_chain.agents[0]
    await local_chain.send(local_chain.owner, contract, "advanceToScoring")
    winner = (best.address, await local_chain.register(best), 9000, 1000 * USDC)
    async with FaultyNode(local_chain.rpc_url) as node, reader([node.url]) as chain:
        challenge = await read_now(chain, address)
        await local_chain.send(local_chain.evaluator, contract, "postScores", [winner])
        node.instead = answers("eth_getLogs", [])
        with pytest.raises(Temporary, match="no node shows the event"):
            await chain.results.posted_by(challenge)

        async def makes_a_block(body: Any) -> None:
            if "eth_getLogs" in str(body):
                node.fault = None
                await local_chain.mine(1)

        def shows_it_then(call: dict[str, Any]) -> dict[str, Any] | None:
            is_late = call["method"] == "eth_getLogs" and int(call["params"][0]["toBlock"], 16) > challenge_block
            return {"result": []} if call["method"] == "eth_getLogs" and not is_late else None

        challenge_block = (await chain.blocks.head()).number
        node.fault, node.instead = makes_a_block, shows_it_then
        posted = await chain.results.posted_by(challenge)
        assert posted is not None
        assert posted.by is PostedBy.EVALUATOR


async def test_events_of_a_node_that_is_behind_are_not_used(local_chain: LocalChain, tmp_path: Path) -> None:
    """A node that lacks the last block of a range knows too few events: the next one answers for the whole range."""
    address = await local_chain.post_challenge()
    found: list[NewChallenge] = []

    async def keep(new: NewChallenge) -> None:
        found.append(new)

    def lags(call: dict[str, Any]) -> dict[str, Any] | None:
        if call["method"] == "eth_getLogs":
            return {"result": []}
        is_asked = call["method"] == "eth_getBlockByNumber" and call["params"][0] != "latest"
        return {"result": None} if is_asked else None

    async with FaultyNode(local_chain.rpc_url) as behind, reader([behind.url, local_chain.rpc_url]) as chain:
        behind.instead = lags
        await find_challenges(chain.events, MemoryCheckpoints(), local_chain.deployment.factory, 0, keep)
    assert address in [new.address for new in found]
