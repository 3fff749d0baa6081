"""One cheap challenge, of anybody and for anybody, must not stop the service: what it does is its own trouble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eth_utils.address import to_checksum_address
from tests.support.faulty_node import FaultyNode
from tests.support.rounds import closed_round
from tests.support.service import settings_of, turning

from clara_eval.app import open_app
from clara_eval.chain.contracts.abi import MOST_BYTES, abi
from clara_eval.chain.contracts.clients import ChallengeFactoryContract
from clara_eval.challenges.challenge_index import summaries
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.devnet.local_chain import LocalChain, PostedTerms, create
from clara_eval.documents.store_keys import index_key
from clara_eval.service.due import read_report

TOKENS = {
    "burns all gas": "0x5b600056",
    "stops on an invalid opcode": "0xfe",
    "answers a megabyte": "0x621000006000f3",
    "answers nothing": "0x00",
}
WORDINGS = {
    "geth": (-32000, "out of gas"),
    "nethermind": (-32015, "VM execution error."),
    "erigon": (-32000, "gas uint64 overflow"),
    "a provider": (-32603, "Internal error"),
    "nobody's": (-1, "la la la"),
}
URIS = {
    "deep JSON": "data:application/json," + "[" * 5000,
    "no JSON": "data:application/json;base64,@@@@",
    "half a surrogate": 'data:application/json,{"title":"\\ud800"}',
    "a NUL": 'data:application/json,{"title":"\\u0000"}\x00',
    "a huge number": 'data:application/json,{"title":' + "9" * 5000 + "}",
}


async def post_with_token(chain: LocalChain, code: str) -> Address:
    """A challenge whose token turns hostile once the prize is paid in."""
    token = await create(chain.node, "TestUSDC")
    contract = chain.contract("TestUSDC", token)
    await chain.send(chain.poster, contract, "mint", to_checksum_address(chain.poster.address), 10**12)
    await chain.send(chain.poster, contract, "approve", to_checksum_address(chain.deployment.factory), 10**12)
    address = await chain.post_challenge(PostedTerms(token=token, payout_bps=(7000, 3000)))
    await chain.node.rpc("anvil_setCode", token, code)
    return address


async def test_hostile_tokens_stop_no_tick(local_chain: LocalChain, tmp_path: Path) -> None:
    """The round beside them is posted, the tick is good, and the poisoned challenges are on the list as well."""
    poisons = [await post_with_token(local_chain, code) for code in TOKENS.values()]
    address = await closed_round(local_chain)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "complete")
        await world.engine.tick()
        assert world.engine.health.tick_problem is None
        assert {*poisons} <= set(await summaries(world.app.store, world.app.chain_id))


async def test_strange_metadata_stops_no_tick(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whatever stands in their URIs, all challenges are listed and the good one is posted."""
    poisons = [
        await local_chain.post_challenge(PostedTerms(challenge_uri=uri, payout_bps=(7000, 3000)))
        for uri in URIS.values()
    ]
    address = await closed_round(local_chain)
    async with turning(settings_of(local_chain, tmp_path)) as world:
        await world.until(address, "complete")
        assert {*poisons, address} <= set(await summaries(world.app.store, world.app.chain_id))


async def test_a_challenge_that_cannot_be_read_is_its_own_trouble(local_chain: LocalChain, tmp_path: Path) -> None:
    """In any node's words: the checkpoint moves on, the others are posted, and once it can be read it is listed."""
    poisons = {
        await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000))): {"code": code, "message": message}
        for code, message in WORDINGS.values()
    }
    address = await closed_round(local_chain)

    def refuse(call: dict[str, Any]) -> dict[str, Any] | None:
        error = poisons.get(call["params"][0]["to"]) if call["method"] == "eth_call" else None
        return {"error": error} if error else None

    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuse
        async with turning(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as world:
            await world.until(address, "complete")
            await world.engine.tick()
            report = await read_report(world.app)
            assert report is not None
            assert sorted(problem.partition(":")[0] for problem in report.problems) == sorted(poisons)
            place = await world.app.store.checkpoint(f"challenges:31337:{local_chain.deployment.factory}")
            assert place is not None
            assert place.number >= report.head_block - 1
            node.instead = None
            await world.engine.tick()
            for poison in poisons:
                assert await world.app.store.get(31337, index_key(poison)) is not None


async def test_discovery_that_fails_keeps_no_known_challenge_waiting(local_chain: LocalChain, tmp_path: Path) -> None:
    """Nodes without events: what is known already is looked at all the same, and an alert tells the rest."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await app.store.put(31337, f"engine:announced:{address}", "1")
    asked: list[str] = []

    def refuse(call: dict[str, Any]) -> dict[str, Any] | None:
        is_factory = call["method"] == "eth_getLogs" and call["params"][0]["address"] == [
            local_chain.deployment.factory
        ]
        if is_factory:
            asked.append(call["method"])
        return {"error": {"code": -32000, "message": "nonsense"}} if is_factory else None

    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuse
        async with turning(settings_of(local_chain, tmp_path, CLARA_RPC_URL=node.url)) as world:
            await world.until(address, "complete")
            assert asked
            assert b'clara_alerts_total{alert="DiscoveryFailing"} 1.0' in world.engine.metrics.render()


def test_an_announcement_whose_texts_cannot_be_read_still_names_its_challenge() -> None:
    """More text than anybody reads, or garbled: the address stands in a topic, and that is enough."""
    factory = ChallengeFactoryContract(None, ZERO_ADDRESS, abi("ChallengeFactory"))  # type: ignore[arg-type] # no chain is asked
    topic = factory.abi.event("ChallengeCreated").topic
    words = ["0x" + "00" * 12 + "aa" * 20, "0x" + "00" * 12 + "bb" * 20]
    for data in ("0x" + "ff" * 64, "0x" + "00" * (MOST_BYTES + 1), "nonsense"):
        entry = {"topics": [topic, *words], "data": data, "blockNumber": "0x7"}
        found = factory.challenge_created(entry)
        assert (found.address, found.block_number) == ("0x" + "aa" * 20, 7)
