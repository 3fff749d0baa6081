"""Plan the payment of prizes: the poster's own scores, a claim of a prize or share, finalization."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO

from clara_eval.actions.amounts import show_amount, show_moment, show_wait
from clara_eval.actions.challenges import challenge_at, posted_winners, submission_of
from clara_eval.actions.perform import Action, Plan, Transaction, sender_of, transaction, with_gas
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus, Winners, check_scorable, choose_winners, post_scores
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, CannotAct, NotYet
from clara_eval.core.model import FINALIZATION_SECONDS, Placed

HIGHEST_SCORE = 10_000
_PRIZE = ("prize", "claimPrize", "finalize")
_SHARE = ("expired_refund", "claimExpiredRefund", "expire")
"""The kind of a claim, its contract call, and the call that goes before it if the challenge is due."""
_ADDRESS_COLUMNS = ("address", "account", "submitter", "item", "id")
_REMEDY = "Give rows with address and score, a result of `clara-eval judge`, or ADDRESS=SCORE for each winner."


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A submitter and a score from 0 to 10000, if one was given."""

    account: Address
    score: int | None = None


def read_places(text: str) -> tuple[NamedPlace, ...]:
    """Parse places, best first: CSV with a header, a JSON list or `rankings`, or ADDRESS=SCORE lines."""
    rows: object
    try:
        document = json.loads(text)
        rows = document.get("rankings", document.get("ranking")) if isinstance(document, dict) else document
    except (ValueError, RecursionError):
        header, lines = text.lstrip().partition("\n")[0].lower().split(","), text.splitlines()
        is_table = any(name in header for name in _ADDRESS_COLUMNS)
        rows = list(csv.DictReader(StringIO(text.lstrip()))) if is_table else [line for line in lines if line.strip()]
    if not isinstance(rows, list):
        raise BadInput("The scores name no places.", path="scores", remedy=_REMEDY)
    return tuple(map(named_place, rows))


def named_place(row: object) -> NamedPlace:
    """Parse `0x…`, `0x…=9000`, or a row with an address and an optional score."""
    named = {str(key).strip().lower(): cell for key, cell in row.items()} if isinstance(row, dict) else {}
    account, score = next((named[name] for name in _ADDRESS_COLUMNS if named.get(name)), None), named.get("score")
    if isinstance(row, str):
        account, _, score = row.strip().partition("=")
    if not isinstance(account, str):
        raise BadInput(f"{str(row)[:80]} names no address.", path="scores", remedy=_REMEDY)
    return NamedPlace(to_address(account.strip(), what="winner"), _parse_score(score, account))


def _parse_score(value: object, account: str) -> int | None:
    if value is None or not str(value).strip():
        return None
    try:
        score = round(float(str(value)))
    except (ValueError, OverflowError):
        score = -1
    if not 0 <= score <= HIGHEST_SCORE:
        message = f"The score {str(value)[:40]!r} of {account[:60]} is not 0 to {HIGHEST_SCORE}."
        raise BadInput(message, path="scores", remedy="Scale the scores.")
    return score


def own_scores(address: str, places: tuple[NamedPlace, ...], sender: str | None = None) -> Action:
    key = (address.strip().lower(), places)
    return Action.of("scores", key, lambda caller, _: plan_scores(caller, address, places, sender))


async def plan_scores(caller: Caller, address: str, places: Sequence[NamedPlace], sender: str | None = None) -> Plan:
    poster = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    _check_may_post(challenge, poster)
    check_scorable(challenge)
    winners = await _select_winners(caller, challenge, places)
    paid = posted_winners(winners.entries, challenge.token)
    shown = "; ".join(f"{one.prize} to {one.address}" for one in paid)
    steps = [transaction(challenge.address, post_scores(winners, challenge.contract_version), "Post your scores")]
    if challenge.status is ChallengeStatus.OPEN:
        steps.insert(0, _build_step(caller, challenge, "advanceToScoring", "Close the submissions"))
    overruled = f"The evaluator {challenge.evaluator} no longer decides: your scores are final."
    return Plan(
        action="challenge_post_scores",
        sender=poster,
        transactions=await with_gas(caller, poster, *steps),
        question=f"Post these scores on {caller.settings.network_name}? It cannot be undone: {shown}.",
        summary=f"Your scores of {challenge.address} pay {shown}.",
        challenge=challenge.address,
        warnings=() if challenge.is_scored_by_poster else (overruled,),
        details={"winners": [one.model_dump() for one in paid]},
    )


