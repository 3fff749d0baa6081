"""A prize token that calls back while it moves gains nothing.

The hostile token is poster, submitter and winner itself, so that its calls come from the very account that is paid.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from hexbytes import HexBytes
from tests.support.web3_chain import as_web3

from clara_eval.core.address import Address, to_address
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    USDC,
    DevContract,
    Handed,
    LocalChain,
    PostedTerms,
)

POOL, BOND = 1000 * USDC, 50 * USDC
SPARE = 10_000 * USDC
"""What somebody else left in the escrow: a second payment would have something to take."""


async def _hostile_token(chain: LocalChain) -> DevContract:
    content = json.loads((resources.files("tests.support") / "ReentrantToken.json").read_text())
    receipt = (await chain.node.receipts([await chain.node.post(chain.owner, None, content["bytecode"])]))[0]
    token = DevContract(chain.node, to_address(str(receipt["contractAddress"])), content["abi"])
    await chain.send(chain.owner, token, "mint", to_checksum_address(chain.poster.address), POOL + BOND)
    return token


async def _act(chain: LocalChain, token: DevContract, target: DevContract, name: str, *args: Any) -> None:
    """Let the token itself call that function."""
    await chain.send(chain.owner, token, "act", target.address, HexBytes(target.encode_abi(name, args=list(args))))


async def _challenge_with_token_as_agent(chain: LocalChain, token: DevContract) -> Address:
    """A challenge in scoring: the token and one honest agent have submitted."""
    address = to_address(str(token.address))
    challenge = await chain.post_challenge(PostedTerms(token=address, payout_bps=(5000, 5000)))
    await chain.submit_all(challenge, [Handed(chain.agents[0], "data:,a")])
    await _act(chain, token, chain.registry, "register(string)", "")
    agent_id = await as_web3(chain.registry).functions.balanceOf(token.address).call() + await chain.register(
        chain.agents[0]
    )
    await _act(chain, token, chain.challenge(challenge), "submit", agent_id, "data:,b", HexBytes("0x" + "00" * 32))
    await chain.move_time(DAY + 1)
    await chain.send(chain.owner, chain.challenge(challenge), "advanceToScoring")
    await chain.send(chain.owner, token, "mint", to_checksum_address(challenge), SPARE)
    return challenge


async def _callbacks(token: DevContract) -> tuple[int, int]:
    made, accepted = as_web3(token).functions.callbacksMade(), as_web3(token).functions.callbacksAccepted()
    return int(await made.call()), int(await accepted.call())


async def test_a_prize_is_paid_once_to_a_token_that_calls_back(local_chain: LocalChain) -> None:
    """`claimPrize` from inside its own payment is refused."""
    chain = local_chain
    token = await _hostile_token(chain)
    challenge = await _challenge_with_token_as_agent(chain, token)
    contract = chain.challenge(challenge)
    winners = [(token.address, 2, 9, POOL // 2), (to_checksum_address(chain.agents[0].address), 1, 8, POOL // 2)]
    await chain.send(chain.evaluator, contract, "postScores", winners)
    await chain.move_time(12 * HOUR)
    await chain.send(chain.owner, contract, "finalize")
    await chain.send(chain.owner, token, "setCallback", HexBytes(contract.encode_abi("claimPrize")))
    await _act(chain, token, contract, "claimPrize")
    assert await _callbacks(token) == (1, 0)
    assert await as_web3(token).functions.balanceOf(token.address).call() == POOL // 2


async def test_a_refund_is_paid_once_to_a_token_that_calls_back(local_chain: LocalChain) -> None:
    """`claimExpiredRefund` from inside its own payment is refused."""
    chain = local_chain
    token = await _hostile_token(chain)
    challenge = await _challenge_with_token_as_agent(chain, token)
    contract = chain.challenge(challenge)
    await chain.move_time(7 * DAY)
    await chain.send(chain.owner, contract, "expire")
    await chain.send(chain.owner, token, "setCallback", HexBytes(contract.encode_abi("claimExpiredRefund")))
    await _act(chain, token, contract, "claimExpiredRefund")
    assert await _callbacks(token) == (1, 0)
    assert await as_web3(token).functions.balanceOf(token.address).call() == (POOL + BOND) // 2


@pytest.mark.parametrize("again", ["finalize", "expire", "advanceToScoring"])
async def test_the_bond_goes_home_once(local_chain: LocalChain, again: str) -> None:
    """From inside the return of the bond no other step of the challenge can be taken."""
    chain = local_chain
    token = await _hostile_token(chain)
    challenge = await _challenge_with_token_as_agent(chain, token)
    contract = chain.challenge(challenge)
    winners = [(token.address, 2, 9, POOL // 2), (to_checksum_address(chain.agents[0].address), 1, 8, POOL // 2)]
    await chain.send(chain.evaluator, contract, "postScores", winners)
    await chain.move_time(30 * DAY)
    await chain.send(chain.owner, token, "setCallback", HexBytes(contract.encode_abi(again)))
    await chain.send(chain.owner, contract, "finalize")
    assert await _callbacks(token) == (1, 0)
    assert await as_web3(token).functions.balanceOf(to_checksum_address(chain.poster.address)).call() == BOND


async def test_a_cancelled_challenge_refunds_once(local_chain: LocalChain) -> None:
    """`advanceToScoring` from inside the refund of a challenge with too few submissions is refused."""
    chain = local_chain
    token = await _hostile_token(chain)
    challenge = await chain.post_challenge(PostedTerms(token=to_address(str(token.address))))
    contract = chain.challenge(challenge)
    await chain.send(chain.owner, token, "mint", contract.address, SPARE)
    await chain.move_time(DAY + 1)
    await chain.send(chain.owner, token, "setCallback", HexBytes(contract.encode_abi("advanceToScoring")))
    await chain.send(chain.owner, contract, "advanceToScoring")
    assert await _callbacks(token) == (1, 0)
    assert await as_web3(token).functions.balanceOf(to_checksum_address(chain.poster.address)).call() == POOL + BOND
