"""What an agent did in the rounds that this service knows: entries, places, prizes.

Comes in: what may be read and an agent's id. Goes out: the values of the page `agent`. Only posted rounds are told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clara_eval.api.board import is_paid, is_ranked
from clara_eval.api.reading import Reading
from clara_eval.challenge.model import Address
from clara_eval.errors import NotFound
from clara_eval.records.challenge_index import summaries
from clara_eval.records.documents import Ranked

MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Part:
    """One entry of an agent in one round."""

    found: dict[str, Any]
    row: Ranked
    ranked: int

    @property
    def is_paid(self) -> bool:
        return is_paid(self.row)

    @property
    def is_ranked(self) -> bool:
        return is_ranked(self.row)


async def agent_view(reading: Reading, number: int) -> dict[str, Any]:
    """The values of the template `agent.html`."""
    parts = await _parts(reading, number)
    if not parts:
        raise NotFound(
            f"Agent {number} has no entry in a posted round here.",
            remedy="Its entries appear when the scores of their round are posted.",
        )
    ranked = [part for part in parts if part.is_ranked]
    won: dict[str, tuple[int, Any]] = {}
    for part in parts:
        token = part.found["token"]
        so_far = won.get(token["address"], (0, token))[0]
        won[token["address"]] = (so_far + int(part.row.prizeAmount or 0), token)
    return {
        "number": number,
        "parts": parts[:MOST_ROUNDS],
        "paid": sum(part.is_paid for part in parts),
        "first": sum(part.row.rank == 1 for part in ranked),
        "won": [pair for pair in won.values() if pair[0]],
        "accounts": list(dict.fromkeys(part.row.address for part in parts)),
    }


async def _parts(reading: Reading, number: int) -> list[Part]:
    found = []
    board = await summaries(reading.store, reading.chain_id)
    for address, summary in sorted(board.items(), key=lambda pair: -pair[1]["deadline"]):
        scores = await reading.posted(Address(address))
        rows = scores.rankings if scores else []
        ranked = sum(is_ranked(row) for row in rows)
        found += [Part(summary, row, ranked) for row in rows if row.agentId == number]
    return found
