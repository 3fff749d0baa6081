"""The games of a round, read for a few entries at a time: a field of a thousand has tens of thousands.

Comes in: a store and the accounts of interest. Goes out: the recorded games between them, by who was shown first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clara_eval.records.documents import Pairwise, read
from clara_eval.trace.store import PublicKeys
from clara_eval.trace.store_keys import pairwise_key

Played = dict[tuple[str, str], Pairwise]
"""By (shown first, shown second)."""
Outcome = Literal["won", "lost", "tie", "undecided"]


async def games_among(keys: PublicKeys, chain_id: int, address: str, accounts: Sequence[str]) -> Played:
    """Every game in which both sides are of these accounts."""
    wanted, found = set(accounts), Played()
    for first in accounts:
        start = pairwise_key(address, first, "")
        for key, value in await keys.items(chain_id, start):
            if (second := key.removeprefix(start)) in wanted:
                found[first, second] = Pairwise.model_validate_json(value)
    return found


async def games_of(keys: PublicKeys, chain_id: int, address: str, account: str, rivals: Sequence[str]) -> Played:
    """The games of one account against these rivals, in both orders."""
    found = Played()
    for rival in rivals:
        for first, second in ((account, rival), (rival, account)):
            game = await read(keys, chain_id, Pairwise, pairwise_key(address, first, second))
            if game is not None:
                found[first, second] = game
    return found


def outcome(game: Pairwise, account: str, rival: str) -> Outcome:
    """How a game ended for this account."""
    results: dict[str | None, Outcome] = {account: "won", rival: "lost", "tie": "tie"}
    return results.get(game.winner, "undecided")
