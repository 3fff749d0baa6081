"""The rules of a challenge while it is open: setting up, submitting, cancelling, moving on to scoring."""

from __future__ import annotations

from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from hexbytes import HexBytes
from tests.support.expect import refuses
from tests.support.web3_chain import as_web3, web3_receipt
from web3.logs import DISCARD

from clara_eval.chain.model import ChallengeStatus
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.devnet.anvil import DevAccount
from clara_eval.devnet.local_chain import DAY, HOUR, USDC, Handed, LocalChain, PostedTerms

HASH = HexBytes("0x" + "ab" * 32)
POOL_AND_BOND = 1050 * USDC


async def _read(chain: LocalChain, challenge: Address, name: str, *args: Any) -> Any:
    return await as_web3(chain.challenge(challenge)).functions[name](*args).call()


async def _submit_at(chain: LocalChain, agent: DevAccount, challenge: Address, timestamp: int) -> Any:
    """Submit in a block of exactly that time."""
    agent_id = await chain.register(agent)
    await chain.node.rpc("evm_setNextBlockTimestamp", timestamp)
    return await chain.send(agent, chain.challenge(challenge), "submit", agent_id, "data:,x", HASH)


def _init_params(chain: LocalChain, now: int, **changes: Any) -> tuple[Any, ...]:
    params: dict[str, Any] = {
        "poster": chain.poster.address,
        "evaluator": chain.evaluator.address,
        "token": chain.deployment.token,
        "prizePool": USDC,
        "deadline": now + DAY,
        "scoringDeadline": now + 2 * DAY,
        "challengeURI": "data:,",
        "evalConfigHash": HASH,
        "privateSetHash": HASH,
        "winnerCount": 1,
        "payoutBps": [10000],
        "identityRegistry": chain.deployment.identity_registry,
        "posterBond": 0,
        "maxParticipants": 0,
    }
    params.update(changes)
    for name in ("poster", "evaluator", "token", "identityRegistry"):
        params[name] = to_checksum_address(params[name])
    return tuple(params.values())


async def _bare_clone(chain: LocalChain) -> Address:
    """An EIP-1167 clone that nobody has initialized, made without the factory."""
    code = (
        "3d602d80600a3d3981f3363d3d373d3d3d363d73"
        + chain.deployment.implementation[2:]
        + "5af43d82803e903d91602b57fd5bf3"
    )
    receipt = (await chain.node.receipts([await chain.node.post(chain.owner, None, "0x" + code)]))[0]
    return Address(str(receipt["contractAddress"]).lower())


async def test_a_new_challenge_shows_its_terms(local_chain: LocalChain) -> None:
    """Every getter answers with what the poster asked for, and the escrow holds prize and bond."""
    chain = local_chain
    before = await chain.now()
    terms = PostedTerms(
        challenge_uri="data:,terms",
        eval_config_hash="0x" + "11" * 32,
        private_set_hash="0x" + "22" * 32,
        max_participants=7,
    )
    challenge = await chain.post_challenge(terms)
    expected = {
        "poster": to_checksum_address(chain.poster.address),
        "evaluator": to_checksum_address(chain.evaluator.address),
        "token": to_checksum_address(chain.deployment.token),
        "prizePool": 1000 * USDC,
        "deadline": before + DAY,
        "scoringDeadline": before + 8 * DAY,
        "challengeURI": "data:,terms",
        "evalConfigHash": bytes.fromhex("11" * 32),
        "privateSetHash": bytes.fromhex("22" * 32),
        "posterBond": 50 * USDC,
        "maxParticipants": 7,
        "winnerCount": 3,
        "getPayoutBps": [6000, 3000, 1000],
        "identityRegistry": to_checksum_address(chain.deployment.identity_registry),
        "status": ChallengeStatus.OPEN,
        "submissionCount": 0,
        "scorePostedAt": 0,
        "getWinnerCount": 0,
        "MIN_SUBMISSIONS": 2,
        "FINALIZATION_DELAY": 12 * HOUR,
        "SUBMISSION_COOLDOWN": HOUR,
    }
    assert {name: await _read(chain, challenge, name) for name in expected} == expected
    assert await _read(chain, challenge, "payoutBps", 1) == 3000
    assert await chain.balance(challenge) == POOL_AND_BOND


async def test_a_challenge_is_initialized_once(local_chain: LocalChain) -> None:
    """Neither a posted challenge nor the implementation itself can be initialized by anybody."""
    params = _init_params(local_chain, await local_chain.now())
    for address in (await local_chain.post_challenge(), local_chain.deployment.implementation):
        with refuses("AlreadyInitialized"):
            await local_chain.send(local_chain.owner, local_chain.challenge(address), "initialize", params)


