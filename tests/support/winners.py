"""Set-up shared by tests: what test_winners.py and others use."""

from __future__ import annotations

from clara_eval.chain.model import Block, Challenge, ChallengeStatus, PrizeToken
from clara_eval.core.address import Address
from clara_eval.core.model import Submission


def account(number: int) -> Address:
    return Address(f"0x{number:040x}")


def challenge(submitters: int, payout_bps: tuple[int, ...], pool: int = 1_000_003) -> Challenge:
    submissions = tuple(
        Submission(account(n), agent_id=n + 1, solution_uri="data:,x", solution_hash="0x", submitted_at=n, version=1)
        for n in range(submitters)
    )
    return Challenge(
        chain_id=31337,
        address=account(999),
        block=Block(1, "0x", 1),
        poster=account(1000),
        evaluator=account(1001),
        token=PrizeToken(account(1002), "USDC", 6),
        prize_pool=pool,
        poster_bond=0,
        deadline=1,
        scoring_deadline=2,
        challenge_uri="",
        eval_config_hash="0x",
        private_set_hash="0x",
        winner_count=len(payout_bps),
        payout_bps=payout_bps,
        identity_registry=account(1003),
        max_participants=0,
        status=ChallengeStatus.SCORING,
        submission_count=submitters,
        score_posted_at=0,
        submissions=submissions,
    )
