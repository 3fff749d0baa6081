"""Posting a challenge: from what a person writes to the transactions that escrow the prize.

Comes in: a `Posting` in human words. Goes out: a `Plan` (approve only what is needed, create, pay the fee) with the
quote, the fee and every warning a poster should read first. Refuses a config with errors, an evaluator that is not
known, terms under which no result could ever be posted, a wallet without the money, and the same challenge twice.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from clara_eval.challenge.model import ZERO_ADDRESS, Address, Challenge, ChallengeStatus, Token, to_address
from clara_eval.errors import BadInput, ConfigError
from clara_eval.eval_config import EvalConfig, build_metadata, config_hash, parse_eval_config
from clara_eval.money.fees import Fee, fee
from clara_eval.use_cases import terms_words as words
from clara_eval.use_cases.amounts import parse_amount, parse_deadline, parse_payout, parse_span, show_amount
from clara_eval.use_cases.contract_calls import answer, look, view
from clara_eval.use_cases.look import addresses, challenges_at, head, token_at
from clara_eval.use_cases.plan import Plan, Spending, Transaction, require_text, sender_of, transaction, with_gas
from clara_eval.use_cases.port import CannotAct, Desk
from clara_eval.use_cases.terms import NO_HASH, Posting, Terms

USUAL_ENTRIES = 20
"""Entries assumed for the quote when the poster names no number."""
NEWEST = 200
"""Among how many of the newest challenges the poster's own are looked for, so that a repeated request pays once."""
OWN = 20
"""How many of those are compared with this one."""


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
        question=words.question(desk, posting, terms),
        summary=words.summary(posting, terms),
        spends=Spending(terms.token, terms.total),
        warnings=words.warnings(desk, posting, config, terms),
        next="Agents can submit until the deadline; follow it with challenge_eval_status.",
        details=words.details(posting, terms),
    )


def _check_words(posting: Posting) -> None:
    if not posting.title.strip() or len(posting.title) > 200:
        raise BadInput("The title is empty or longer than 200 characters.", path="title", value=posting.title[:80])
    if not posting.problem_statement.strip():
        raise BadInput("The problem statement is empty.", path="problemStatement", remedy="Say what agents should do.")
    if not 0 <= posting.max_participants < 2**256:
        raise BadInput(
            "The number of participants is negative or too large.", path="maxParticipants", remedy="0 means no limit."
        )
    if posting.expected_entries is not None and posting.expected_entries < 1:
        raise BadInput("Fewer than 1 entry is expected.", path="expectedEntries", remedy="Give 1 or more, or nothing.")
    require_text(posting.title, "title")
    require_text(posting.problem_statement, "problemStatement")
    require_text("".join(posting.skills), "skills")
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


async def _terms(desk: Desk, posting: Posting, config: EvalConfig | None, poster: Address | None) -> Terms:
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
    charged = _fee(desk, posting, token, quote)
    rate = await look(desk, "ChallengeFactory", desk.factory, "posterBondRate")
    return Terms(
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


def _fee(desk: Desk, posting: Posting, token: Token, quote: int | None) -> Fee:
    """The fee is counted in dollars: a token of unknown worth cannot pay it."""
    mode = desk.settings.fee_mode if posting.evaluator == "clara" else "platform"
    is_dollar = desk.is_dollar(token.address)
    if mode != "platform" and not is_dollar:
        raise BadInput(
            f"The evaluation fee is counted in dollars, and what {token.address} is worth is not known.",
            path="token",
            remedy='Offer the prize in the network\'s dollar token, or score yourself with evaluator "self".',
        )
    return fee(mode, parse_amount(posting.prize, token, is_dollar=is_dollar), token.decimals, quote)


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
    told: dict[str, Any] = {
        "title": posting.title,
        "problem_statement": posting.problem_statement,
        "skills": list(posting.skills),
        "posted_by": poster or "",
        "timestamp": now,
    }
    if posting.eval_config.strip():
        return build_metadata(**told, config_text=posting.eval_config)
    document = {
        "title": told["title"],
        "problemStatement": told["problem_statement"],
        "skills": told["skills"],
        "postedBy": told["posted_by"],
        "timestamp": now,
    }
    return (
        "data:application/json;base64," + base64.b64encode(json.dumps(document, ensure_ascii=False).encode()).decode()
    )


async def _refuse_twice(desk: Desk, posting: Posting, terms: Terms, poster: Address | None) -> None:
    if poster is None or posting.allow_duplicate:
        return
    newest = (await addresses(desk))[-NEWEST:]
    posters = await desk.node.views([view("Challenge", address, "poster") for address in newest])
    own = [
        address for address, data in zip(newest, posters, strict=True) if answer("Challenge", "poster", data) == poster
    ]
    twin = next((found for found in await challenges_at(desk, own[-OWN:]) if _is_same(found, terms, poster)), None)
    if twin is not None:
        raise CannotAct(
            f"You already posted this: {twin.address} is open with the same config and prize.",
            remedy="Look at it with challenge_detail; say allowDuplicate to post a second one.",
        )


def _is_same(found: Challenge, terms: Terms, poster: Address) -> bool:
    return (
        found.status is ChallengeStatus.OPEN
        and (found.poster, found.evaluator, found.token.address) == (poster, terms.evaluator, terms.token.address)
        and (found.prize_pool, found.payout_bps) == (terms.fee.escrow, terms.payout_bps)
        and found.eval_config_hash == terms.config_hash
        and abs(found.deadline - terms.deadline) < 3600
    )


async def _transactions(desk: Desk, posting: Posting, terms: Terms, poster: Address | None) -> tuple[Transaction, ...]:
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


def _fee_payment(terms: Terms) -> Transaction:
    return transaction(
        "TestUSDC", terms.token.address, "transfer", terms.evaluator, terms.fee.amount,
        description=f"Pay the evaluation fee of {show_amount(terms.fee.amount, terms.token)}",
    )  # fmt: skip


async def _check_money(desk: Desk, terms: Terms, poster: Address) -> int:
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


def _params(posting: Posting, terms: Terms) -> tuple[Any, ...]:
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