async def test_a_bare_clone_can_be_initialized_by_the_first_who_comes(local_chain: LocalChain) -> None:
    """A clone made by somebody else accepts one initialization and no second one."""
    clone = local_chain.challenge(await _bare_clone(local_chain))
    params = _init_params(local_chain, await local_chain.now())
    await local_chain.send(local_chain.agents[0], clone, "initialize", params)
    assert await as_web3(clone).functions.prizePool().call() == USDC
    with refuses("AlreadyInitialized"):
        await local_chain.send(local_chain.agents[0], clone, "initialize", params)


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        ("ZeroAddress", {"poster": ZERO_ADDRESS}),
        ("ZeroAddress", {"token": ZERO_ADDRESS}),
        ("ZeroAddress", {"identityRegistry": ZERO_ADDRESS}),
        ("ZeroAmount", {"prizePool": 0}),
        ("DeadlineTooSoon", {"deadline": 1}),
        ("ScoringDeadlineTooSoon", {"scoringDeadline": 1}),
    ],
)
async def test_initialize_refuses_bad_terms(local_chain: LocalChain, error: str, changes: dict[str, Any]) -> None:
    """Missing addresses, no prize and deadlines out of order are refused, each with its own error."""
    clone = local_chain.challenge(await _bare_clone(local_chain))
    with refuses(error):
        await local_chain.send(
            local_chain.owner, clone, "initialize", _init_params(local_chain, await local_chain.now(), **changes)
        )


async def test_initialize_accepts_no_evaluator(local_chain: LocalChain) -> None:
    """The zero address as evaluator leaves scoring to the poster and is not an error."""
    clone = local_chain.challenge(await _bare_clone(local_chain))
    params = _init_params(local_chain, await local_chain.now(), evaluator=ZERO_ADDRESS)
    await local_chain.send(local_chain.owner, clone, "initialize", params)
    assert await as_web3(clone).functions.evaluator().call() == ZERO_ADDRESS


async def test_a_submission_is_recorded(local_chain: LocalChain) -> None:
    """Both getters and the event show agent, URI, hash, time and version 1."""
    chain, agent = local_chain, local_chain.agents[0]
    challenge = await chain.post_challenge()
    agent_id = await chain.register(agent, "data:,agent")
    receipt = await chain.submit(agent, challenge, "data:,solution", HASH.to_0x_hex())
    expected = (agent_id, "data:,solution", bytes(HASH), await chain.now(), 1)
    assert await _read(chain, challenge, "getSubmission", to_checksum_address(agent.address)) == expected
    assert tuple(await _read(chain, challenge, "submissions", to_checksum_address(agent.address))) == expected
    assert await _read(chain, challenge, "lastSubmissionTime", to_checksum_address(agent.address)) == await chain.now()
    event = (
        as_web3(chain.challenge(challenge))
        .events.SubmissionReceived()
        .process_receipt(await web3_receipt(chain, receipt))[0]["args"]
    )
    assert dict(event) == {
        "submitter": to_checksum_address(agent.address),
        "agentId": agent_id,
        "version": 1,
        "solutionHash": bytes(HASH),
    }


async def test_a_resubmission_overwrites_and_counts_its_version(local_chain: LocalChain) -> None:
    """After an hour the same address may replace its solution: version 2, still one submission."""
    chain, agent = local_chain, local_chain.agents[0]
    challenge = await chain.post_challenge()
    await chain.submit(agent, challenge, "data:,first")
    await chain.move_time(HOUR)
    await chain.submit(agent, challenge, "data:,second")
    stored = await _read(chain, challenge, "getSubmission", to_checksum_address(agent.address))
    assert (stored[1], stored[4]) == ("data:,second", 2)
    assert await _read(chain, challenge, "submissionCount") == 1


async def test_one_submission_an_hour(local_chain: LocalChain) -> None:
    """One second before the hour is refused, the full hour is accepted, and others need not wait."""
    chain, agent = local_chain, local_chain.agents[0]
    challenge = await chain.post_challenge()
    first = await chain.now() + 10
    await _submit_at(chain, agent, challenge, first)
    await chain.submit(chain.agents[1], challenge, "data:,other")
    with refuses("SubmissionCooldown"):
        await _submit_at(chain, agent, challenge, first + HOUR - 1)
    await _submit_at(chain, agent, challenge, first + HOUR)


async def test_submissions_end_at_the_deadline(local_chain: LocalChain) -> None:
    """The last second before the deadline is in time; the deadline itself is too late."""
    chain = local_chain
    challenge = await chain.post_challenge()
    deadline = await _read(chain, challenge, "deadline")
    await chain.register(chain.agents[1])
    await _submit_at(chain, chain.agents[0], challenge, deadline - 1)
    with refuses("DeadlinePassed"):
        await _submit_at(chain, chain.agents[1], challenge, deadline)


async def test_only_the_owner_of_an_agent_submits_as_it(local_chain: LocalChain) -> None:
    """An agent id that does not exist or belongs to another is refused."""
    chain = local_chain
    challenge = chain.challenge(await chain.post_challenge())
    agent_id = await chain.register(chain.agents[0])
    for wrong in (agent_id, agent_id + 1000):
        with refuses("NotRegisteredAgent"):
            await chain.send(chain.agents[1], challenge, "submit", wrong, "data:,x", HASH)


