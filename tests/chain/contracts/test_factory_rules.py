"""The rules of the factory: what it accepts, what it escrows, and who may change the bond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.expect import refuses
from tests.support.web3_chain import as_web3, web3_of, web3_receipt

from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.devnet.local_chain import USDC, LocalChain, PostedTerms, create


async def test_the_factory_knows_its_parts(local_chain: LocalChain) -> None:
    """Implementation, registry, owner and rates are readable, and no challenge exists yet."""
    functions, deployment = as_web3(local_chain.factory).functions, local_chain.deployment
    expected = {
        "implementation": to_checksum_address(deployment.implementation),
        "identityRegistry": to_checksum_address(deployment.identity_registry),
        "owner": to_checksum_address(local_chain.owner.address),
        "posterBondRate": 500,
        "MAX_BOND_RATE": 2000,
        "getChallengeCount": 0,
    }
    assert {name: await functions[name]().call() for name in expected} == expected


async def test_a_challenge_is_created_listed_and_escrowed(local_chain: LocalChain) -> None:
    """The poster pays prize and 5 % bond into the new challenge, and the event tells the terms."""
    chain = local_chain
    before, now = await chain.balance(chain.poster.address), await chain.now()
    challenge = await chain.post_challenge(PostedTerms(challenge_uri="data:,x", skill_tags=("python", "elo")))
    assert await as_web3(chain.factory).functions.getChallengeCount().call() == 1
    assert await as_web3(chain.factory).functions.challenges(0).call() == to_checksum_address(challenge)
    assert await chain.balance(challenge) == 1050 * USDC
    assert await chain.balance(chain.poster.address) == before - 1050 * USDC
    event = (await as_web3(chain.factory).events.ChallengeCreated().get_logs(from_block=0))[0]["args"]
    deadline = now + PostedTerms().open_seconds
    assert dict(event) == {
        "challengeAddress": to_checksum_address(challenge),
        "poster": to_checksum_address(chain.poster.address),
        "token": to_checksum_address(chain.deployment.token),
        "prizePool": 1000 * USDC,
        "posterBond": 50 * USDC,
        "deadline": deadline,
        "scoringDeadline": deadline + PostedTerms().scoring_seconds,
        "challengeURI": "data:,x",
        "skillTags": ["python", "elo"],
    }


async def test_challenges_are_small_clones(local_chain: LocalChain) -> None:
    """A challenge is the 45 bytes of EIP-1167 that point at the implementation."""
    challenge = await local_chain.post_challenge()
    code = (await web3_of(local_chain).eth.get_code(to_checksum_address(challenge))).hex()
    target = local_chain.deployment.implementation[2:]
    assert code == f"363d3d373d3d3d363d73{target}5af43d82803e903d91602b57fd5bf3"


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        ("DeadlineTooSoon", {"open_seconds": 0}),
        ("DeadlineTooSoon", {"open_seconds": -3600}),
        ("ScoringDeadlineTooSoon", {"scoring_seconds": 0}),
        ("WinnerCountTooHigh", {"payout_bps": (400,) * 24 + (200, 200)}),
        ("InvalidPayoutBpsLength", {"winner_count": 2}),
        ("InvalidPayoutBpsLength", {"winner_count": 0}),
        ("InvalidPayoutBpsSum", {"payout_bps": (6000, 3999)}),
        ("InvalidPayoutBpsSum", {"payout_bps": (6000, 4001)}),
        ("InvalidPayoutBpsSum", {"payout_bps": ()}),
        ("ZeroAmount", {"prize_pool": 0}),
        ("ZeroAddress", {"token": ZERO_ADDRESS}),
    ],
)
async def test_bad_terms_are_refused(local_chain: LocalChain, error: str, changes: dict[str, Any]) -> None:
    """Each kind of unusable terms has its own error, and leaves no challenge behind."""
    terms = replace(PostedTerms(), **changes)
    with refuses(error):
        await local_chain.post_challenge(terms)
    assert await as_web3(local_chain.factory).functions.getChallengeCount().call() == 0


async def test_twenty_five_winners_are_accepted(local_chain: LocalChain) -> None:
    """25 places are allowed; 26 are not (above)."""
    challenge = await local_chain.post_challenge(PostedTerms(payout_bps=(400,) * 25))
    assert await as_web3(local_chain.challenge(challenge)).functions.winnerCount().call() == 25


async def test_a_poster_without_allowance_or_funds_is_refused(local_chain: LocalChain) -> None:
    """Without approval, and with one unit less than prize and bond, nothing is created."""
    chain, poster = local_chain, local_chain.agents[0]
    with refuses("ERC20InsufficientAllowance", chain.deployment.factory, 0, 1050 * USDC):
        await chain.post_challenge(poster=poster)
    await chain.fund(poster, 1050 * USDC - 1)
    with refuses("ERC20InsufficientBalance", poster.address, 1050 * USDC - 1, 1050 * USDC):
        await chain.post_challenge(poster=poster)
    await chain.fund(poster, 1)
    assert await chain.balance(await chain.post_challenge(poster=poster)) == 1050 * USDC


async def test_a_token_that_is_no_contract_is_refused(local_chain: LocalChain) -> None:
    """An address without code cannot pretend to have paid."""
    nobody = Address("0x" + "12" * 20)
    with refuses("SafeERC20FailedOperation", nobody):
        await local_chain.post_challenge(PostedTerms(token=nobody))


async def test_the_owner_changes_the_bond(local_chain: LocalChain) -> None:
    """The new rate holds for challenges posted later; 20 % is the most, and zero is allowed."""
    chain = local_chain
    old = await chain.post_challenge()
    receipt = await chain.send(chain.owner, chain.factory, "setPosterBondRate", 2000)
    event = (
        as_web3(chain.factory).events.BondRateUpdated().process_receipt(await web3_receipt(chain, receipt))[0]["args"]
    )
    assert dict(event) == {"oldRate": 500, "newRate": 2000}
    assert await chain.balance(await chain.post_challenge()) == 1200 * USDC
    await chain.send(chain.owner, chain.factory, "setPosterBondRate", 0)
    assert await chain.balance(await chain.post_challenge()) == 1000 * USDC
    assert await as_web3(chain.challenge(old)).functions.posterBond().call() == 50 * USDC
    with refuses("BondRateTooHigh"):
        await chain.send(chain.owner, chain.factory, "setPosterBondRate", 2001)


async def test_nobody_else_changes_the_bond(local_chain: LocalChain) -> None:
    """A poster cannot lower the price of posting."""
    with refuses("NotOwner"):
        await local_chain.send(local_chain.poster, local_chain.factory, "setPosterBondRate", 0)


@pytest.mark.parametrize("error", ["ZeroImplementation", "ZeroRegistry"])
async def test_a_factory_needs_its_parts(local_chain: LocalChain, error: str) -> None:
    """Deploying without implementation or registry is refused."""
    parts = [local_chain.deployment.implementation, local_chain.deployment.identity_registry]
    parts[error == "ZeroRegistry"] = ZERO_ADDRESS
    with refuses(error):
        await create(local_chain.node, "ChallengeFactory", *map(to_checksum_address, parts))
