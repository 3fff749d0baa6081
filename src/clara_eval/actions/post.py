"""Posting a challenge: from what a person writes to the transactions that escrow the prize.

Comes in: a `Posting` in human words. Goes out: a `Plan` (approve only what is needed, create, pay the fee) with the
quote, the fee and every warning a poster should read first. Refuses a config with errors, an evaluator that is not
known, terms under which no result could ever be posted, a wallet without the money, and the same challenge twice.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Literal

from clara_eval.actions.amounts import parse_amount, parse_deadline, parse_payout, parse_span, show_amount
from clara_eval.actions.contract_calls import look
from clara_eval.actions.look import addresses, challenges_at, head, token_at
from clara_eval.actions.plan import Plan, Spending, Transaction, sender_of, transaction, with_gas
from clara_eval.actions.port import CannotAct, Desk
from clara_eval.budget.fees import Fee, fee
from clara_eval.challenge.model import ZERO_ADDRESS, Address, Challenge, ChallengeStatus, Token, to_address
from clara_eval.errors import BadInput, ConfigError
from clara_eval.eval_config import EvalConfig, build_metadata, collect_problems, config_hash, parse_eval_config

NO_HASH = "0x" + "00" * 32
USUAL_ENTRIES = 20
"""Entries assumed for the quote when the poster names no number."""
NEWEST = 5
"""How many of the newest challenges are compared with this one, so that a repeated request does not pay twice."""


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
class _Terms:
    """The same, as the contract takes it."""

    token: Token
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


async def plan_post(desk: Desk, posting: Posting, sender: str | None = None) -> Plan:
    """Everything checked, nothing sent."""
    poster = sender_of(desk, sender)
    _check_words(posting)
    config = _config(posting)
    terms = await _terms(desk, posting, config, poster)
    await _refuse_twice(desk, posting, terms, poster)
    transactions = await _transactions(desk, posting, terms, poster)
    return Plan(
        action="challenge_post",
        sender=poster,
        transactions=transactions,
        question=_question(desk, posting, terms),
        summary=_summary(posting, terms),
        spends=Spending(terms.token, terms.total),
        warnings=_warnings(desk, posting, config, terms),
        next="Agents can submit until the deadline; follow it with challenge_eval_status.",
        details=_details(posting, terms),
    )


def _check_words(posting: Posting) -> None:
    if not posting.title.strip() or len(posting.title) > 200:
        raise BadInput("The title is empty or longer than 200 characters.", path="title", value=posting.title[:80])
    if not posting.problem_statement.strip():
        raise BadInput("The problem statement is empty.", path="problemStatement", remedy="Say what agents should do.")
    if posting.max_participants < 0:
        raise BadInput("The number of participants is negative.", path="maxParticipants", remedy="0 means no limit.")
    digits = posting.private_set_hash.removeprefix("0x")
    if len(digits) != 64 or not set(digits.lower()) <= set("0123456789abcdef"):
        raise BadInput("The private set hash is not 0x and 64 hex digits.", path="privateSetHash")


def _config(posting: Posting) -> EvalConfig | None:
    if posting.eval_config.strip():
        return parse_eval_config(posting.eval_config)
    if posting.evaluator == "clara":
        raise BadInput(
            "An evaluation by Clara needs an eval config with features and criteria.",
            path="evalConfigJSON",
            remedy='Give {"version": 1, "features": […], "criteria": "…"}, or evaluator "self" to score yourself.',
        )
    return None


async def _terms(desk: Desk, posting: Posting, config: EvalConfig | None, poster: Address | None) -> _Terms:
    token = await _token(desk, posting)
    now = (await head(desk)).timestamp
    deadline = parse_deadline(posting.deadline, now)
    window = parse_span(posting.scoring_window)
    if not window:
        raise BadInput(
            f"{posting.scoring_window[:40]!r} is not a span of time.", path="scoringWindow", remedy='Say "3 days".'
        )
    shares = parse_payout(posting.payout, posting.winner_count)
    _check_participants(posting, shares)
    quote = desk.quote(config, posting.expected_entries or USUAL_ENTRIES) if config else 0
    mode = desk.settings.fee_mode if posting.evaluator == "clara" else "platform"
    charged = fee(mode, parse_amount(posting.prize, token), token.decimals, quote)
    rate = await look(desk, "ChallengeFactory", desk.factory, "posterBondRate")
    return _Terms(
        token=token,
        evaluator=_evaluator(desk, posting),
        fee=charged,
        bond=charged.escrow * rate // 10_000,
        deadline=deadline,
        scoring_deadline=deadline + window,
        uri=_metadata(posting, poster, now),
        config_hash=config_hash(posting.eval_config.encode()) if config else NO_HASH,
        payout_bps=shares,
        quote_micro_usd=quote,
    )


async def _token(desk: Desk, posting: Posting) -> Token:
    wanted = posting.token or desk.settings.usdc
    if wanted is None:
        raise BadInput(
            f"No prize token is named, and {desk.settings.network_name} has no fixed dollar token.",
            path="token",
            remedy="Give the token's address, or set CLARA_USDC.",
        )
    return await token_at(desk, to_address(wanted, what="token"))


def _evaluator(desk: Desk, posting: Posting) -> Address:
    if posting.evaluator == "self":
        return ZERO_ADDRESS
    if desk.evaluator is None:
        raise ConfigError(
            "Clara's evaluator address is not known here.",
            remedy='Set CLARA_EVALUATOR_ADDRESS, or post with evaluator "self".',
        )
    return desk.evaluator


def _check_participants(posting: Posting, shares: tuple[int, ...]) -> None:
    cap = posting.max_participants
    if cap and cap < max(2, len(shares)):
        raise BadInput(
            f"At most {cap} participants cannot fill {len(shares)} winning places: no result could be posted.",
            path="maxParticipants",
            value=cap,
            remedy="Allow more participants (at least 2), or pay fewer winners.",
        )


def _metadata(posting: Posting, poster: Address | None, now: int) -> str:
    words: dict[str, Any] = {
        "title": posting.title,
        "problem_statement": posting.problem_statement,
        "skills": list(posting.skills),
        "posted_by": poster or "",
        "timestamp": now,
    }
    if posting.eval_config.strip():
        return build_metadata(**words, config_text=posting.eval_config)
    document = {
        "title": words["title"],
        "problemStatement": words["problem_statement"],
        "skills": words["skills"],
        "postedBy": words["posted_by"],
        "timestamp": now,
    }
    return (
        "data:application/json;base64," + base64.b64encode(json.dumps(document, ensure_ascii=False).encode()).decode()
    )


async def _refuse_twice(desk: Desk, posting: Posting, terms: _Terms, poster: Address | None) -> None:
    if poster is None or posting.allow_duplicate:
        return
    newest = await challenges_at(desk, (await addresses(desk))[-NEWEST:])
    twin = next((found for found in newest if _is_same(found, terms, poster)), None)
    if twin is not None:
        raise CannotAct(
            f"You already posted this: {twin.address} is open with the same config and prize.",
            remedy="Look at it with challenge_detail; say allowDuplicate to post a second one.",
        )


def _is_same(found: Challenge, terms: _Terms, poster: Address) -> bool:
    return (
        found.status is ChallengeStatus.OPEN
        and (found.poster, found.evaluator, found.token.address) == (poster, terms.evaluator, terms.token.address)
        and (found.prize_pool, found.payout_bps) == (terms.fee.escrow, terms.payout_bps)
        and found.eval_config_hash == terms.config_hash
        and abs(found.deadline - terms.deadline) < 3600
    )


async def _transactions(desk: Desk, posting: Posting, terms: _Terms, poster: Address | None) -> tuple[Transaction, ...]:
    approve = transaction(
        "TestUSDC", terms.token.address, "approve", desk.factory, terms.escrow,
        description=f"Allow the challenge factory to take {show_amount(terms.escrow, terms.token)}",
    )  # fmt: skip
    create = transaction(
        "ChallengeFactory", desk.factory, "createChallenge", _params(posting, terms),
        description=f"Create the challenge and escrow {show_amount(terms.escrow, terms.token)}",
    )  # fmt: skip
    pay = [_fee_payment(terms)] if terms.fee.amount else []
    if poster is None:
        return (approve, create, *pay)
    allowance = await _check_money(desk, terms, poster)
    if allowance < terms.escrow:
        return (await with_gas(desk, poster, approve), create, *pay)
    return (await with_gas(desk, poster, create), *pay)


def _fee_payment(terms: _Terms) -> Transaction:
    return transaction(
        "TestUSDC", terms.token.address, "transfer", terms.evaluator, terms.fee.amount,
        description=f"Pay the evaluation fee of {show_amount(terms.fee.amount, terms.token)}",
    )  # fmt: skip


async def _check_money(desk: Desk, terms: _Terms, poster: Address) -> int:
    """The poster's allowance for the factory; refuses a poster who cannot pay."""
    balance = await look(desk, "TestUSDC", terms.token.address, "balanceOf", poster)
    if balance < terms.total:
        raise CannotAct(
            f"The wallet {poster} has {show_amount(balance, terms.token)}, but prize, bond and fee need "
            f"{show_amount(terms.total, terms.token)}.",
            remedy=f"Fund it on {desk.settings.network_name}, or offer a smaller prize.",
        )
    allowance: int = await look(desk, "TestUSDC", terms.token.address, "allowance", poster, desk.factory)
    return allowance