async def test_a_sold_agent_belongs_to_the_buyer(local_chain: LocalChain) -> None:
    """After a transfer of the token the buyer submits as the agent and the seller no longer does."""
    chain, seller, buyer = local_chain, local_chain.agents[0], local_chain.agents[1]
    challenge = chain.challenge(await chain.post_challenge())
    agent_id = await chain.register(seller)
    parties = (to_checksum_address(seller.address), to_checksum_address(buyer.address))
    await chain.send(seller, chain.registry, "transferFrom", *parties, agent_id)
    with refuses("NotRegisteredAgent"):
        await chain.send(seller, challenge, "submit", agent_id, "data:,x", HASH)
    await chain.send(buyer, challenge, "submit", agent_id, "data:,x", HASH)


async def test_the_cap_counts_first_submissions_only(local_chain: LocalChain) -> None:
    """A full challenge refuses newcomers, and lets those inside submit again."""
    chain = local_chain
    challenge = await chain.post_challenge(PostedTerms(max_participants=2))
    await chain.submit_all(challenge, [Handed(agent, "data:,a") for agent in chain.agents[:2]])
    with refuses("MaxParticipantsReached"):
        await chain.submit(chain.agents[2], challenge, "data:,late")
    await chain.move_time(HOUR)
    await chain.submit(chain.agents[0], challenge, "data:,again")
    assert await _read(chain, challenge, "submissionCount") == 2


async def test_nothing_is_submitted_to_a_challenge_that_is_not_open(local_chain: LocalChain) -> None:
    """A cancelled challenge refuses submissions by its status, with both statuses named."""
    chain = local_chain
    challenge = await chain.post_challenge()
    await chain.send(chain.poster, chain.challenge(challenge), "cancel")
    with refuses("InvalidStatus", ChallengeStatus.CANCELLED, ChallengeStatus.OPEN):
        await chain.submit(chain.agents[0], challenge, "data:,x")


async def test_scoring_starts_after_the_deadline(local_chain: LocalChain) -> None:
    """At the deadline it is too early; a second later anybody may move on, once."""
    chain = local_chain
    challenge = await chain.post_challenge()
    await chain.submit_all(challenge, [Handed(agent, "data:,a") for agent in chain.agents[:2]])
    contract, deadline = chain.challenge(challenge), await _read(chain, challenge, "deadline")
    await chain.node.rpc("evm_setNextBlockTimestamp", deadline)
    with refuses("DeadlineNotReached"):
        await chain.send(chain.agents[9], contract, "advanceToScoring")
    await chain.node.rpc("evm_setNextBlockTimestamp", deadline + 1)
    await chain.send(chain.agents[9], contract, "advanceToScoring")
    assert await _read(chain, challenge, "status") == ChallengeStatus.SCORING
    assert await chain.balance(challenge) == POOL_AND_BOND
    with refuses("InvalidStatus", ChallengeStatus.SCORING, ChallengeStatus.OPEN):
        await chain.send(chain.agents[9], contract, "advanceToScoring")


@pytest.mark.parametrize("submitters", [0, 1])
async def test_too_few_submissions_cancel_and_refund(local_chain: LocalChain, submitters: int) -> None:
    """With fewer than two submissions the challenge is cancelled and the poster gets prize and bond back."""
    chain = local_chain
    before = await chain.balance(chain.poster.address)
    challenge = await chain.post_challenge()
    await chain.submit_all(challenge, [Handed(agent, "data:,a") for agent in chain.agents[:submitters]])
    await chain.move_time(DAY + 1)
    receipt = await chain.send(chain.agents[9], chain.challenge(challenge), "advanceToScoring")
    assert (
        len(
            as_web3(chain.challenge(challenge))
            .events.ChallengeCancelled()
            .process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)
        )
        == 1
    )
    assert await _read(chain, challenge, "status") == ChallengeStatus.CANCELLED
    assert await chain.balance(chain.poster.address) == before
    assert await chain.balance(challenge) == 0


async def test_the_poster_cancels_an_unanswered_challenge(local_chain: LocalChain) -> None:
    """Cancelling returns everything, happens once, and is the poster's alone."""
    chain = local_chain
    before = await chain.balance(chain.poster.address)
    challenge = await chain.post_challenge()
    contract = chain.challenge(challenge)
    with refuses("NotPoster"):
        await chain.send(chain.evaluator, contract, "cancel")
    receipt = await chain.send(chain.poster, contract, "cancel")
    event = (
        as_web3(contract)
        .events.ChallengeCancelled()
        .process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)[0]["args"]
    )
    assert event["challenge"] == to_checksum_address(challenge)
    assert await chain.balance(chain.poster.address) == before
    with refuses("InvalidStatus", ChallengeStatus.CANCELLED, ChallengeStatus.OPEN):
        await chain.send(chain.poster, contract, "cancel")


async def test_an_answered_challenge_cannot_be_cancelled(local_chain: LocalChain) -> None:
    """One submission is enough to hold the poster to the terms."""
    chain = local_chain
    challenge = await chain.post_challenge()
    await chain.submit(chain.agents[0], challenge, "data:,x")
    with refuses("HasSubmissions"):
        await chain.send(chain.poster, chain.challenge(challenge), "cancel")
