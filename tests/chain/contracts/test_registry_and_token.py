"""The development copies around a challenge: the registry of agents and the test dollar."""

from __future__ import annotations

from eth_utils.address import to_checksum_address
from tests.support.expect import refuses
from tests.support.web3_chain import as_web3, web3_receipt
from web3.logs import DISCARD

from clara_eval.devnet.local_chain import LocalChain


async def test_an_agent_is_a_token_with_its_uri(local_chain: LocalChain) -> None:
    """Registering mints the next id to the caller, keeps the URI and tells it in the event."""
    chain, agent = local_chain, local_chain.agents[0]
    owner = to_checksum_address(agent.address)
    receipt = await chain.send(agent, chain.registry, "register(string)", "data:,me")
    event = (
        as_web3(chain.registry)
        .events.Registered()
        .process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)[0]["args"]
    )
    assert dict(event) == {"agentId": 0, "owner": owner, "agentURI": "data:,me"}
    functions = as_web3(chain.registry).functions
    assert await functions.ownerOf(0).call() == owner
    assert await functions.tokenURI(0).call() == "data:,me"
    assert await functions.balanceOf(owner).call() == 1


async def test_one_owner_may_have_several_agents(local_chain: LocalChain) -> None:
    """Registering again gives another id."""
    chain, agent = local_chain, local_chain.agents[0]
    for _ in range(2):
        await chain.send(agent, chain.registry, "register(string)", "")
    assert await as_web3(chain.registry).functions.balanceOf(to_checksum_address(agent.address)).call() == 2


async def test_an_agent_registers_in_each_of_the_three_ways(local_chain: LocalChain) -> None:
    """Without a URI, with one, and with facts that contracts can read; ids count from 0."""
    chain, agent = local_chain, local_chain.agents[0]
    for name, args in (("register()", ()), ("register(string)", ("data:,a",))):
        data = chain.registry.encode_abi(name, args=list(args))
        await chain.send_data(agent, chain.deployment.identity_registry, data)
    entries = [("role", b"judge")]
    data = chain.registry.encode_abi("register(string,(string,bytes)[])", args=["data:,b", entries])
    receipt = await chain.send_data(agent, chain.deployment.identity_registry, data)
    events = as_web3(chain.registry).events
    assert (
        events.Registered().process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)[0]["args"]["agentId"]
        == 2
    )
    functions = as_web3(chain.registry).functions
    assert [await functions.tokenURI(number).call() for number in range(3)] == ["", "data:,a", "data:,b"]
    assert await functions.getMetadata(2, "role").call() == b"judge"


async def test_owners_and_their_operators_may_act_for_an_agent(local_chain: LocalChain) -> None:
    """The owner and whoever the owner approved are authorized, nobody else; an unknown agent is refused."""
    chain, (owner, helper, stranger) = local_chain, local_chain.agents[:3]
    agent_id = await chain.register(owner)
    await chain.send(owner, chain.registry, "approve", to_checksum_address(helper.address), agent_id)
    ask = as_web3(chain.registry).functions.isAuthorizedOrOwner
    told = [await ask(to_checksum_address(one.address), agent_id).call() for one in (owner, helper, stranger)]
    assert told == [True, True, False]
    data = chain.registry.encode_abi("isAuthorizedOrOwner", args=[to_checksum_address(owner.address), 99])
    with refuses("ERC721NonexistentToken", 99):
        await chain.node.rpc("eth_call", {"to": chain.deployment.identity_registry, "data": data})


async def test_a_contract_without_a_receiver_is_not_registered(local_chain: LocalChain) -> None:
    """Minting is safe: a contract wallet that does not take tokens stays without an agent."""
    chain = local_chain
    data = chain.registry.encode_abi("register()", args=[])
    call = {"from": chain.deployment.factory, "to": chain.deployment.identity_registry, "data": data}
    with refuses("ERC721InvalidReceiver", chain.deployment.factory):
        await chain.node.rpc("eth_call", call)


async def test_an_unknown_agent_has_no_uri(local_chain: LocalChain) -> None:
    """Asking for an id that nobody registered is refused."""
    data = local_chain.registry.encode_abi("tokenURI", args=[99])
    with refuses("ERC721NonexistentToken", 99):
        await local_chain.node.rpc("eth_call", {"to": local_chain.deployment.identity_registry, "data": data})


async def test_the_test_dollar_has_six_decimals_and_is_free(local_chain: LocalChain) -> None:
    """Anyone mints for anyone."""
    chain = local_chain
    assert await as_web3(chain.token).functions.decimals().call() == 6
    assert await as_web3(chain.token).functions.symbol().call() == "USDC"
    await chain.send(chain.agents[0], chain.token, "mint", to_checksum_address(chain.agents[1].address), 7)
    assert await chain.balance(chain.agents[1].address) == 7
