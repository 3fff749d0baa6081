"""Nodes that fail in every known way: the next one takes over, errors are named, and no URL's secret is told."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulty_node import (
    Fault,
    FaultyNode,
    answers,
    no_batches,
    refuses,
    says,
    sleeps,
    status,
)
from tests.support.web3_chain import web3_of

from clara_eval.app import open_app
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.rpc import GROWS_AFTER_EXCHANGES, NodeRefusal, NodeRetries, Rpc, RpcCall
from clara_eval.config.settings import NETWORKS, Settings
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.devnet.local_chain import LocalChain

SECRET = "s3cr3t-api-key"


async def instantly(_seconds: float) -> None:
    return None


@asynccontextmanager
async def client(*urls: str, timeout_seconds: float = 5) -> AsyncIterator[Rpc]:
    rpc = Rpc(urls, chain_id=31337, retries=NodeRetries(timeout_seconds=timeout_seconds, sleep=instantly))
    try:
        yield rpc
    finally:
        await rpc.close()


FAULTS: dict[str, Fault] = {
    "403": status(403, "forbidden"),
    "429": status(429, "slow down"),
    "500": status(500),
    "empty": says(""),
    "garbage": says("<html>gateway</html>"),
    "null": says("null"),
    "nested without end": says("[" * 100_000),
    "no result": says('{"jsonrpc": "2.0", "id": 0}'),
    "null result": says('{"jsonrpc": "2.0", "id": 0, "result": null}'),
    "rate limit in JSON": says('{"jsonrpc": "2.0", "id": 0, "error": {"code": -32016, "message": "over rate limit"}}'),
    "error as text": says('{"error": "Too many requests"}'),
    "too late": sleeps(1.0),
    "redirect": status(302),
}


@pytest.mark.parametrize("name", list(FAULTS))
async def test_the_next_node_takes_over(local_chain: LocalChain, name: str) -> None:
    """Whatever the first node does wrong, the second one's answer is used."""
    async with (
        FaultyNode(local_chain.rpc_url) as bad,
        client(bad.url, local_chain.rpc_url, timeout_seconds=0.5) as rpc,
    ):
        bad.fault = FAULTS[name]
        assert await rpc.ask("eth_chainId") == "0x7a69"
        several = await rpc.ask_many([RpcCall("eth_chainId"), RpcCall("eth_gasPrice"), RpcCall("eth_chainId")])
        assert several[0] == several[2] == "0x7a69"


