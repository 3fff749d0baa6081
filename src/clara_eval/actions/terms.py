"""The terms of a challenge: as a poster writes them, and as the contract takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clara_eval.chain.model import PrizeToken
from clara_eval.challenges.fees import Fee
from clara_eval.core.address import Address

NO_HASH = "0x" + "00" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """What a poster wants, in the poster's words."""

    title: str
    problem_statement: str
    prize: str
    deadline: str
    eval_config: str = ""
    """The config's JSON text; its exact bytes are what the chain commits to."""
    evaluator: Literal["clara", "self"] = "clara"
    scoring_window: str = "3 days"
    payout: str | tuple[int, ...] = "top3"
    winner_count: int | None = None
    token: str | None = None
    skills: tuple[str, ...] = ()
    max_participants: int = 0
    expected_entries: int | None = None
    private_set_hash: str = NO_HASH
    allow_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ChallengeTerms:
    """The same, as the contract takes it."""

    token: PrizeToken
    evaluator: Address
    fee: Fee
    bond: int
    deadline: int
    scoring_deadline: int
    uri: str
    config_hash: str
    payout_bps: tuple[int, ...]
    quote_micro_usd: int | None

    @property
    def escrow(self) -> int:
        return self.fee.escrow + self.bond

    @property
    def total(self) -> int:
        return self.fee.total + self.bond
