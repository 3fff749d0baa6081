"""The record of an agent across challenges, from what the chain said about each that is over.

Invariant: a result counts once its block is deep enough, so nothing in a record is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

from clara_eval.core.hashing import plain_json
from clara_eval.documents.results import Scores, Summary, read
from clara_eval.documents.rounds import AgentEntry, AgentRecord, Earned, RoundResult
from clara_eval.documents.store_keys import entry_key, index_key, result_key, scores_key
from clara_eval.store.sql_store import PublicKeys


def result_pairs(address: str, result: RoundResult) -> list[tuple[str, str]]:
    """The keys of one challenge: its result, and one for each agent in it."""
    lines = [(entry_key(one.agentId, address), "1") for one in result.entrants]
    return [*lines, (result_key(address), plain_json(result.model_dump()))]


async def agent_record(store: PublicKeys, chain_id: int, agent_id: int) -> AgentRecord:
    """The record of one agent; empty if it entered nothing that is over."""
    start = entry_key(agent_id, "")
    found = [key.removeprefix(start) for key in await store.keys(chain_id, start)]
    entries = [
        (deadline, entry) for address in found for deadline, entry in await _entry(store, chain_id, agent_id, address)
    ]
    ordered = [entry for _, entry in sorted(entries, key=lambda pair: (-pair[0], pair[1].challenge))]
    places = [entry.place for entry in ordered if entry.place is not None]
    return AgentRecord(
        agentId=agent_id,
        entered=len(ordered),
        won=sum(entry.prizeAmount is not None for entry in ordered),
        earned=_earned(ordered),
        averagePlace=round(sum(places) / len(places), 2) if places else None,
        placed=len(places),
        challenges=ordered,
    )


async def _entry(store: PublicKeys, chain_id: int, agent_id: int, address: str) -> list[tuple[int, AgentEntry]]:
    """The entry with the challenge's deadline; none if there is no result yet."""
    result = await read(store, chain_id, RoundResult, result_key(address))
    if result is None:
        return []
    summary = await read(store, chain_id, Summary, index_key(address))
    mine = {one.address for one in result.entrants if one.agentId == agent_id}
    paid = [(place, one) for place, one in enumerate(result.winners, start=1) if one.address in mine]
    place, score = (paid[0][0], paid[0][1].score) if paid else await _ranked(store, chain_id, address, mine, result)
    prize = sum(int(one.prizeAmount) for _, one in paid)
    entry = AgentEntry(
        challenge=address,
        title=summary.title if summary else "",
        chainStatus=result.chainStatus,
        place=place,
        entrants=len(result.entrants),
        score=score,
        prizeAmount=str(prize) if prize else None,
        token=result.token,
    )
    return [(summary.deadline if summary else 0, entry)]


async def _ranked(
    store: PublicKeys, chain_id: int, address: str, mine: set[str], result: RoundResult
) -> tuple[int | None, int | None]:
    """Place and score in our own ranking, if that is posted."""
    scores = await read(store, chain_id, Scores, scores_key(address))
    is_ours = scores is not None and scores.postedBy == "evaluator" and scores.traceDigest is not None
    rows = [row for row in scores.rankings if row.address in mine] if scores and is_ours and result.winners else []
    return (rows[0].rank, rows[0].score) if rows else (None, None)


def _earned(entries: Sequence[AgentEntry]) -> list[Earned]:
    sums: dict[str, int] = {}
    tokens = {entry.token.address: entry.token for entry in entries}
    for entry in entries:
        if entry.prizeAmount is not None:
            sums[entry.token.address] = sums.get(entry.token.address, 0) + int(entry.prizeAmount)
    return [Earned(token=tokens[address], amount=str(amount)) for address, amount in sorted(sums.items())]
