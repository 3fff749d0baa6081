"""The development copies around a challenge: the registry of agents and the test dollar."""

from __future__ import annotations

from eth_utils.address import to_checksum_address
from web3.logs import DISCARD

from clara_eval.devnet.local_chain import LocalChain
from clara_eval.testing.expect import refuses


async def test_an_agent_is_a_token_with_its_uri(local_chain: LocalChain) -> None:
    """Registering mints the next id to the caller, keeps the URI and tells it in the event."""
    chain, agent = local_chain, local_chain.agents[0]
    owner = to_checksum_address(agent.address)
    receipt = await chain.send(agent, chain.registry, "register", "data:,me")
    event = chain.registry.events.Register().process_receipt(receipt, errors=DISCARD)[0]["args"]
    assert dict(event) == {"agentId": 1, "owner": owner, "agentURI": "data:,me"}
    functions = chain.registry.functions
    assert await functions.ownerOf(1).call() == owner
    assert await functions.tokenURI(1).call() == "data:,me"
    assert await functions.balanceOf(owner).call() == 1


async def test_one_owner_may_have_several_agents(local_chain: LocalChain) -> None:
    """Registering again gives another id."""
    chain, agent = local_chain, local_chain.agents[0]
    for _ in range(2):
        await chain.send(agent, chain.registry, "register", "")
    assert await chain.registry.functions.balanceOf(to_checksum_address(agent.address)).call() == 2


async def test_an_unknown_agent_has_no_uri(local_chain: LocalChain) -> None:
    """Asking for an id that nobody registered is refused."""
    data = local_chain.registry.encode_abi("tokenURI", args=[99])
    with refuses("ERC721NonexistentToken", 99):
        await local_chain.node.rpc("eth_call", {"to": local_chain.deployment.identity_registry, "data": data})


async def test_the_test_dollar_has_six_decimals_and_is_free(local_chain: LocalChain) -> None:
    """Anyone mints for anyone."""
    chain = local_chain
    assert await chain.token.functions.decimals().call() == 6
    assert await chain.token.functions.symbol().call() == "USDC"
    await chain.send(chain.agents[0], chain.token, "mint", to_checksum_address(chain.agents[1].address), 7)
    assert await chain.balance(chain.agents[1].address) == 7
