"""Winners to calldata and back, and the guard that looks at it once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.chain.model import (
    MARK,
    Block,
    Challenge,
    ChallengeStatus,
    PostedBy,
    PrizeToken,
    WinnerPrize,
    Winners,
    post_scores,
    post_scores_calldata,
    prizes,
    read_calldata,
    scoring_function,
)
from clara_eval.chain.transaction import read_signed
from clara_eval.challenges.calls import check_call
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.errors import BadInput, CannotPublish, Unscorable
from clara_eval.core.model import Submission

DIGEST = "0x" + "5a" * 32
UINT = st.integers(0, 2**256 - 1)
ACCOUNT = st.binary(min_size=20, max_size=20).map(lambda raw: Address("0x" + raw.hex()))
WINNERS = st.lists(st.builds(WinnerPrize, ACCOUNT, UINT, UINT, UINT), max_size=25).map(
    lambda rows: Winners(tuple(rows))
)
HEX32 = st.binary(min_size=32, max_size=32).map(lambda raw: "0x" + raw.hex())


@given(WINNERS, HEX32)
def test_calldata_makes_the_round_trip(winners: Winners, digest: str) -> None:
    """What was encoded is what is read, whatever the numbers."""
    data = post_scores_calldata(winners, digest)
    assert data.startswith(post_scores(winners) + MARK)
    assert read_calldata(data) == (winners, digest)


@given(WINNERS, st.binary(max_size=80))
def test_other_tails_are_no_digest(winners: Winners, tail: bytes) -> None:
    """Only the mark and exactly 32 bytes after the call are a digest; the winners are read all the same."""
    read, found = read_calldata(post_scores(winners) + tail)
    assert read == winners
    assert (found is not None) == (len(tail) == 36 and tail.startswith(MARK))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No calldata of a stranger breaks the reader."""
    for candidate in (data, scoring_function("postScores").selector + data):
        try:
            read_calldata(candidate)
        except BadInput:
            continue


@pytest.mark.parametrize("digest", ["", "0x12", "0x" + "zz" * 32, "0x" + "11" * 33])
def test_a_bad_digest_is_refused(digest: str) -> None:
    """A digest that is not 32 bytes never reaches a transaction."""
    with pytest.raises(BadInput, match="trace digest"):
        post_scores_calldata(Winners(()), digest)


def account(number: int) -> Address:
    return Address(f"0x{number:040x}")


CHALLENGE = Challenge(
    chain_id=1,
    address=account(99),
    block=Block(1, "0x" + "00" * 32, 1),
    poster=account(50),
    evaluator=account(51),
    token=PrizeToken(account(52), "USDC", 6),
    prize_pool=1001,
    poster_bond=50,
    deadline=1,
    scoring_deadline=2,
    challenge_uri="",
    eval_config_hash="0x" + "00" * 32,
    private_set_hash="0x" + "00" * 32,
    winner_count=3,
    payout_bps=(5000, 3000, 2000),
    identity_registry=ZERO_ADDRESS,
    max_participants=0,
    status=ChallengeStatus.SCORING,
    submission_count=4,
    score_posted_at=0,
    submissions=tuple(Submission(account(n), n, "data:,", "0x" + "00" * 32, n, 1) for n in (1, 2, 3, 4)),
)
SHARES = prizes(1001, (5000, 3000, 2000))
GOOD = Winners(tuple(WinnerPrize(account(n), n, 900 - n, SHARES[n - 1]) for n in (1, 2, 3)))


def changed(number: int, **fields: object) -> Winners:
    rows = list(GOOD.entries)
    rows[number] = replace(rows[number], **fields)  # type: ignore[arg-type] # the fields are the test's table
    return Winners(tuple(rows))


def test_what_was_decided_passes() -> None:
    """The right winners with the right prizes are let through."""
    check_call(CHALLENGE, GOOD, DIGEST, post_scores_calldata(GOOD, DIGEST))


@pytest.mark.parametrize(
    ("winners", "reason"),
    [
        (Winners(GOOD.entries[:2]), "2 winners, but the challenge pays exactly 3"),
        (changed(2, account=account(7), agent_id=7), "did not submit"),
        (changed(2, agent_id=4), "did not submit as agent 4"),
        (changed(1, account=account(1), agent_id=1), "named twice"),
        (changed(0, prize_amount=499), "not the contract's shares"),
        (changed(2, prize_amount=SHARES[2] + 1), "not the contract's shares"),
        (changed(1, score=950), "not in order"),
    ],
)
def test_winners_the_contract_would_refuse_are_refused(winners: Winners, reason: str) -> None:
    """Each rule of the contract is checked before anything is signed."""
    with pytest.raises(CannotPublish, match=reason):
        check_call(CHALLENGE, winners, DIGEST, post_scores_calldata(winners, DIGEST))


@pytest.mark.parametrize(
    "tamper",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:-36],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    ],
)
def test_calldata_that_says_something_else_is_refused(tamper: Callable[[bytes], bytes]) -> None:
    """One bit between decision and calldata is enough to stop."""
    data = tamper(post_scores_calldata(GOOD, DIGEST))
    with pytest.raises(CannotPublish, match="does not say what was decided"):
        check_call(CHALLENGE, GOOD, DIGEST, data)


def test_too_few_submitters_can_never_be_posted() -> None:
    """The impossible round is named as such."""
    short = replace(CHALLENGE, submissions=CHALLENGE.submissions[:2])
    with pytest.raises(Unscorable, match="2 submitters for 3 winners"):
        check_call(short, GOOD, DIGEST, post_scores_calldata(GOOD, DIGEST))


def test_who_posted() -> None:
    """A sender is the evaluator, the poster, or neither; who is both counts as the evaluator."""
    evaluator, poster = account(1), account(2)
    assert PostedBy.of(evaluator, evaluator=evaluator, poster=poster) is PostedBy.EVALUATOR
    assert PostedBy.of(poster, evaluator=evaluator, poster=poster) is PostedBy.POSTER
    assert PostedBy.of(account(3), evaluator=evaluator, poster=poster) is PostedBy.OTHER
    assert PostedBy.of(evaluator, evaluator=evaluator, poster=evaluator) is PostedBy.EVALUATOR


@pytest.mark.parametrize("raw", ["0x", "0x01aa", "0xf86b"])
def test_other_transaction_types_are_not_read(raw: str) -> None:
    """A recorded transaction we cannot read is not sent."""
    with pytest.raises(CannotPublish, match="not EIP-1559"):
        read_signed(raw)
