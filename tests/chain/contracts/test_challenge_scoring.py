"""The rules of a challenge after its deadline: posting scores, finalizing, claiming, expiring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from eth_typing import HexStr
from eth_utils.address import to_checksum_address
from tests.support.expect import refuses
from tests.support.web3_chain import as_web3, web3_of, web3_receipt
from web3.logs import DISCARD

from clara_eval.chain.model import ChallengeStatus
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)

Entry = tuple[str, int, int, int]
PRIZES = (600 * USDC, 300 * USDC, 100 * USDC)


async def _scoring(chain: LocalChain, terms: PostedTerms | None = None, submitters: int = 4) -> Address:
    """A challenge in scoring, with that many submitters."""
    challenge = await chain.post_challenge(terms)
    await chain.submit_all(challenge, [Handed(agent, "data:,a") for agent in chain.agents[:submitters]])
    await chain.move_time(DAY + 1)
    await chain.send(chain.owner, chain.challenge(challenge), "advanceToScoring")
    return challenge


async def _entries(chain: LocalChain, prizes: Sequence[int] = PRIZES) -> list[Entry]:
    """The first agents as winners, best first, with these prizes."""
    return [
        (to_checksum_address(agent.address), await chain.register(agent), 9000 - 100 * place, prize)
        for place, (agent, prize) in enumerate(zip(chain.agents, prizes, strict=False))
    ]


async def _posted(chain: LocalChain, terms: PostedTerms | None = None, prizes: Sequence[int] = PRIZES) -> Address:
    challenge = await _scoring(chain, terms)
    await chain.send(chain.evaluator, chain.challenge(challenge), "postScores", await _entries(chain, prizes))
    return challenge


async def _finalized(chain: LocalChain, terms: PostedTerms | None = None, prizes: Sequence[int] = PRIZES) -> Address:
    challenge = await _posted(chain, terms, prizes)
    await chain.move_time(12 * HOUR)
    await chain.send(chain.owner, chain.challenge(challenge), "finalize")
    return challenge


async def _expired(chain: LocalChain, terms: PostedTerms | None = None, submitters: int = 4) -> Address:
    challenge = await _scoring(chain, terms, submitters)
    await chain.move_time(7 * DAY)
    await chain.send(chain.owner, chain.challenge(challenge), "expire")
    return challenge


async def _read(chain: LocalChain, challenge: Address, name: str, *args: Any) -> Any:
    return await as_web3(chain.challenge(challenge)).functions[name](*args).call()


async def test_the_evaluator_posts_the_winners(local_chain: LocalChain) -> None:
    """Winners are stored as sent, the time is kept and the event counts them."""
    chain = local_chain
    challenge = await _scoring(chain)
    entries = await _entries(chain)
    receipt = await chain.send(chain.evaluator, chain.challenge(challenge), "postScores", entries)
    assert [await _read(chain, challenge, "getWinner", place) for place in range(3)] == entries
    assert tuple(await _read(chain, challenge, "winners", 1)) == entries[1]
    assert await _read(chain, challenge, "getWinnerCount") == 3
    assert await _read(chain, challenge, "scorePostedAt") == await chain.now()
    event = (
        as_web3(chain.challenge(challenge))
        .events.ScoresPosted()
        .process_receipt(await web3_receipt(chain, receipt))[0]["args"]
    )
    assert dict(event) == {"challenge": to_checksum_address(challenge), "winnerCountPosted": 3}


@pytest.mark.parametrize("with_evaluator", [True, False])
async def test_the_poster_may_always_post(local_chain: LocalChain, with_evaluator: bool) -> None:
    """The poster posts scores beside an evaluator and where there is none."""
    terms = PostedTerms() if with_evaluator else PostedTerms(evaluator=ZERO_ADDRESS)
    challenge = await _scoring(local_chain, terms)
    contract = local_chain.challenge(challenge)
    await local_chain.send(local_chain.poster, contract, "postScores", await _entries(local_chain))
    assert await _read(local_chain, challenge, "getWinnerCount") == 3


async def test_nobody_else_posts(local_chain: LocalChain) -> None:
    """A submitter and the factory's owner are refused; so is the evaluator of other challenges, where there is none."""
    chain = local_chain
    entries = await _entries(chain)
    challenge = await _scoring(chain)
    for sender in (chain.agents[0], chain.owner):
        with refuses("NotEvaluator"):
            await chain.send(sender, chain.challenge(challenge), "postScores", entries)
    without = await _scoring(chain, PostedTerms(evaluator=ZERO_ADDRESS))
    with refuses("NotEvaluator"):
        await chain.send(chain.evaluator, chain.challenge(without), "postScores", entries)


