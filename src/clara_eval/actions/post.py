"""Plan a post: check terms, harness, funds and duplicates, and build the transactions."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from clara_eval.actions import amounts, perform
from clara_eval.actions.challenges import addresses, challenges_at, known_evaluator
from clara_eval.actions.harness import check_harness
from clara_eval.actions.quote import USUAL_ENTRIES, missing_model_of, quote_posting
from clara_eval.app import Caller, open_machine
from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.model import Block, ChallengeStatus, PrizeToken, worth_micro_usd
from clara_eval.challenges.fees import Fee, fee
from clara_eval.config.eval_config import EvalConfig, build_metadata, collect_problems, config_hash, parse_eval_config
from clara_eval.config.settings import listed
from clara_eval.core.address import ZERO_ADDRESS, Address, to_address
from clara_eval.core.errors import BadInput, CannotAct, ConfigError, NotFound
from clara_eval.core.model import MICRO
from clara_eval.harness import Harness, MissingEngine

NO_HASH = "0x" + "00" * 32
WETH = "0x4200000000000000000000000000000000000006"  # at this address on every chain of the OP stack
FREE_OPTION = (
    "A hidden harness is the poster's free option: you can withhold it after you have seen the submissions, and then "
    "{instead}. Agents know that, and may stay away; a harness that is withheld is a flag that everybody sees."
)
_INSTEAD = {
    "public": "the public harness counts, or none where the config has none",
    "fail": "nobody is ranked and expire() splits the prize",
}
NEWEST_SEARCHED = 200  # newest challenges in which duplicates are searched, so that a repeated request pays once
OWN_COMPARED = 20  # newest of the poster's own among those


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """A challenge as the poster describes it."""

    title: str
    problem_statement: str
    prize: str
    deadline: str
    eval_config: str = ""  # the config's JSON text; its exact bytes are what the chain commits to
    evaluator: Literal["clara", "self"] = "clara"
    scoring_window: str = "3 days"
    payout: str | tuple[int, ...] = ""
    """Empty: top1, top3 or top5 by the number of winners, else equal shares; without a number top3."""
    winner_count: int | None = None
    token: str | None = None
    skills: tuple[str, ...] = ()
    max_participants: int = 0
    expected_entries: int | None = None
    private_set_hash: str = NO_HASH
    allow_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class ChallengeTerms:
    token: PrizeToken
    fee: Fee
    bond: int
    quote_micro_usd: int | None
    on_chain: dict[str, Any]  # arguments of `createChallenge`, by the contract's names

    @property
    def escrow(self) -> int:
        return self.fee.escrow + self.bond

    @property
    def total(self) -> int:
        return self.fee.total + self.bond


def _details(posting: Posting, terms: ChallengeTerms) -> dict[str, object]:
    quote, chain = terms.quote_micro_usd, terms.on_chain
    repeated = ("deadline", "scoringDeadline", "winnerCount", "payoutBps", "evalConfigHash", "challengeURI")
    return {
        "evaluator": chain["evaluator"],
        "evaluatorKind": posting.evaluator,
        "token": {"address": terms.token.address, "symbol": terms.token.symbol, "decimals": terms.token.decimals},
        "prizePool": str(terms.fee.escrow),
        "posterBond": str(terms.bond),
        "fee": str(terms.fee.amount),
        "feeMode": terms.fee.mode,
        "total": str(terms.total),
        "quoteUsd": None if quote is None else quote / 1e6,
        **{name: chain[name] for name in repeated},
    }


def _warnings(caller: Caller, posting: Posting, config: EvalConfig | None, terms: ChallengeTerms) -> list[str]:
    found = [str(problem) for problem in collect_problems(posting.eval_config)] if config else []
    places, entries = terms.on_chain["winnerCount"], posting.expected_entries
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
    if posting.evaluator != "clara":
        return found
    settings = caller.settings
    worth = worth_micro_usd(terms.token, terms.fee.escrow, settings.network)
    if settings.min_prize_usd and (worth is None or worth < settings.min_prize_usd * MICRO):
        found.append(f"The service evaluates prizes from ${settings.min_prize_usd:g}; this one would be deferred.")
    if settings.review_above_usd is not None and (worth is None or worth >= settings.review_above_usd * MICRO):
        found.append(f"Prizes of ${settings.review_above_usd:g} and more wait for a person's approval before posting.")
    cap, quote = settings.budget_per_challenge_usd, terms.quote_micro_usd
    if quote is None:
        found.append("Cost unknown: the service does not publish its models or prices.")
    elif cap is not None and quote / 1e6 > cap:
        found.append(f"The evaluation is quoted at ${quote / 1e6:.2f}, above the service's cap of ${cap:g}.")
    return found


async def check_posted_harness(caller: Caller, posting: Posting, config: EvalConfig | None) -> tuple[str, ...]:
    spec = config.harness if config else None
    is_committed = posting.private_set_hash.lower() != NO_HASH
    if spec is None:
        return ()
    if spec.hidden and not is_committed:
        raise BadInput(
            "The harness is hidden, and its hash is not given.",
            path="privateSetHash",
            remedy="Give the hash that `clara-eval harness hash H --out FILE` prints, and keep FILE.",
        )
    if is_committed and not spec.hidden:
        raise BadInput(
            "A private set hash is given, but the config has no hidden harness.",
            path="privateSetHash",
            remedy='Say "hidden": true in the harness of the config, or leave the hash out.',
        )
    option = (FREE_OPTION.format(instead=_INSTEAD[spec.if_not_revealed]),) if spec.hidden else ()
    if spec.source is None or spec.reference is None:
        return option
    if not caller.is_local:
        note = "The harness was not run on its reference: only your own machine does that (clara-eval harness check)."
        return (*option, note)
    harness = Harness(spec.language, spec.source)
    try:
        with closing(open_machine(caller.settings)) as machine:
            found = await asyncio.to_thread(check_harness, machine, harness, spec.reference)
    except MissingEngine as missing:
        return (*option, f"The harness was not run on its reference. {missing}")
    if found.problems:
        remedy = "Mend the harness or the reference, then post."
        raise BadInput(" ".join(found.problems), path="$.harness.reference", remedy=remedy)
    return (*option, *found.warnings)


def post(posting: Posting, sender: str | None = None) -> perform.Action:
    return perform.Action.of("post", posting, lambda caller, _: plan_post(caller, posting, sender))


async def plan_post(caller: Caller, posting: Posting, sender: str | None = None) -> perform.Plan:
    poster = perform.sender_of(caller, sender)
    _check_text(posting)
    is_for_clara = posting.evaluator == "clara"
    config = parse_eval_config(posting.eval_config) if posting.eval_config.strip() else None
    if config is None and is_for_clara:
        raise BadInput(
            "An evaluation by Clara needs an eval config with features and criteria.",
            path="evalConfigJSON",
            remedy='Give {"version": 1, "features": […], "criteria": "…"}, or evaluator "self" to score yourself.',
        )
    harness_warnings = await check_posted_harness(caller, posting, config)
    terms = await _terms(caller, posting, config, poster)
    await _refuse_duplicate(caller, posting, terms, poster)
    transactions = await _build_transactions(caller, terms, poster)
    lacking = await missing_model_of(caller.records, caller.settings, config) if config and is_for_clara else []
    total, prize, bond, charged = (
        amounts.show_amount(units, terms.token)
        for units in (terms.total, terms.fee.escrow, terms.bond, terms.fee.amount)
    )
    winners = amounts.show_count(terms.on_chain["winnerCount"], "winner")
    judge = f"Clara evaluates. {terms.fee.shown}" if is_for_clara else "The poster scores alone."
    quote = f" Quoted evaluation cost: ${terms.quote_micro_usd / 1e6:.4f}." if terms.quote_micro_usd else ""
    return perform.Plan(
        action="challenge_post",
        sender=poster,
        transactions=transactions,
        question=f"Post this challenge on {caller.settings.network_name}? {total} leave the wallet: prize {prize}, "
        f"bond {bond} (returned when it is finalized), fee {charged}. {winners}, deadline {posting.deadline[:40]}, "
        f"evaluator {posting.evaluator}.",
        summary=f"Prize {prize} for {winners}, bond {bond}, total {total}. {judge}{quote} "
        "The contract pays every place regardless of its quality: a test that all must pass only puts the others last.",
        spends=perform.Spending(terms.token, terms.total),
        warnings=(*lacking, *harness_warnings, *_warnings(caller, posting, config, terms)),
        details=_details(posting, terms),
    )


def _check_text(posting: Posting) -> None:
    if not posting.title.strip() or len(posting.title) > 200:
        raise BadInput("The title is empty or longer than 200 characters.", path="title")
    if not posting.problem_statement.strip():
        raise BadInput("The problem statement is empty.", path="problemStatement", remedy="Say what agents should do.")
    if not 0 <= posting.max_participants < 2**256:
        raise BadInput("This number of participants cannot be.", path="maxParticipants", remedy="0 means no limit.")
    if posting.expected_entries is not None and posting.expected_entries < 1:
        raise BadInput("Fewer than 1 entry is expected.", path="expectedEntries", remedy="Give 1 or more, or nothing.")
    perform.require_text(posting.title, "title")
    perform.require_text(posting.problem_statement, "problemStatement")
    perform.require_text("".join(posting.skills), "skills")
    digits = posting.private_set_hash.removeprefix("0x")
    if len(digits) != 64 or not set(digits.lower()) <= set("0123456789abcdef"):
        raise BadInput("The private set hash is not 0x and 64 hex digits.", path="privateSetHash")


async def _terms(caller: Caller, posting: Posting, config: EvalConfig | None, poster: Address | None) -> ChallengeTerms:
    head = await caller.chain.blocks.head()
    token, now = await _find_token(caller, posting, head), head.timestamp
    deadline = amounts.parse_deadline(posting.deadline, now)
    window = amounts.parse_span(posting.scoring_window)
    if not window:
        raise BadInput(
            f"{posting.scoring_window[:40]!r} is not a span of time.", path="scoringWindow", remedy='Say "3 days".'
        )
    preset = f"top{posting.winner_count or 3}"
    shares = amounts.parse_payout(
        posting.payout or (preset if preset in amounts.SPLITS else "equal"), posting.winner_count
    )
    cap = posting.max_participants
    if cap and cap < max(2, len(shares)):
        raise BadInput(
            f"At most {cap} participants cannot fill {len(shares)} winning places: no result could be posted.",
            path="maxParticipants",
            remedy="Allow more participants (at least 2), or pay fewer winners.",
        )
    evaluator = await known_evaluator(caller) if posting.evaluator == "clara" else ZERO_ADDRESS
    if evaluator is None:
        raise ConfigError(
            "Clara's evaluator address is not known here.",
            remedy='Set CLARA_API_URL to the service or CLARA_EVALUATOR_ADDRESS, or post with evaluator "self".',
        )
    quote = quote_posting(caller.settings, config, posting.expected_entries or USUAL_ENTRIES) if config else 0
    charged = _compute_fee(caller, posting, token, quote)
    rate = await caller.chain.challenges.factory(caller.factory).one(head, "posterBondRate")
    uri = build_metadata(
        title=posting.title,
        problem_statement=posting.problem_statement,
        skills=posting.skills,
        config_text=posting.eval_config if posting.eval_config.strip() else None,
        posted_by=poster or "",
        timestamp=now,
    )
    on_chain = {
        "token": token.address,
        "evaluator": evaluator,
        "prizePool": charged.escrow,
        "deadline": deadline,
        "scoringDeadline": deadline + window,
        "challengeURI": uri,
        "evalConfigHash": config_hash(posting.eval_config.encode()) if config else NO_HASH,
        "privateSetHash": posting.private_set_hash,
        "winnerCount": len(shares),
        "payoutBps": list(shares),
        "maxParticipants": posting.max_participants,
        "skillTags": posting.skills,
    }
    return ChallengeTerms(token, charged, charged.escrow * rate // 10_000, quote, on_chain)


def _compute_fee(caller: Caller, posting: Posting, token: PrizeToken, quote: int | None) -> Fee:
    """Compute the fee; BadInput if it is due in a token of unknown worth."""
    mode = caller.settings.fee_mode if posting.evaluator == "clara" else "platform"
    is_dollar = caller.is_dollar(token.address)
    if mode != "platform" and not is_dollar:
        raise BadInput(
            f"The evaluation fee is counted in dollars, and what {token.address} is worth is not known.",
            path="token",
            remedy='Offer the prize in the network\'s dollar token, or score yourself with evaluator "self".',
        )
    return fee(mode, amounts.parse_amount(posting.prize, token, is_dollar=is_dollar), token.decimals, quote)


async def _find_token(caller: Caller, posting: Posting, head: Block) -> PrizeToken:
    """Find the token by address, or by symbol: the dollar, Base's WETH or one of CLARA_WALLET_TOKENS."""
    wanted, network = posting.token or caller.settings.network.usdc, caller.settings.network_name
    if wanted is None:
        raise BadInput(
            f"No prize token is named, and {network} has no fixed dollar token.",
            path="token",
            remedy="Give the token's address, or set CLARA_USDC.",
        )
    if wanted.lower().startswith("0x"):
        address = to_address(wanted, what="token")
        found = await caller.chain.challenges.token_at(address, head)
        if found is None:
            remedy = "Give the address of an ERC-20 token on this network."
            raise NotFound(f"There is no token at {address} on {network}.", remedy=remedy)
        return found
    for place in filter(None, (caller.settings.network.usdc, WETH, *listed(caller.settings.wallet_tokens))):
        found = await caller.chain.challenges.token_at(to_address(place), head)
        if found is not None and found.symbol.lower() == wanted.strip().lower():
            return found
    raise BadInput(
        f"Which token {wanted[:20]!r} is on {network} is not known here.",
        path="token",
        remedy="Give the token's address, or list it in CLARA_WALLET_TOKENS.",
    )


