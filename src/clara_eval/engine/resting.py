"""Open challenges rest: nothing can be due for them before their deadline, so no tick looks at them for nothing.

In: the newest block and what the nodes' events say since the last tick. Out: the challenges to leave alone, with their
status. Must hold: a challenge is left alone only while it is open, was looked at in full, and said nothing since
(no submission, no cancellation). Whoever stirred is awake until a look at it succeeds. Everybody is looked at once a
day all the same, and where the events cannot be read, at once. One request for all of them takes the place of three for
each.
"""

from __future__ import annotations

from clara_eval.app import App
from clara_eval.challenge.model import Address, Block, Challenge, ChallengeStatus, Checkpoint

LONGEST_GAP_BLOCKS = 50_000
"""About a day of Base: after a longer silence of ours everything is looked at, instead of every event."""
DAY = 86_400


async def resting(app: App, head: Block) -> dict[str, str]:
    """Address and status of everybody who is left alone at this tick."""
    run = _run(app.chain_id)
    noted = {address: row.split(" ", 1) for address, row in await app.store.entries(run, "")}
    stirred = await _stirred(app, head)
    if stirred is None:
        await app.store.forget_run(run)
        noted = {}
    awake = [a for a, (until, _) in noted.items() if int(until) < head.timestamp or a in (stirred or ())]
    for address in awake:
        await app.store.forget_entry(run, address)
        del noted[address]
    await app.store.save_checkpoint(_place(app.chain_id), Checkpoint(head.number, head.hash))
    seconds = app.settings.tick_seconds
    return {address: status for address, (_, status) in noted.items() if not is_its_turn(address, head, seconds)}


def is_its_turn(address: str, head: Block, tick_seconds: int) -> bool:
    """Once a day, at a tick that depends on the address: what no event told is noticed then."""
    turns = max(1, DAY // tick_seconds)
    return int(address, 16) % turns == head.timestamp // tick_seconds % turns


async def rest(app: App, challenge: Challenge, status: str | None, head: Block) -> None:
    """After a look: left alone until its deadline, if it is open."""
    if challenge.status is ChallengeStatus.OPEN and head.timestamp <= challenge.deadline:
        row = f"{challenge.deadline} {status or 'pending'}"
        await app.store.add_entry(_run(app.chain_id), challenge.address, row)


async def _stirred(app: App, head: Block) -> set[Address] | None:
    """Who said something since the last tick, replaced blocks included; None where that is too long ago."""
    last = await app.store.checkpoint(_place(app.chain_id))
    if last is None or head.number - last.block_number > LONGEST_GAP_BLOCKS or last.block_number > head.number:
        return None
    first = max(0, last.block_number + 1 - app.chain.confirmations)
    return await app.chain.stirred(first, head)


def _run(chain_id: int) -> str:
    return f"engine:resting:{chain_id}"


def _place(chain_id: int) -> str:
    return f"stirred:{chain_id}"