async def test_a_rehearsal_without_sender_is_refused_where_there_is_no_evaluator(local_chain: LocalChain) -> None:
    """The zero address, which nodes assume as sender of a call, is not the missing evaluator."""
    chain = local_chain
    challenge = await _scoring(chain, PostedTerms(evaluator=ZERO_ADDRESS))
    data = chain.challenge(challenge).encode_abi("postScores", args=[await _entries(chain)])
    with refuses("NotEvaluator"):
        await chain.node.rpc("eth_call", {"from": ZERO_ADDRESS, "to": challenge, "data": data}, "latest")


async def test_scores_are_posted_once(local_chain: LocalChain) -> None:
    """After the first posting neither evaluator nor poster can post again."""
    chain = local_chain
    contract = chain.challenge(await _posted(chain))
    for sender in (chain.evaluator, chain.poster):
        with refuses("ScoresAlreadyPosted"):
            await chain.send(sender, contract, "postScores", await _entries(chain))


async def test_scores_need_the_scoring_status(local_chain: LocalChain) -> None:
    """While the challenge is open, and after it is final, posting is refused by status."""
    chain = local_chain
    entries = await _entries(chain)
    still_open = await chain.post_challenge()
    with refuses("InvalidStatus", ChallengeStatus.OPEN, ChallengeStatus.SCORING):
        await chain.send(chain.evaluator, chain.challenge(still_open), "postScores", entries)
    final = await _finalized(chain)
    with refuses("InvalidStatus", ChallengeStatus.FINALIZED, ChallengeStatus.SCORING):
        await chain.send(chain.evaluator, chain.challenge(final), "postScores", entries)


async def test_scores_may_be_posted_late_until_somebody_expires_the_challenge(local_chain: LocalChain) -> None:
    """The scoring deadline alone does not end scoring: `expire` does."""
    chain = local_chain
    challenge = await _scoring(chain)
    await chain.move_time(30 * DAY)
    await chain.send(chain.evaluator, chain.challenge(challenge), "postScores", await _entries(chain))
    assert await _read(chain, challenge, "getWinnerCount") == 3


@pytest.mark.parametrize("prizes", [(), PRIZES[:2], (*PRIZES, 0)])
async def test_exactly_the_winner_count(local_chain: LocalChain, prizes: tuple[int, ...]) -> None:
    """None, one too few and one too many winners are refused."""
    challenge = await _scoring(local_chain)
    with refuses("InvalidWinnerCount"):
        await local_chain.send(
            local_chain.evaluator, local_chain.challenge(challenge), "postScores", await _entries(local_chain, prizes)
        )


async def test_fewer_submitters_than_winners_can_never_be_scored(local_chain: LocalChain) -> None:
    """With two submitters and three places every possible posting is refused."""
    chain = local_chain
    contract = chain.challenge(await _scoring(chain, submitters=2))
    entries = await _entries(chain)
    with refuses("WinnerNotSubmitter"):
        await chain.send(chain.evaluator, contract, "postScores", entries)
    with refuses("InvalidWinnerCount"):
        await chain.send(chain.evaluator, contract, "postScores", entries[:2])
    with refuses("DuplicateWinner"):
        await chain.send(chain.evaluator, contract, "postScores", [*entries[:2], (*entries[0][:3], PRIZES[2])])


async def test_every_winner_submitted(local_chain: LocalChain) -> None:
    """A stranger and the zero address cannot win."""
    chain = local_chain
    contract = chain.challenge(await _scoring(chain))
    entries = await _entries(chain)
    for account in (chain.agents[9].address, ZERO_ADDRESS):
        stranger = (to_checksum_address(account), *entries[1][1:])
        with refuses("WinnerNotSubmitter"):
            await chain.send(chain.evaluator, contract, "postScores", [entries[0], stranger, entries[2]])


@pytest.mark.parametrize(
    ("error", "prizes"),
    [
        ("InvalidPrizeAmount", (PRIZES[0] - 1, PRIZES[1] + 1, PRIZES[2])),
        ("InvalidPrizeAmount", (PRIZES[0], PRIZES[1] + 1, PRIZES[2] - 1)),
        ("InvalidPrizeAmount", (2**256 - 1, PRIZES[1], PRIZES[2])),
        ("InvalidPrizeSum", (PRIZES[0], PRIZES[1], PRIZES[2] - 1)),
        ("InvalidPrizeSum", (PRIZES[0], PRIZES[1], PRIZES[2] + 1)),
        ("InvalidPrizeSum", (PRIZES[0], PRIZES[1], 2**256 - 1)),
    ],
)
async def test_prizes_are_the_contracts_arithmetic(
    local_chain: LocalChain, error: str, prizes: tuple[int, ...]
) -> None:
    """One unit too much or too little is refused, and an absurd amount is an error by name, not an overflow."""
    contract = local_chain.challenge(await _scoring(local_chain))
    with refuses(error):
        await local_chain.send(local_chain.evaluator, contract, "postScores", await _entries(local_chain, prizes))


