"""The values of the pages of one entry and of the comparisons of two."""

from __future__ import annotations

import asyncio

from clara_eval.actions.evidence import difference, exchanges, submitted_work
from clara_eval.actions.published import ResultReader
from clara_eval.config.eval_config.model import Feature
from clara_eval.core.address import Address
from clara_eval.core.errors import NotFound
from clara_eval.documents.rest import ChallengeDetail
from clara_eval.documents.results import Features, LeaderboardRow, Outcome, Pairwise, Played, Scores, Value
from clara_eval.interfaces.api.challenge_view import feature_names, weights_of
from clara_eval.interfaces.api.context import known_address

RIVALS = 24  # nearest rivals whose comparisons are shown
MOST_LINES = 1_500  # lines of a submission on its page; the download has all


Verdicts = list[tuple[Outcome, bool, Pairwise]]
"""How an entry fared, whether it was shown first, and the comparison."""


async def posted_scores(reader: ResultReader, address: Address, *, admin: bool) -> tuple[ChallengeDetail, Scores]:
    """The challenge and its ranking; NotPublic before the post."""
    found = await reader.detail(address, admin=admin)
    return found, found.leaderboard or await reader.leaderboard(address, admin=admin)


def row_of(scores: Scores, account: str, address: Address) -> LeaderboardRow:
    row = next((row for row in scores.rankings if row.address == account), None)
    if row is None:
        raise NotFound(f"{account} has no entry in {address}.", remedy="The leaderboard names every entry.")
    return row


async def entry_view(
    reader: ResultReader, address: Address, account: Address, against: str, *, admin: bool = False
) -> dict[str, object]:
    """One entry beside the rival at the pay line; its submission beside that of `against`, if somebody is named."""
    rival = known_address(against) if against else None
    found, scores = await posted_scores(reader, address, admin=admin)
    row = row_of(scores, account, address)
    ranked = scores.ranked
    others = [other for other in ranked if other.address != row.address] if row.is_ranked else []
    rivals = sorted(others, key=lambda one: (abs((one.rank or 0) - (row.rank or 0)), one.rank or 0))[:RIVALS]
    games = await reader.comparisons_of(address, scores, account, [rival.address for rival in rivals])
    across = [other for other in ranked if other.is_paid != row.is_paid] if row.is_ranked else []
    target = across[0 if row.is_paid else -1] if across else None  # the rival at the pay line
    facts = await reader.features_of(address, scores, [account, *([target.address] if target else [])])
    weights = weights_of(await reader.judging(address, scores))
    return {
        "found": found,
        "row": row,
        "ranked": len(ranked),
        "facts": facts.get(account),
        "feature_names": feature_names(weights, facts),
        "target": target,
        "gaps": gaps(account, target, facts, weights),
        "change": await reader.place_change(address, scores, account),
        "matches": matches(row, rivals, games),
        "flags": [flag for flag in scores.flags if flag.account == account],
        **await _work(reader, address, scores, row, rival or (target.address if target else None)),
    }


async def _work(
    reader: ResultReader, address: Address, scores: Scores, row: LeaderboardRow, rival: str | None
) -> dict[str, object]:
    """The submission, its tests, and the difference to a rival: the one at the pay line, or the one it is like."""
    work = (await submitted_work(reader, address, scores, [row.address])).get(row.address)
    like = work.like if work and not row.is_ranked else ""
    chosen = rival if rival != row.address else None
    found = await submitted_work(reader, address, scores, [one for one in (chosen or like,) if one])
    other, text = next(iter(found.values()), None), work.text if work else None
    told = other.text if other else None
    is_known = text is not None and told is not None
    return {
        "work": work,
        "lines": text.splitlines() if text else [],
        "most_lines": MOST_LINES,
        "is_private": reader.traces_public == "never",
        "posted_by": None if scores.traceDigest else scores.postedBy or "somebody else",
        "rival": next(iter(found), None) if is_known else None,
        "others": {call["name"]: call for call in other.calls} if other else {},
        "is_equal": text == told,
        "difference": await asyncio.to_thread(difference, told or "", text or "") if is_known else [],
    }


async def submission_text(reader: ResultReader, address: Address, account: Address) -> str:
    _, scores = await posted_scores(reader, address, admin=False)
    work = (await submitted_work(reader, address, scores, [account])).get(account)
    if work is None or work.text is None:
        raise NotFound(f"No text of {account} is public here.", remedy="The page of the entry says why.")
    return work.text


def matches(row: LeaderboardRow, rivals: list[LeaderboardRow], games: Played) -> list[tuple[LeaderboardRow, Verdicts]]:
    """The rivals that it met, with both verdicts about each."""
    found: dict[str, Verdicts] = {}
    for (first, second), game in games.items():
        is_first = first == row.address
        verdict = (game.outcome(shown_first=is_first), is_first, game)
        found.setdefault(second if is_first else first, []).append(verdict)
    return [(rival, found[rival.address]) for rival in rivals if rival.address in found]


def gaps(
    account: str, target: LeaderboardRow | None, facts: dict[str, Features], weights: list[tuple[Feature, float]]
) -> list[dict[str, object]]:
    """Fact by fact against another entry, the heaviest first, and which of the two is ahead."""
    if target is None or account not in facts or target.address not in facts:
        return []
    own, other = facts[account].features, facts[target.address].features
    pairs = [(feature, own.get(feature.name), other.get(feature.name), share) for feature, share in weights]
    return [
        {"name": feature.name, "own": one, "other": two, "share": share, "ahead": is_ahead(feature, one, two)}
        for feature, one, two, share in pairs
    ]


def is_ahead(feature: Feature, own: Value, other: Value) -> bool | None:
    """Whether the first value is better in the poster's direction; None if that cannot be said."""
    if own == other or own is None or other is None or feature.better is None:
        return None
    if feature.type == "enum":
        order = {value: place for place, value in enumerate(feature.values)}
        first, second = float(order.get(str(own), -1)), float(order.get(str(other), -1))
    elif isinstance(own, str) or isinstance(other, str):
        return None
    else:
        first, second = float(own), float(other)
    return first > second if feature.better == "higher" else first < second


async def game_view(
    reader: ResultReader, address: Address, one: Address, other: Address, *, admin: bool = False
) -> dict[str, object]:
    found, scores = await posted_scores(reader, address, admin=admin)
    left, right = row_of(scores, one, address), row_of(scores, other, address)
    games = await reader.comparisons_of(address, scores, one, [other])
    if not games:
        raise NotFound(
            f"No comparison of {one} with {other} is recorded here.", remedy="Not every pair meets in a large field."
        )
    facts = await reader.features_of(address, scores, [one, other])
    weights = weights_of(await reader.judging(address, scores))
    has_model = any(vote.judge != "rules" for game in games.values() for vote in game.votes)
    return {
        "found": found,
        "left": left,
        "right": right,
        "games": games,
        "pair": gaps(one, right, facts, weights),
        "exchanges": await exchanges(reader, address, scores, one, other) if has_model else [],
    }
