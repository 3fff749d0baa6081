"""The terms of a challenge, and what a poster reads about them before money moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clara_eval.actions.amounts import show_amount
from clara_eval.app import Caller
from clara_eval.chain.model import PrizeToken, worth_micro_usd
from clara_eval.challenges.fees import Fee
from clara_eval.config.eval_config import EvalConfig, collect_problems
from clara_eval.core.address import Address
from clara_eval.core.dollars import MICRO

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
    """Terms as the contract takes them."""

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


def question(caller: Caller, posting: Posting, terms: ChallengeTerms) -> str:
    total, prize, bond, charged = (
        show_amount(units, terms.token) for units in (terms.total, terms.fee.escrow, terms.bond, terms.fee.amount)
    )
    return (
        f"Post this challenge on {caller.settings.network_name}? {total} leave the wallet: prize {prize}, bond {bond} "
        f"(returned when it is finalized), fee {charged}. {len(terms.payout_bps)} winner(s), "
        f"deadline {posting.deadline[:40]}, evaluator {posting.evaluator}."
    )


def summary(posting: Posting, terms: ChallengeTerms) -> str:
    judge = "Clara evaluates." if posting.evaluator == "clara" else "The poster scores alone."
    quote = f" Quoted evaluation cost: ${terms.quote_micro_usd / 1e6:.4f}." if terms.quote_micro_usd else ""
    return (
        f"Prize {show_amount(terms.fee.escrow, terms.token)} for {len(terms.payout_bps)} winner(s), bond "
        f"{show_amount(terms.bond, terms.token)}, total {show_amount(terms.total, terms.token)}. {judge} "
        f"{terms.fee.shown if posting.evaluator == 'clara' else ''}{quote}"
    ).strip()


def details(posting: Posting, terms: ChallengeTerms) -> dict[str, object]:
    quote = terms.quote_micro_usd
    return {
        "evaluator": terms.evaluator,
        "evaluatorKind": posting.evaluator,
        "token": {"address": terms.token.address, "symbol": terms.token.symbol, "decimals": terms.token.decimals},
        "prizePool": str(terms.fee.escrow),
        "posterBond": str(terms.bond),
        "fee": str(terms.fee.amount),
        "feeMode": terms.fee.mode,
        "total": str(terms.total),
        "quoteUsd": None if quote is None else quote / 1e6,
        "deadline": terms.deadline,
        "scoringDeadline": terms.scoring_deadline,
        "winnerCount": len(terms.payout_bps),
        "payoutBps": list(terms.payout_bps),
        "evalConfigHash": terms.config_hash,
        "challengeURI": terms.uri,
    }


def warnings(caller: Caller, posting: Posting, config: EvalConfig | None, terms: ChallengeTerms) -> tuple[str, ...]:
    found = [str(problem) for problem in collect_problems(posting.eval_config)] if config else []
    places, entries = len(terms.payout_bps), posting.expected_entries
    if entries is not None and places > entries:
        found.append(
            f"{places} winners need {places} submitters, but {entries} are expected: no result could be posted, and "
            "after the scoring deadline everybody would share the prize equally."
        )
    elif places > 2:
        found.append(
            f"With fewer than {places} submitters no result can be posted, and after the scoring deadline everybody "
            "shares the prize equally."
        )
    if entries is not None and entries >= places > 1 and places * 2 > entries:
        found.append(f"{places} of {entries} expected entries would win: pay fewer places to reward the best work.")
    if posting.evaluator == "clara":
        found += _service_warnings(caller, terms)
    return tuple(found)


def _service_warnings(caller: Caller, terms: ChallengeTerms) -> list[str]:
    settings, found = caller.settings, []
    worth = worth_micro_usd(terms.token, terms.fee.escrow, settings.network)
    if settings.min_prize_usd and (worth is None or worth < settings.min_prize_usd * MICRO):
        found.append(f"The service evaluates prizes from ${settings.min_prize_usd:g}; this one would be deferred.")
    if settings.review_above_usd is not None and (worth is None or worth >= settings.review_above_usd * MICRO):
        found.append(f"Prizes of ${settings.review_above_usd:g} and more wait for a person's approval before posting.")
    cap, quote = settings.budget_per_challenge_usd, terms.quote_micro_usd
    if quote is None:
        found.append("What the evaluation costs is not known here: the service's models or their prices are not.")
    elif cap is not None and quote / 1e6 > cap:
        found.append(f"The evaluation is quoted at ${quote / 1e6:.2f}, above the service's cap of ${cap:g}.")
    return found