async def test_the_last_winner_takes_the_dust(local_chain: LocalChain) -> None:
    """Shares are rounded down and what is left goes to the last place; dust anywhere else is refused."""
    terms = PostedTerms(prize_pool=100, payout_bps=(3333, 3333, 3334))
    challenge = await _scoring(local_chain, terms)
    contract = local_chain.challenge(challenge)
    with refuses("InvalidPrizeAmount"):
        await local_chain.send(local_chain.evaluator, contract, "postScores", await _entries(local_chain, (34, 33, 33)))
    await local_chain.send(local_chain.evaluator, contract, "postScores", await _entries(local_chain, (33, 33, 34)))
    assert await _read(local_chain, challenge, "getWinnerCount") == 3


async def test_twenty_five_winners_can_be_posted(local_chain: LocalChain) -> None:
    """The largest number of places the factory accepts fits into one transaction."""
    chain = local_chain
    challenge = await _scoring(chain, PostedTerms(payout_bps=(400,) * 25), submitters=25)
    entries = await _entries(chain, (40 * USDC,) * 25)
    receipt = await chain.send(chain.evaluator, chain.challenge(challenge), "postScores", entries)
    assert int(receipt["gasUsed"], 16) < 5_000_000


async def test_bytes_after_the_arguments_are_accepted_and_can_be_read_back(local_chain: LocalChain) -> None:
    """A mark and a digest behind the calldata change nothing for the contract and stay in the transaction."""
    chain = local_chain
    challenge = await _scoring(chain)
    entries = await _entries(chain)
    tail = "c1a4a001" + "5e" * 32
    data = chain.challenge(challenge).encode_abi("postScores", args=[entries]) + tail
    receipt = await chain.send_data(chain.evaluator, challenge, data)
    assert [await _read(chain, challenge, "getWinner", place) for place in range(3)] == entries
    sent = await web3_of(chain).eth.get_transaction(HexStr(receipt["transactionHash"]))
    assert sent["input"].to_0x_hex() == data
    assert sent["input"].hex().endswith(tail)


async def test_twelve_hours_until_final(local_chain: LocalChain) -> None:
    """A second before the delay is over finalizing is refused; then anybody may, and the bond goes home."""
    chain = local_chain
    challenge = await _posted(chain)
    contract, posted_at = chain.challenge(challenge), await _read(chain, challenge, "scorePostedAt")
    before = await chain.balance(chain.poster.address)
    await chain.node.rpc("evm_setNextBlockTimestamp", posted_at + 12 * HOUR - 1)
    with refuses("FinalizationDelayNotElapsed"):
        await chain.send(chain.agents[9], contract, "finalize")
    await chain.node.rpc("evm_setNextBlockTimestamp", posted_at + 12 * HOUR)
    receipt = await chain.send(chain.agents[9], contract, "finalize")
    event = (
        as_web3(contract)
        .events.ChallengeFinalized()
        .process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)[0]["args"]
    )
    assert event["challenge"] == to_checksum_address(challenge)
    assert await _read(chain, challenge, "status") == ChallengeStatus.FINALIZED
    assert await chain.balance(chain.poster.address) == before + 50 * USDC
    assert await chain.balance(challenge) == 1000 * USDC
    with refuses("InvalidStatus", ChallengeStatus.FINALIZED, ChallengeStatus.SCORING):
        await chain.send(chain.agents[9], contract, "finalize")


async def test_nothing_is_final_without_scores(local_chain: LocalChain) -> None:
    """Time alone does not finalize a challenge."""
    challenge = await _scoring(local_chain)
    await local_chain.move_time(30 * DAY)
    with refuses("ScoresNotPosted"):
        await local_chain.send(local_chain.owner, local_chain.challenge(challenge), "finalize")


async def test_winners_claim_once(local_chain: LocalChain) -> None:
    """Each winner is paid exactly, with a rank from 1, and the escrow ends empty."""
    chain = local_chain
    challenge = await _finalized(chain)
    contract = chain.challenge(challenge)
    for rank, (agent, prize) in enumerate(zip(chain.agents, PRIZES, strict=False), start=1):
        receipt = await chain.send(agent, contract, "claimPrize")
        event = (
            as_web3(contract)
            .events.PrizeClaimed()
            .process_receipt(await web3_receipt(chain, receipt), errors=DISCARD)[0]["args"]
        )
        assert dict(event) == {"winner": to_checksum_address(agent.address), "rank": rank, "amount": prize}
        assert await chain.balance(agent.address) == prize
        assert await _read(chain, challenge, "hasClaimed", to_checksum_address(agent.address))
        with refuses("AlreadyClaimed"):
            await chain.send(agent, contract, "claimPrize")
    assert await chain.balance(challenge) == 0