@pytest.mark.parametrize("name", list(FAULTS))
async def test_when_all_fail_it_is_temporary_and_the_secret_stays(
    local_chain: LocalChain, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names the host, never what else stands in the URL; neither does the log."""
    caplog.set_level(logging.DEBUG, logger="clara_eval")
    async with FaultyNode(local_chain.rpc_url) as bad:
        bad.fault = FAULTS[name]
        port = bad.url.rpartition(":")[2]
        url = f"http://user:{SECRET}@127.0.0.1:{port}/v2/{SECRET}?key={SECRET}"
        async with client(url, timeout_seconds=0.2) as rpc:
            with pytest.raises(Temporary, match=f"127.0.0.1:{port}") as caught:
                await rpc.ask("eth_chainId")
            shown = f"{caught.value!s} {caught.value!r} {caught.value.__cause__!r} {rpc.nodes!r} {caplog.text}"
    assert SECRET not in shown


async def test_a_node_that_echoes_the_key_does_not_leak_it(local_chain: LocalChain) -> None:
    """A provider's message that quotes the key is shortened before anybody sees it."""
    async with FaultyNode(local_chain.rpc_url) as bad:
        bad.instead = refuses("eth_gasPrice", -32000, f"project {SECRET} has no access")
        async with client(f"{bad.url}/v2/{SECRET}") as rpc:
            with pytest.raises(NodeRefusal, match="project … has no access"):
                await rpc.ask("eth_gasPrice")


@pytest.mark.parametrize("place", ["?apikey={}", "?net=base&key={}", "/v2/{}", "/v2/s3cr3t%2Dapi%2Dkey"])
async def test_a_key_is_not_told_wherever_it_stands(local_chain: LocalChain, place: str) -> None:
    """A key in the query, or escaped in the path, is cut out of what a node says as well."""
    async with FaultyNode(local_chain.rpc_url) as bad:
        bad.instead = refuses("eth_gasPrice", -32000, f"project {SECRET} has no access")
        async with client(bad.url + "/" * place.startswith("?") + place.format(SECRET)) as rpc:
            with pytest.raises(NodeRefusal, match="project … has no access"):
                await rpc.ask("eth_gasPrice")


async def test_a_garbled_head_makes_room_for_the_next_node(local_chain: LocalChain) -> None:
    """A node that tells no block when asked for the newest does not silence the others."""
    async with FaultyNode(local_chain.rpc_url) as bad, client(bad.url, local_chain.rpc_url) as rpc:
        bad.instead = answers("eth_getBlockByNumber", {"number": "soon"})
        head = await EthereumChain(rpc, NETWORKS["local"]).blocks.head()
    assert head.number == await web3_of(local_chain).eth.block_number


async def test_no_node_listening_is_temporary() -> None:
    """A port where nobody listens is a node that is down."""
    async with client("http://127.0.0.1:9/" + SECRET) as rpc:
        with pytest.raises(Temporary, match=r"127\.0\.0\.1:9") as caught:
            await rpc.ask("eth_chainId")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999", "", "ftp://node/" + SECRET, SECRET])
def test_what_is_no_url_is_a_config_error(url: str) -> None:
    """A wrong URL is refused by the setting's name, without quoting it."""
    with pytest.raises(ConfigError, match="CLARA_RPC_URL") as caught:
        Rpc([url], chain_id=31337)
    assert SECRET not in str(caught.value)


async def test_a_node_of_another_chain_is_left_out(local_chain: LocalChain) -> None:
    """Beside a good node, before it or behind it, a wrong one is never believed; alone it is a ConfigError."""
    async with FaultyNode(local_chain.rpc_url) as wrong:
        wrong.instead = answers("eth_chainId", "0x1")
        for urls in ((local_chain.rpc_url, wrong.url), (wrong.url, local_chain.rpc_url)):
            async with client(*urls) as rpc:
                await rpc.ask("eth_chainId")
                assert (await EthereumChain(rpc, NETWORKS["local"]).blocks.head()).number > 0
                assert set(wrong.calls) == {"eth_chainId"}
        async with client(wrong.url, wrong.url) as rpc:
            with pytest.raises(ConfigError, match=r"is on chain 1, but the network's chain id is 31337"):
                await rpc.ask("eth_chainId")
            with pytest.raises(ConfigError, match="is on chain 1"):
                await rpc.ask("eth_gasPrice")
        async with client(wrong.url, "http://127.0.0.1:9") as rpc:
            with pytest.raises(Temporary, match="it is on chain 1, not 31337"):
                await rpc.ask("eth_gasPrice")


async def test_a_node_that_comes_back_on_another_chain_is_not_believed(local_chain: LocalChain) -> None:
    """After a failure a node is asked for its chain id again before it is used."""
    async with FaultyNode(local_chain.rpc_url) as node, client(node.url) as rpc:
        assert await rpc.ask("eth_chainId") == "0x7a69"
        node.fault = status(500)
        with pytest.raises(Temporary):
            await rpc.ask("eth_gasPrice")
        node.fault, node.instead = None, answers("eth_chainId", "0x1")
        with pytest.raises(ConfigError, match="chain 1"):
            await rpc.ask("eth_gasPrice")


async def test_one_dead_node_does_not_stop_the_start(local_chain: LocalChain) -> None:
    """A start needs one node that answers; none is Temporary."""
    async with client("http://127.0.0.1:9", local_chain.rpc_url) as rpc:
        await rpc.ask("eth_chainId")
        assert (await EthereumChain(rpc, NETWORKS["local"]).blocks.head()).number > 0
    async with client("http://127.0.0.1:9") as rpc:
        with pytest.raises(Temporary, match="No node answers"):
            await rpc.ask("eth_chainId")


async def test_a_node_behind_the_others_is_not_asked(local_chain: LocalChain) -> None:
    """The newest block comes from the node that is ahead, and that node answers from then on."""
    await local_chain.mine(20)
    old = await local_chain.node.rpc("eth_getBlockByNumber", "0x1", False)
    async with FaultyNode(local_chain.rpc_url) as behind, FaultyNode(local_chain.rpc_url) as ahead:
        behind.instead = lambda call: (
            {"result": old} if call["method"] == "eth_getBlockByNumber" and call["params"][0] == "latest" else None
        )
        async with client(behind.url, ahead.url) as rpc:
            chain = EthereumChain(rpc, NETWORKS["local"])
            assert (await chain.blocks.head()).number > 20
            before = ahead.calls["eth_gasPrice"]
            await rpc.ask("eth_gasPrice")
            assert ahead.calls["eth_gasPrice"] == before + 1


async def test_a_block_one_node_lacks_is_asked_of_the_other(local_chain: LocalChain) -> None:
    """A node that does not have a block yet does not make it missing."""
    async with FaultyNode(local_chain.rpc_url) as behind, client(behind.url, local_chain.rpc_url) as rpc:
        behind.instead = answers("eth_getBlockByNumber", None)
        assert await rpc.ask_maybe("eth_getBlockByNumber", "0x1", False) is not None
        assert await rpc.ask_maybe("eth_getBlockByNumber", "0xfffffff", False) is None


async def test_busy_items_inside_a_batch_are_asked_again(local_chain: LocalChain) -> None:
    """When a node answers only part of a batch, the rest is asked of the next node."""
    async with FaultyNode(local_chain.rpc_url) as busy, client(busy.url, local_chain.rpc_url) as rpc:
        busy.instead = refuses("eth_gasPrice", -32005, "daily request count exceeded, request rate limited")
        results = await rpc.ask_many([RpcCall("eth_chainId"), RpcCall("eth_gasPrice")])
    assert results[0] == "0x7a69"
    assert results[1].startswith("0x")


async def test_a_busy_node_is_given_time(local_chain: LocalChain) -> None:
    """A single node that is busy for a moment is asked again after a pause."""
    pauses: list[float] = []
    async with FaultyNode(local_chain.rpc_url) as node:

        async def then_well(seconds: float) -> None:
            pauses.append(seconds)
            node.fault = None

        rpc = Rpc([node.url], chain_id=31337, retries=NodeRetries(sleep=then_well))
        node.fault = status(429)
        assert await rpc.ask("eth_chainId") == "0x7a69"
        await rpc.close()
    assert len(pauses) == 1


async def test_batches_shrink_to_what_the_node_takes(local_chain: LocalChain) -> None:
    """A node that refuses large batches gets small ones; one that refuses all gets single calls."""

    def at_most(size: int) -> Fault:
        refuse = no_batches()

        async def fault(body: Any) -> Any:
            return await refuse(body) if isinstance(body, list) and len(body) > size else None

        return fault

    async with FaultyNode(local_chain.rpc_url) as node:
        for size, expected in ((10, 10), (1, 1)):
            async with client(node.url) as rpc:
                node.fault = at_most(size)
                results = await rpc.ask_many([RpcCall("eth_chainId")] * 45)
                assert results == ["0x7a69"] * 45
                assert rpc.nodes[0].batch_size == expected


@pytest.mark.parametrize(
    "refusal",
    [
        says('[{"jsonrpc": "2.0", "id": null, "error": {"code": -32014, "message": "maximum 10 calls in 1 batch"}}]'),
        status(413, "payload too large"),
        status(400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "too many calls in batch"}}'),
        status(500),
        sleeps(1.0),
    ],
)
async def test_a_batch_too_large_in_other_words(local_chain: LocalChain, refusal: Fault) -> None:
    """A node that answers large batches with an odd refusal, an error page or silence gets smaller ones."""

    async def only_large(body: Any) -> Any:
        return await refusal(body) if isinstance(body, list) and len(body) > 10 else None

    async with FaultyNode(local_chain.rpc_url) as node, client(node.url, timeout_seconds=2) as rpc:
        node.fault = only_large
        assert await rpc.ask_many([RpcCall("eth_chainId")] * 45) == ["0x7a69"] * 45