async def _refuse_duplicate(caller: Caller, posting: Posting, terms: ChallengeTerms, poster: Address | None) -> None:
    if poster is None or posting.allow_duplicate:
        return
    newest = (await addresses(caller))[-NEWEST_SEARCHED:]
    posters = await caller.chain.challenges.posters_of(newest)
    own = [address for address, found in zip(newest, posters, strict=True) if found == poster]
    ours = terms.on_chain
    for found in await challenges_at(caller, own[-OWN_COMPARED:]):
        if (
            found.status is ChallengeStatus.OPEN
            and (found.poster, found.evaluator, found.token.address) == (poster, ours["evaluator"], ours["token"])
            and (found.prize_pool, list(found.payout_bps)) == (ours["prizePool"], ours["payoutBps"])
            and found.eval_config_hash == ours["evalConfigHash"]
            and abs(found.deadline - ours["deadline"]) < 3600
        ):
            message = f"You already posted this: {found.address} is open with the same config and prize."
            raise CannotAct(message, see="duplicate", about=found.address)


async def _build_transactions(
    caller: Caller, terms: ChallengeTerms, poster: Address | None
) -> tuple[perform.Transaction, ...]:
    escrow = amounts.show_amount(terms.escrow, terms.token)
    allow = abi("TestUSDC").function("approve").call(caller.factory, terms.escrow)
    approve = perform.transaction(terms.token.address, allow, f"Allow the challenge factory to take {escrow}")
    data = caller.chain.challenges.factory(caller.factory).encode("createChallenge", terms.on_chain)
    create = perform.transaction(caller.factory, data, f"Create the challenge and escrow {escrow}")
    paid = abi("TestUSDC").function("transfer").call(terms.on_chain["evaluator"], terms.fee.amount)
    charged = f"Pay the evaluation fee of {amounts.show_amount(terms.fee.amount, terms.token)}"
    pay = [perform.transaction(terms.token.address, paid, charged)] if terms.fee.amount else []
    if poster is None:
        return (approve, create, *pay)
    token, head = caller.chain.challenges.token(terms.token.address), await caller.chain.blocks.head()
    balance = await token.one(head, "balanceOf", poster)
    if balance < terms.total:
        raise CannotAct(
            f"The wallet {poster} has {amounts.show_amount(balance, terms.token)}, but prize, bond and fee need "
            f"{amounts.show_amount(terms.total, terms.token)}.",
            remedy=f"Fund it on {caller.settings.network_name}, or offer a smaller prize.",
        )
    is_allowed = await token.one(head, "allowance", poster, caller.factory) >= terms.escrow
    return await perform.with_gas(caller, poster, *([create] if is_allowed else [approve, create]), *pay)