async def test_losers_and_strangers_claim_nothing(local_chain: LocalChain) -> None:
    """A submitter without a place, a stranger and the poster have no prize."""
    chain = local_chain
    contract = chain.challenge(await _finalized(chain))
    for sender in (chain.agents[3], chain.agents[9], chain.poster):
        with refuses("NotAWinner"):
            await chain.send(sender, contract, "claimPrize")


async def test_a_winner_of_nothing_cannot_claim(local_chain: LocalChain) -> None:
    """A place with a share of zero is a place, but not a claim."""
    terms = PostedTerms(payout_bps=(10000, 0))
    challenge = await _finalized(local_chain, terms, prizes=(1000 * USDC, 0))
    with refuses("NotAWinner"):
        await local_chain.send(local_chain.agents[1], local_chain.challenge(challenge), "claimPrize")


async def test_nothing_is_paid_before_it_is_final(local_chain: LocalChain) -> None:
    """Posted scores alone pay nobody, neither as prize nor as refund."""
    chain = local_chain
    contract = chain.challenge(await _posted(chain))
    with refuses("InvalidStatus", ChallengeStatus.SCORING, ChallengeStatus.FINALIZED):
        await chain.send(chain.agents[0], contract, "claimPrize")
    with refuses("InvalidStatus", ChallengeStatus.SCORING, ChallengeStatus.EXPIRED):
        await chain.send(chain.agents[0], contract, "claimExpiredRefund")


async def test_expiry_comes_after_the_scoring_deadline(local_chain: LocalChain) -> None:
    """At the scoring deadline it is too early; a second later anybody may expire the challenge, once."""
    chain = local_chain
    challenge = await _scoring(chain)
    contract, scoring_deadline = chain.challenge(challenge), await _read(chain, challenge, "scoringDeadline")
    await chain.node.rpc("evm_setNextBlockTimestamp", scoring_deadline)
    with refuses("ScoringDeadlineNotReached"):
        await chain.send(chain.agents[9], contract, "expire")
    await chain.node.rpc("evm_setNextBlockTimestamp", scoring_deadline + 1)
    receipt = await chain.send(chain.agents[9], contract, "expire")
    event = as_web3(contract).events.ChallengeExpired().process_receipt(await web3_receipt(chain, receipt))[0]["args"]
    assert dict(event) == {"challenge": to_checksum_address(challenge), "refundPerSubmitter": 1050 * USDC // 4}
    with refuses("InvalidStatus", ChallengeStatus.EXPIRED, ChallengeStatus.SCORING):
        await chain.send(chain.agents[9], contract, "expire")


async def test_a_scored_challenge_does_not_expire(local_chain: LocalChain) -> None:
    """Once scores are posted, no delay turns them into refunds."""
    challenge = await _posted(local_chain)
    await local_chain.move_time(30 * DAY)
    with refuses("ScoresAlreadyPosted"):
        await local_chain.send(local_chain.owner, local_chain.challenge(challenge), "expire")


async def test_an_open_challenge_does_not_expire(local_chain: LocalChain) -> None:
    """Without `advanceToScoring` there is nothing to expire."""
    challenge = await local_chain.post_challenge()
    await local_chain.move_time(30 * DAY)
    with refuses("InvalidStatus", ChallengeStatus.OPEN, ChallengeStatus.SCORING):
        await local_chain.send(local_chain.owner, local_chain.challenge(challenge), "expire")


async def test_an_expired_challenge_pays_every_submitter_the_same(local_chain: LocalChain) -> None:
    """Prize and bond are shared equally, once each; only the indivisible rest stays behind."""
    chain = local_chain
    challenge = await _expired(chain, PostedTerms(prize_pool=1000), submitters=4)
    contract = chain.challenge(challenge)
    for agent in chain.agents[:4]:
        await chain.send(agent, contract, "claimExpiredRefund")
        assert await chain.balance(agent.address) == 262
        with refuses("AlreadyClaimed"):
            await chain.send(agent, contract, "claimExpiredRefund")
    assert await chain.balance(challenge) == 1050 - 4 * 262


async def test_only_submitters_get_a_share_of_an_expired_challenge(local_chain: LocalChain) -> None:
    """Strangers and the poster get nothing, and there is no prize to claim."""
    chain = local_chain
    contract = chain.challenge(await _expired(chain))
    for sender in (chain.agents[9], chain.poster):
        with refuses("NotASubmitter"):
            await chain.send(sender, contract, "claimExpiredRefund")
    with refuses("InvalidStatus", ChallengeStatus.EXPIRED, ChallengeStatus.FINALIZED):
        await chain.send(chain.agents[0], contract, "claimPrize")