def _params(posting: Posting, terms: _Terms) -> tuple[Any, ...]:
    return (
        terms.token.address,
        terms.evaluator,
        terms.fee.escrow,
        terms.deadline,
        terms.scoring_deadline,
        terms.uri,
        bytes.fromhex(terms.config_hash[2:]),
        bytes.fromhex(posting.private_set_hash.removeprefix("0x")),
        len(terms.payout_bps),
        list(terms.payout_bps),
        posting.max_participants,
        list(posting.skills),
    )


def _question(desk: Desk, posting: Posting, terms: _Terms) -> str:
    total, prize, bond, charged = (
        show_amount(units, terms.token) for units in (terms.total, terms.fee.escrow, terms.bond, terms.fee.amount)
    )
    return (
        f"Post this challenge on {desk.settings.network_name}? {total} leave the wallet: prize {prize}, bond {bond} "
        f"(returned when it is finalized), fee {charged}. {len(terms.payout_bps)} winner(s), "
        f"deadline {posting.deadline[:40]}, evaluator {posting.evaluator}."
    )


def _summary(posting: Posting, terms: _Terms) -> str:
    judge = "Clara evaluates." if posting.evaluator == "clara" else "The poster scores alone."
    quote = f" Quoted evaluation cost: ${terms.quote_micro_usd / 1e6:.4f}." if terms.quote_micro_usd else ""
    return (
        f"Prize {show_amount(terms.fee.escrow, terms.token)} for {len(terms.payout_bps)} winner(s), bond "
        f"{show_amount(terms.bond, terms.token)}, total {show_amount(terms.total, terms.token)}. {judge} "
        f"{terms.fee.shown if posting.evaluator == 'clara' else ''}{quote}"
    ).strip()


def _details(posting: Posting, terms: _Terms) -> dict[str, Any]:
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


def _warnings(desk: Desk, posting: Posting, config: EvalConfig | None, terms: _Terms) -> tuple[str, ...]:
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
        found += _service_warnings(desk, terms)
    return tuple(found)


def _service_warnings(desk: Desk, terms: _Terms) -> list[str]:
    settings, found = desk.settings, []
    dollars = terms.fee.escrow / 10**terms.token.decimals
    if settings.min_prize_usd and dollars < settings.min_prize_usd:
        found.append(f"The service evaluates prizes from ${settings.min_prize_usd:g}; this one would be deferred.")
    if settings.review_above_usd is not None and dollars >= settings.review_above_usd:
        found.append(f"Prizes of ${settings.review_above_usd:g} and more wait for a person's approval before posting.")
    cap, quote = settings.budget_per_challenge_usd, terms.quote_micro_usd
    if quote is None:
        found.append("What the evaluation costs is not known here: the service's models or their prices are not.")
    elif cap is not None and quote / 1e6 > cap:
        found.append(f"The evaluation is quoted at ${quote / 1e6:.2f}, above the service's cap of ${cap:g}.")
    return found