async def test_batches_come_back_when_the_node_is_well(local_chain: LocalChain) -> None:
    """A node that failed at one batch gets small ones for a while, and then as large ones as before."""
    async with FaultyNode(local_chain.rpc_url) as node, client(node.url) as rpc:
        await rpc.ask("eth_chainId")
        node.fault = status(500)
        with pytest.raises(Temporary):
            await rpc.ask_many([RpcCall("eth_chainId")] * 45)
        node.fault = None
        assert rpc.nodes[0].batch_size == 10
        for _ in range(GROWS_AFTER_EXCHANGES + 1):
            await rpc.ask("eth_chainId")
        assert rpc.nodes[0].batch_size == 50
        assert await rpc.ask_many([RpcCall("eth_chainId")] * 45) == ["0x7a69"] * 45


async def test_an_incomplete_batch_is_not_used(local_chain: LocalChain) -> None:
    """A batch answer that lacks an item is thrown away as a whole."""
    async with FaultyNode(local_chain.rpc_url) as node, client(node.url, local_chain.rpc_url) as rpc:
        node.fault = None
        await rpc.ask("eth_chainId")
        node.fault = says('[{"jsonrpc": "2.0", "id": 0, "result": "0x1"}]')
        assert await rpc.ask_many([RpcCall("eth_chainId"), RpcCall("eth_chainId")]) == ["0x7a69", "0x7a69"]


async def test_settings_without_a_key_give_a_dry_sender(local_chain: LocalChain, tmp_path: Path) -> None:
    """No key is dry run; a key signs."""
    plain = {"CLARA_RPC_URL": local_chain.rpc_url, "CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/store.db"}
    async with open_app(Settings.model_validate(plain)) as app:
        assert not app.sender.can_sign
        assert await app.chain.blocks.balance(local_chain.evaluator.address) > 0
    async with open_app(Settings.model_validate({**plain, "CLARA_EVALUATOR_KEY": local_chain.evaluator.key})) as app:
        assert (app.sender.can_sign, app.sender.address) == (True, local_chain.evaluator.address)
