"""Record what the chain decided: posts, endings without scores, claims, results of agents."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from clara_eval.app import App
from clara_eval.chain.model import Challenge
from clara_eval.chain.sender import send_again
from clara_eval.challenges.chain_records import (
    has_news,
    known_results,
    record_claims,
    record_closed,
    record_posted,
    record_result,
    watch_claims,
)
from clara_eval.challenges.challenge_index import read_many, save_summary
from clara_eval.challenges.status import reason_of
from clara_eval.challenges.venue import is_still_current, look_at_challenge
from clara_eval.core.address import to_address
from clara_eval.core.errors import ClaraError, Temporary
from clara_eval.documents.results import EvalStatus, Summary, read
from clara_eval.documents.store_keys import INDEX, index_key, status_key
from clara_eval.service.due import window_used
from clara_eval.service.duty import Tick
from clara_eval.service.metrics import Metrics

_log = structlog.get_logger(__name__)
RECORDED = "engine:recorded:"
"""Before the address of every challenge whose result is recorded for good."""
_RESULTS_AT_ONCE = 20


async def record_post(tick: Tick, challenge: Challenge) -> None:
    posted = await record_posted(tick.app.store, tick.app.chain.results, challenge)
    by = str(posted.by) if posted else None
    await save_summary(tick.app.store, challenge, by)
    _log.info("post_recognised", posted_by=by)


async def show_posted(app: App, metrics: Metrics, challenge: Challenge) -> float | None:
    """Update the index right after our post and return the share of the window left, None if no node answers."""
    try:
        now = await look_at_challenge(app.chain, challenge.address)
    except Temporary as bad:
        _log.warning("index_waits_for_tick", problem=str(bad))
        return None
    status = await read(app.store, app.chain_id, EvalStatus, status_key(challenge.address))
    await save_summary(app.store, now, status.postedBy if status else None)
    left = max(0.0, 1 - window_used(challenge, now.block.timestamp))
    metrics.window_left_at_post.observe(left)
    return left


async def record_end(tick: Tick, challenge: Challenge) -> None:
    await record_closed(tick.app.store, challenge)
    _log.info("challenge_closed", status=challenge.status.name.lower())


async def resend_post(tick: Tick, challenge: Challenge) -> None:
    """Broadcast again what an earlier key signed.

    Raises:
        Temporary: always; the post is not mined yet.

    """
    store, chain = tick.app.store, tick.app.chain
    count = await send_again(chain, store, challenge.evaluator, partial(is_still_current, store, chain))
    raise Temporary(
        f"An earlier key, {challenge.evaluator}, signed the post, and it is not mined yet: {count} of its "
        "transactions went out again.",
        remedy="It goes on at the next tick; only a process with that key can raise the fee, or post anew "
        "what was read at a block that is gone.",
    )


async def record_results(tick: Tick) -> None:
    app, safe = tick.app, tick.safe
    settled = {*await tick.addresses(RECORDED), *tick.still_open}
    waiting = [address for address in await tick.addresses(INDEX) if address not in settled]
    index = await read_many(app.store, app.chain_id, Summary, index_key, waiting)
    closed = {to_address(a): one for a, one in index.items() if one.deadline < safe.timestamp}
    known = await known_results(app.store, app.chain_id, closed)
    over = {address for address in closed if address in known and known[address].isOver}
    for address in over:
        await watch_claims(app.store, app.chain, address, safe)
        await app.store.put(app.chain_id, RECORDED + address, "")
    missing = [a for a, summary in closed.items() if a not in over and has_news(known.get(a), summary)]
    for address in missing[:_RESULTS_AT_ONCE]:
        try:
            async with asyncio.timeout(tick.limits.read_seconds):
                result = await record_result(app.store, app.chain, address, safe)
            if has_news(result, closed[address]):  # as after advanceToScoring, which emits no event
                tick.read_again.add(address)
        except (ClaraError, TimeoutError) as bad:
            _log.warning("result_not_recorded", challenge=address, problem=str(bad))
            tick.report.problems.append(f"{address}: its result is not recorded: {reason_of(bad)}")


async def record_new_claims(tick: Tick) -> None:
    async with tick.within(tick.limits.read_seconds, "Reading old claims"):
        await record_claims(tick.app.store, tick.app.chain, tick.safe)
