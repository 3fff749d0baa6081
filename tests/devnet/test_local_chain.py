"""The local world: what it does is real, in order, and can be undone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from eth_account import Account
from eth_typing import HexStr
from eth_utils.address import to_checksum_address
from tests.support.together import post_many, submit_together
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.core.errors import BadInput, ConfigError, Temporary
from clara_eval.devnet.anvil import DevNode, NodeRefused
from clara_eval.devnet.local_chain import HOUR, Handed, LocalChain, PostedTerms


async def _count(chain: LocalChain, challenge: Any) -> int:
    return int(await as_web3(chain.challenge(challenge)).functions.submissionCount().call())


async def test_many_submissions_keep_their_order(local_chain: LocalChain) -> None:
    """Each of thirty submissions is later than the one before, so that ties in time never arise by accident."""
    chain = local_chain
    challenge = await chain.post_challenge()
    await chain.submit_all(challenge, [Handed(agent, f"data:,{n}") for n, agent in enumerate(chain.agents[:30])])
    read = as_web3(chain.challenge(challenge)).functions.getSubmission
    stored = [await read(to_checksum_address(agent.address)).call() for agent in chain.agents[:30]]
    assert [item[1] for item in stored] == [f"data:,{n}" for n in range(30)]
    times = [item[3] for item in stored]
    assert times == sorted(set(times))


async def test_submissions_of_one_block_are_all_there(local_chain: LocalChain) -> None:
    """Thirty submissions in few blocks are the same submissions, and blocks come by themselves again afterwards."""
    chain = local_chain
    challenge = await chain.post_challenge()
    handed = [Handed(agent, f"data:,{n}") for n, agent in enumerate(chain.agents[:30])]
    receipts = await submit_together(chain, challenge, handed)
    assert len({receipt["blockNumber"] for receipt in receipts}) < 4
    assert await _count(chain, challenge) == 30
    await chain.submit(chain.agents[30], challenge, "data:,30")
    assert await _count(chain, challenge) == 31


async def test_many_challenges_are_posted_in_few_blocks(local_chain: LocalChain) -> None:
    """More than wait together are all there, and blocks come by themselves again afterwards."""
    chain, before = local_chain, await web3_of(local_chain).eth.block_number
    await post_many(chain, PostedTerms(), 70)
    assert await as_web3(chain.factory).functions.getChallengeCount().call() == 70
    assert await web3_of(chain).eth.block_number - before < 20
    await chain.post_challenge()
    assert await as_web3(chain.factory).functions.getChallengeCount().call() == 71


async def test_keys_belong_to_their_accounts(local_chain: LocalChain) -> None:
    """The printed keys sign for the addresses they stand beside."""
    for account in (local_chain.poster, local_chain.evaluator, local_chain.agents[0]):
        assert Account.from_key(account.key).address.lower() == account.address


async def test_a_snapshot_brings_everything_back(local_chain: LocalChain) -> None:
    """Balances, registrations and time return; the same snapshot does not serve twice."""
    chain, agent = local_chain, local_chain.agents[0]
    before = (await chain.balance(chain.poster.address), await chain.now())
    snapshot = await chain.snapshot()
    challenge = await chain.post_challenge()
    await chain.submit(agent, challenge, "data:,x")
    await chain.move_time(5 * HOUR)
    await chain.revert(snapshot)
    assert (await chain.balance(chain.poster.address), await chain.now()) == before
    again = await chain.post_challenge()
    await chain.submit(agent, again, "data:,x")
    assert await _count(chain, again) == 1
    with pytest.raises(BadInput, match="does not exist"):
        await chain.revert(snapshot)


async def test_a_reorg_drops_the_newest_transactions(local_chain: LocalChain) -> None:
    """The submission is gone, the block has another hash, and it can be submitted again."""
    chain = local_chain
    challenge = await chain.post_challenge()
    await chain.submit(chain.agents[0], challenge, "data:,kept")
    receipt = await chain.submit(chain.agents[1], challenge, "data:,lost")
    await chain.reorg(1)
    block = await web3_of(chain).eth.get_block(HexStr(receipt["blockNumber"]))
    assert block["hash"].to_0x_hex() != receipt["blockHash"]
    assert await _count(chain, challenge) == 1
    await chain.submit(chain.agents[1], challenge, "data:,again")
    assert await _count(chain, challenge) == 2


async def test_a_deep_reorg_late_in_a_node_s_life_keeps_the_contracts(local_chain: LocalChain) -> None:
    """After more blocks than the node keeps in memory by default, a reorg of twenty leaves both clones their code."""
    chain = local_chain
    challenges = [await chain.post_challenge() for _ in range(2)]
    await chain.mine(1200)
    await chain.reorg(20)
    assert [await _count(chain, challenge) for challenge in challenges] == [0, 0]


async def test_time_moves_exactly_and_only_forward(local_chain: LocalChain) -> None:
    """A moved clock shows the asked time; the past is refused."""
    now = await local_chain.now()
    assert await local_chain.move_time(HOUR) == now + HOUR
    assert await local_chain.move_to(now + 2 * HOUR) == now + 2 * HOUR
    with pytest.raises(BadInput, match="forward"):
        await local_chain.move_to(now)


async def test_mining_adds_blocks(local_chain: LocalChain) -> None:
    """Confirmations can be made at will."""
    before = await web3_of(local_chain).eth.block_number
    await local_chain.mine(5)
    assert await web3_of(local_chain).eth.block_number == before + 5


async def test_an_unknown_method_is_told_in_words(local_chain: LocalChain) -> None:
    """What the node does not do is refused with the method's name."""
    with pytest.raises(NodeRefused, match="evm_nonsense"):
        await local_chain.node.rpc("evm_nonsense")


@pytest_asyncio.fixture(loop_scope="session")
async def other_node() -> AsyncIterator[str]:
    """A server that answers like a node of another kind."""

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": "Geth/v1.16.0"})

    application = web.Application()
    application.router.add_post("/{secret}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/secret-key"
    await runner.cleanup()


async def test_another_kind_of_node_is_refused(other_node: str) -> None:
    """Nothing here touches a chain that is not anvil, and the error does not show the address's secret part."""
    with pytest.raises(ConfigError, match="Geth") as caught:
        await DevNode.connect(other_node)
    assert "secret-key" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://", ""])
async def test_where_no_node_is_the_error_says_so(url: str) -> None:
    """A wrong address gives a sentence, not a traceback of the HTTP library."""
    with pytest.raises(Temporary, match="No node answers"):
        await DevNode.connect(url)
