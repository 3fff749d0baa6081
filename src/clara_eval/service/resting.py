"""Open challenges rest, and posted ones: nothing can be due for them before their deadline, or before they can be
finalized, so no tick looks at them for nothing.

In: the newest block and what the nodes' events say since the last tick. Out: the challenges to leave alone, with their
status. Must hold: a challenge is left alone only while it is open, or its post is recorded and deeper than any reorg,
was looked at in full, and said nothing since (no submission, no cancellation). Whoever stirred is awake until a look at
it succeeds. Everybody is asked once a day all the same for its status and the number of its submissions, and where the
events cannot be read, everybody is looked at. One request for all of them takes the place of three for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from clara_eval.app import App
from clara_eval.chain.model import Block, Challenge, ChallengeStatus, Checkpoint
from clara_eval.core.address import Address
from clara_eval.core.errors import Temporary
from clara_eval.service.due import FINALIZATION_DELAY

_log = structlog.get_logger(__name__)

LONGEST_GAP_BLOCKS = 50_000
"""About a day of Base: after a longer silence of ours everything is looked at, instead of every event."""
DEEP_SECONDS = 3600
"""So old a post is in no block that is replaced."""
DAY = 86_400


@dataclass(frozen=True, slots=True)
class _Noted:
    """What a look at a challenge found that rests from then on."""

    until: int
    status: str
    submissions: int | None
    on_chain: ChallengeStatus = ChallengeStatus.OPEN

    @property
    def row(self) -> str:
        return f"{self.until} {self.status} {self.submissions} {self.on_chain.value}"

    @classmethod
    def read(cls, row: str) -> _Noted:
        until, status, *told = row.split(" ")
        if not told:  # an older row
            return cls(int(until), status, None)
        return cls(int(until), status, int(told[0]), ChallengeStatus(int(told[1])))


async def resting(app: App, head: Block) -> dict[str, str]:
    """Address and status of everybody who is left alone at this tick."""
    run = _run(app.chain_id)
    noted = {address: _Noted.read(row) for address, row in await app.store.entries(run, "")}
    stirred = await _stirred(app, head)
    if stirred is None:
        await app.store.forget_run(run)
        noted = {}
    awake = {a for a, one in noted.items() if one.until < head.timestamp or a in (stirred or ())}
    asked = {a: one for a, one in noted.items() if a not in awake and is_its_turn(a, head, app.settings.tick_seconds)}
    for address in awake | await _changed(app, asked, head):
        await app.store.forget_entry(run, address)
        del noted[address]
    await app.store.save_checkpoint(_place(app.chain_id), Checkpoint(head.number, head.hash))
    return {address: one.status for address, one in noted.items()}


def is_its_turn(address: str, head: Block, tick_seconds: int) -> bool:
    """Once a day, at a tick that depends on the address: what no event told is noticed then."""
    turns = max(1, DAY // tick_seconds)
    return int(address, 16) % turns == head.timestamp // tick_seconds % turns


async def rest(app: App, challenge: Challenge, status: str | None, head: Block) -> None:
    """After a look: left alone until its deadline, if it is open, or until it can be finalized, if it is posted."""
    if challenge.status is ChallengeStatus.OPEN:
        until = challenge.deadline
    elif challenge.status is ChallengeStatus.SCORING and _is_settled(app, challenge, status, head):
        until = challenge.score_posted_at + FINALIZATION_DELAY - 1
    else:
        return
    if head.timestamp <= until:
        noted = _Noted(until, status or "pending", challenge.submission_count, challenge.status)
        await app.store.add_entry(_run(app.chain_id), challenge.address, noted.row)


def _is_settled(app: App, challenge: Challenge, status: str | None, head: Block) -> bool:
    """Whether its post is deep, and recorded where it is ours to record."""
    is_deep = 0 < challenge.score_posted_at <= head.timestamp - DEEP_SECONDS
    return is_deep and (status == "complete" or (status is None and challenge.evaluator != app.evaluator))


async def _changed(app: App, asked: Mapping[str, _Noted], head: Block) -> set[str]:
    """Which of these are not as they were noted, or do not tell."""
    if not asked:
        return set()
    try:
        told = await app.chain.challenges.status_and_submission_count([Address(address) for address in asked], head)
    except Temporary as bad:
        _log.info("resting_not_asked", problem=str(bad), challenges=len(asked))
        return set(asked)  # each is looked at by itself
    return {a for a, one in asked.items() if told.get(Address(a)) != (one.on_chain, one.submissions)}


async def _stirred(app: App, head: Block) -> set[Address] | None:
    """Who said something since the last tick, replaced blocks included; None where that is too long ago."""
    last = await app.store.checkpoint(_place(app.chain_id))
    if last is None or head.number - last.block_number > LONGEST_GAP_BLOCKS or last.block_number > head.number:
        return None
    first = max(0, last.block_number + 1 - app.chain.blocks.network.confirmations)
    return await app.chain.events.challenges_with_events(first, head)


def _run(chain_id: int) -> str:
    return f"engine:resting:{chain_id}"


def _place(chain_id: int) -> str:
    return f"stirred:{chain_id}"