def _build_step(caller: Caller, challenge: Challenge, name: str, description: str) -> Transaction:
    contract = caller.chain.challenges.contract(challenge.address)
    return transaction(challenge.address, contract.encode(name), description)


def _check_may_post(challenge: Challenge, poster: Address | None) -> None:
    at, now = challenge.address, challenge.block.timestamp
    if poster is not None and poster != challenge.poster:
        raise CannotAct(
            f"{poster} is not the poster of {at}: {challenge.poster} is.", remedy="Only the poster posts own scores."
        )
    if challenge.score_posted_at:
        moment = show_moment(challenge.score_posted_at)
        raise CannotAct(f"Scores of {at} were posted at {moment}; that cannot be changed.", see="claim", about=at)
    if challenge.status not in {ChallengeStatus.OPEN, ChallengeStatus.SCORING}:
        raise CannotAct(f"The challenge {at} is {challenge.status.name.lower()}: no scores can be posted.")
    if challenge.status is ChallengeStatus.OPEN and now <= challenge.deadline:
        raise NotYet(
            f"Submissions to {at} are open until {show_moment(challenge.deadline)}.",
            remedy="Post your scores after that.",
        )


async def _select_winners(caller: Caller, challenge: Challenge, places: Sequence[NamedPlace]) -> Winners:
    """Return the paid places, ordered by score if all have one, else as given."""
    accounts = [one.account for one in places]
    if len(set(accounts)) != len(accounts):
        raise BadInput("A submitter is named twice.", path="scores", remedy="Name each once, best first.")
    if len(places) < challenge.winner_count:
        raise BadInput(
            f"{challenge.winner_count} places are paid, but {len(places)} submitters are named.",
            path="scores",
            remedy="Name at least as many as are paid, best first.",
        )
    scores = [one.score for one in places if one.score is not None]
    if len(scores) < len(places) and scores != sorted(scores, reverse=True):
        message = f"{len(scores)} of {len(places)} submitters have a score, and the best are not named first."
        raise BadInput(message, path="scores", remedy="Give each a score, or name the best first.")
    ordered = sorted(places, key=lambda one: -(one.score or 0)) if len(scores) == len(places) else places
    submissions = []
    for one in ordered[: challenge.winner_count]:
        found = await submission_of(caller, challenge, one.account)
        if found is None:
            raise BadInput(f"{one.account} did not submit to {challenge.address}.", path="scores")
        submissions.append(found)
    count = len(ordered)
    placed = [
        Placed(one.account, HIGHEST_SCORE * (count - place) // count if one.score is None else one.score)
        for place, one in enumerate(ordered)
    ]
    return choose_winners(replace(challenge, submissions=tuple(submissions)), placed)


def claim(address: str, sender: str | None = None) -> Action:
    return Action.of("claim", address.strip().lower(), lambda caller, _: plan_claim(caller, address, sender))


async def plan_claim(caller: Caller, address: str, sender: str | None = None) -> Plan:
    claimant = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    if claimant is None:
        raise BadInput("No sender is given.", path="sender", remedy="Give the address that claims.")
    is_prize = _pays_prizes(challenge)
    amount, rank = await (_find_prize if is_prize else _find_share)(caller, challenge, claimant)
    is_due = challenge.status is ChallengeStatus.SCORING
    if is_prize and is_due:
        _check_finalization_wait(challenge, "Claim")
    if (await caller.chain.results.has_claimed(challenge.address, [claimant]))[claimant]:
        raise CannotAct(f"{claimant} has already been paid by {challenge.address}.", remedy="Nothing is left to claim.")
    shown = show_amount(amount, challenge.token)
    kind, call, first = _PRIZE if is_prize else _SHARE
    steps = [_build_step(caller, challenge, call, f"Claim {shown}")]
    if is_due:
        steps.insert(0, _build_step(caller, challenge, first, f"{first.capitalize()} the challenge, which is due"))
    return Plan(
        action="challenge_claim",
        sender=claimant,
        transactions=await with_gas(caller, claimant, *steps),
        question=f"Claim {shown} from {challenge.address} on {caller.settings.network_name}? It costs gas.",
        summary=f"{shown} go to {claimant} as {'prize' if is_prize else 'share of the expired challenge'}.",
        challenge=challenge.address,
        details={"kind": kind, "amount": str(amount), "amountShown": shown, "rank": rank},
    )


def _pays_prizes(challenge: Challenge) -> bool:
    """Return whether winners are paid, not equal shares; raise if nothing can be claimed now."""
    now, at = challenge.block.timestamp, challenge.address
    match challenge.status:
        case ChallengeStatus.CANCELLED:
            message = f"The challenge {at} was cancelled: its prize went back to the poster."
            raise CannotAct(message, remedy="There is nothing to claim.")
        case ChallengeStatus.OPEN:
            until = "is open until" if now <= challenge.deadline else "has waited for scoring since"
            raise NotYet(
                f"The challenge {at} {until} {show_moment(challenge.deadline)}.",
                remedy="Prizes can be claimed 12 hours after the scores are posted.",
            )
        case ChallengeStatus.SCORING if not challenge.score_posted_at and now <= challenge.scoring_deadline:
            until = show_moment(challenge.scoring_deadline)
            remedy = f"If none come by {until}, every submitter can claim an equal share."
            raise NotYet(f"No scores are posted for {at} yet.", remedy=remedy)
    return challenge.status is not ChallengeStatus.EXPIRED and challenge.score_posted_at > 0


def _check_finalization_wait(challenge: Challenge, verb: str) -> None:
    free_at, now = challenge.score_posted_at + FINALIZATION_SECONDS, challenge.block.timestamp
    if now < free_at:
        raise NotYet(
            f"The scores were posted at {show_moment(challenge.score_posted_at)}; prizes wait 12 hours.",
            remedy=f"{verb} at {show_moment(free_at)}, in {show_wait(free_at - now)}.",
        )


async def _find_prize(caller: Caller, challenge: Challenge, claimant: Address) -> tuple[int, int | None]:
    """Return the amount and the rank."""
    winners = await caller.chain.results.winners_on_chain(challenge.address, challenge.winner_count)
    for rank, winner in enumerate(winners, start=1):
        if winner.account == claimant and winner.prize_amount > 0:
            return winner.prize_amount, rank
    raise CannotAct(
        f"{claimant} has no prize in {challenge.address}.", remedy="Claim with the wallet that won (NotAWinner)."
    )


async def _find_share(caller: Caller, challenge: Challenge, claimant: Address) -> tuple[int, int | None]:
    if await submission_of(caller, challenge, claimant) is None:
        raise CannotAct(
            f"{claimant} has not submitted to {challenge.address}.",
            remedy="Claim with the wallet that submitted (NotASubmitter).",
        )
    return (challenge.prize_pool + challenge.poster_bond) // challenge.submission_count, None


def finalize(address: str, sender: str | None = None) -> Action:
    return Action.of("finalize", address.strip().lower(), lambda caller, _: plan_finalize(caller, address, sender))


async def plan_finalize(caller: Caller, address: str, sender: str | None = None) -> Plan:
    account = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    name, at = challenge.status.name.capitalize(), challenge.address
    if challenge.status is ChallengeStatus.FINALIZED:
        raise CannotAct(f"The challenge {at} is finalized already.", see="claim", about=at)
    if challenge.status in {ChallengeStatus.CANCELLED, ChallengeStatus.EXPIRED}:
        raise CannotAct(f"The challenge {at} is {name}: there is nothing to finalize.")
    if challenge.status is ChallengeStatus.OPEN or not challenge.score_posted_at:
        raise NotYet(f"No scores are posted for {at} yet.", remedy="Finalize 12 hours after they are.")
    _check_finalization_wait(challenge, "Finalize")
    step = _build_step(caller, challenge, "finalize", "Finalize the challenge, which is due")
    return Plan(
        action="challenge_finalize",
        sender=account,
        transactions=await with_gas(caller, account, step),
        question=f"Finalize {at} on {caller.settings.network_name}? It costs gas.",
        summary=f"The winners of {at} can claim, and the poster gets the bond back.",
        challenge=at,
    )
