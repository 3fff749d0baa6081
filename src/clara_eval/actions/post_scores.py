"""Plan the poster's own scores: who won, read from a file or named by hand, in the contract's arithmetic."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO

from clara_eval.actions.amounts import show_amount, show_moment
from clara_eval.actions.challenges import challenge_at, submission_of
from clara_eval.actions.plan import Action, Plan, sender_of, transaction, with_gas
from clara_eval.app import Caller
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.chain.winners import Winners, check_scorable, choose_winners, post_scores
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, CannotAct, NotYet
from clara_eval.core.submission import Placed

HIGHEST_SCORE = 10_000
_NAMES = ("address", "account", "submitter", "item", "id")
_REMEDY = "Give rows with address and score, a result of `clara-eval judge`, or ADDRESS=SCORE for each winner."


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A submitter, and the score if one was given (0 to 10000)."""

    account: Address
    score: int | None = None


def read_places(text: str) -> tuple[NamedPlace, ...]:
    """Read places, best first: CSV with a header, JSON with `rankings` or a list, or ADDRESS=SCORE on each line."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        header = text.lstrip().partition("\n")[0].lower()
        if any(name in header.split(",") for name in _NAMES):
            return _places(list(csv.DictReader(StringIO(text.lstrip()))))
        return tuple(named_place(line) for line in text.splitlines() if line.strip())
    rows = document.get("rankings", document.get("ranking")) if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise BadInput("The scores name no places.", path="scores", remedy=_REMEDY)
    return _places(rows)


def named_place(text: str) -> NamedPlace:
    """Read `0x…` or `0x…=9000`."""
    account, _, score = text.strip().partition("=")
    return NamedPlace(to_address(account.strip(), what="winner"), _score(score.strip() or None, account))


def _places(rows: Sequence[object]) -> tuple[NamedPlace, ...]:
    found = []
    for row in rows:
        if isinstance(row, str):
            found.append(named_place(row))
            continue
        named = {str(key).strip().lower(): cell for key, cell in row.items()} if isinstance(row, dict) else {}
        account = next((named[name] for name in _NAMES if named.get(name)), None)
        if not isinstance(account, str):
            raise BadInput(f"{str(row)[:80]} names no address.", path="scores", remedy=_REMEDY)
        found.append(NamedPlace(to_address(account, what="winner"), _score(named.get("score"), account)))
    return tuple(found)


def _score(value: object, account: str) -> int | None:
    if value in (None, ""):
        return None
    try:
        score = round(float(str(value)))
    except (ValueError, OverflowError):
        score = -1
    if not 0 <= score <= HIGHEST_SCORE:
        told = f"The score {str(value)[:40]!r} of {account[:60]} is not 0 to {HIGHEST_SCORE}."
        raise BadInput(told, path="scores", remedy="Scale the scores.")
    return score


def own_scores(address: str, places: tuple[NamedPlace, ...], sender: str | None = None) -> Action:
    key = (address.strip().lower(), places)
    return Action.of("scores", key, lambda caller, _: plan_scores(caller, address, places, sender))


async def plan_scores(caller: Caller, address: str, places: Sequence[NamedPlace], sender: str | None = None) -> Plan:
    poster = sender_of(caller, sender)
    challenge = await challenge_at(caller, address)
    _check_may_post(challenge, poster)
    check_scorable(challenge)
    winners = await _winners(caller, challenge, places)
    shown = [f"{show_amount(one.prize_amount, challenge.token)} to {one.account}" for one in winners.entries]
    contract = caller.chain.challenges.contract(challenge.address)
    post = transaction(challenge.address, post_scores(winners, challenge.contract_version), "Post your scores")
    steps = [post]
    if challenge.status is ChallengeStatus.OPEN:
        close = transaction(challenge.address, contract.encode("advanceToScoring"), "Close the submissions")
        steps = [close, post]
    steps[0] = await with_gas(caller, poster, steps[0])
    theirs = f"The evaluator {challenge.evaluator} no longer decides: your scores are final."
    return Plan(
        action="challenge_post_scores",
        sender=poster,
        transactions=tuple(steps),
        question=f"Post these scores on {caller.settings.network_name}? It cannot be undone: {'; '.join(shown)}.",
        summary=f"Your scores of {challenge.address} pay {'; '.join(shown)}.",
        challenge=challenge.address,
        warnings=() if challenge.is_scored_by_poster else (theirs,),
        details={
            "winners": [
                {
                    "rank": rank,
                    "address": one.account,
                    "agentId": str(one.agent_id),
                    "score": one.score,
                    "prizeAmount": str(one.prize_amount),
                    "prize": show_amount(one.prize_amount, challenge.token),
                }
                for rank, one in enumerate(winners.entries, start=1)
            ]
        },
    )


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


async def _winners(caller: Caller, challenge: Challenge, places: Sequence[NamedPlace]) -> Winners:
    """The paid places: by score if all have one, else as they were named."""
    accounts = [one.account for one in places]
    if len(set(accounts)) != len(accounts):
        raise BadInput("A submitter is named twice.", path="scores", remedy="Name each once, best first.")
    if len(places) < challenge.winner_count:
        raise BadInput(
            f"{challenge.winner_count} places are paid, but {len(places)} submitters are named.",
            path="scores",
            remedy="Name at least as many as are paid, best first.",
        )
    are_scored = all(one.score is not None for one in places)
    ordered = sorted(places, key=lambda one: -(one.score or 0)) if are_scored else places
    submissions = []
    for one in ordered[: challenge.winner_count]:
        found = await submission_of(caller, challenge, one.account)
        if found is None:
            raise BadInput(f"{one.account} did not submit to {challenge.address}.", path="scores")
        submissions.append(found)
    steps = len(ordered)
    placed = [
        Placed(one.account, HIGHEST_SCORE * (steps - place) // steps if one.score is None else one.score)
        for place, one in enumerate(ordered)
    ]
    return choose_winners(replace(challenge, submissions=tuple(submissions)), placed)
