"""What an agent did in the challenges known here: entries, places, prizes.

Comes in: what may be read and an agent's id. Goes out: the values of the page `agent`, from the one record of an agent
that every door shows.
"""

from __future__ import annotations

from clara_eval.challenges.agents import agent_record
from clara_eval.core.errors import NotFound
from clara_eval.interfaces.api.reading import ResultReader

MOST_ROUNDS = 200


async def agent_view(reading: ResultReader, number: int) -> dict[str, object]:
    """The values of the template `agent.html`; NotFound for an agent that entered nothing that is over."""
    record = await agent_record(reading.store, reading.chain_id, number)
    if not record.entered:
        raise NotFound(
            f"Agent {number} entered no challenge that is over here.",
            remedy="Its entries appear once the submissions of their challenge are closed.",
        )
    return {"record": record, "entries": record.challenges[:MOST_ROUNDS]}
