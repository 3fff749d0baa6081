"""What a tick does beside evaluations: watch the wallet, finalize, publish, give feedback, measure open entries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from clara_eval.actions.provisional import measure_open
from clara_eval.actions.publication import NotTried, give_missing_feedback, publish_missing
from clara_eval.chain.account import posts_covered
from clara_eval.chain.model import Challenge
from clara_eval.challenges.calls import finalize
from clara_eval.core.errors import ClaraError
from clara_eval.core.tasks import gather_or_raise
from clara_eval.service.alerts import Alert
from clara_eval.service.duty import Tick
from clara_eval.store.leases import Busy

_log = structlog.get_logger(__name__)
FINALIZED_AT_ONCE = 16
"""The wallet signs one after the other; most of the time passes while transactions are mined."""
_LOW_POSTS = 20
"""More than one post with many winners costs."""
MOST_RUNS, MOST_OF_ONE = 20, 10
"""New measurements in a tick, and of them in one challenge: neither a flood nor a board delays an evaluation."""
MOST_WAITING = 100  # of the challenges with entries left over; others wait for their next entry


async def watch_balance(tick: Tick) -> None:
    sender, report = tick.app.sender, tick.report
    if not sender.can_sign:
        return
    report.balance_wei, report.posts_left = await posts_covered(tick.app.chain, sender.address)
    if report.posts_left < _LOW_POSTS:
        summary = f"The balance of {sender.address} pays for {report.posts_left} more posts at the present fee."
        tick.alerts.raise_alert(Alert("BalanceLow", "critical", summary))


async def fill_nonces(tick: Tick) -> None:
    """Fill nonces that are missing before signed transactions, also while nothing is to be sent."""
    app = tick.app
    gap = await app.sender.find_gap(app.chain_id)
    if gap is None:
        return
    tick.report.nonce_gap = str(gap)
    tick.report.problems.append(str(gap))
    tick.alerts.raise_alert(Alert("NonceGap", "warning", str(gap)))
    await app.sender.close_gap(app.chain_id)


async def finalize_challenge(tick: Tick, challenge: Challenge) -> None:
    receipt = await finalize(challenge, sender=tick.app.sender, results=tick.app.chain.results)
    tick.metrics.transactions.labels("finalize", receipt.outcome.value).inc()
    _log.info("challenge_finalized", outcome=receipt.outcome.value)


async def finalize_all(tick: Tick, work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Finalize several at once within the tick's limit; what is cut off continues with the same nonce."""
    gate = asyncio.Semaphore(FINALIZED_AT_ONCE)

    async def one(finalizing: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await finalizing()

    async with tick.within(tick.limits.finalize_seconds, "Finalizing"):
        await gather_or_raise(one(item) for item in work)


async def publish_results(tick: Tick) -> None:
    """Publish posted results at every place that lacks them: one that was down, or that is new."""
    failed = [
        f"{told.address}: not published at {told.place}: {told.problem}"
        async for told in publish_missing(tick.app, tick.limits.publish_seconds)
        if told.error is not None and not isinstance(told.error, (Busy, NotTried))
    ]
    if failed:
        tick.report.problems += failed
        tick.alerts.raise_alert(Alert("PublicationFailing", "warning", " ".join(failed[:3])))


async def give_feedback(tick: Tick) -> None:
    async with tick.within(tick.limits.finalize_seconds, "Giving feedback"):
        async for receipt in give_missing_feedback(tick.app):
            tick.metrics.transactions.labels("feedback", receipt.outcome.value).inc()


async def measure_entries(tick: Tick) -> None:
    runs, pending, waiting = MOST_RUNS, list(tick.opened), list[str]()
    async with tick.within(tick.limits.measure_seconds, "Measuring the entries of open challenges"):
        while pending and runs > 0:
            done, is_left, address = 0, False, pending[0].address
            try:
                done, is_left = await measure_open(tick.app.ports, pending[0], tick.head, min(runs, MOST_OF_ONE))
            except ClaraError as bad:  # no engine for its language, for example: the evaluation says so when it is due
                _log.warning("board_not_measured", challenge=address, problem=str(bad))
            runs, waiting = runs - done, [*waiting, *([address] if is_left else [])]
            del pending[0]
    tick.read_again.update([*waiting, *(one.address for one in pending)][:MOST_WAITING])
