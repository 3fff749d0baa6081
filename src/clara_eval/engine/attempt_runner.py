"""One attempt at one challenge: advance it, evaluate it, and remember how it ended.

Comes in: an address and the number of the attempt. Goes out: a small dictionary for the workflow's record; everything
else is in the store already. Must hold: one attempt at a time for a challenge, across all workers, by a lease; whatever
happens has an ending; an attempt ends before the scoring deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from clara_eval.app import App
from clara_eval.challenge.model import Address, Challenge, ChallengeStatus
from clara_eval.challenge.read import look_at_challenge
from clara_eval.engine.attempt_memory import Attempts, read_attempts, save_attempts, say_status
from clara_eval.engine.due import window_used
from clara_eval.engine.endings import Ending, ending_of, ending_of_result
from clara_eval.engine.leases import held
from clara_eval.engine.options import EngineOptions
from clara_eval.engine.pace import Speed, Window, all_games, how_degraded, most_games
from clara_eval.engine.post_recorder import record_posted
from clara_eval.errors import Temporary, Unscorable
from clara_eval.money.caps import check_prize
from clara_eval.money.dollars import worth_micro_usd
from clara_eval.observe.alerts import Alerts
from clara_eval.observe.logs import bound_challenge
from clara_eval.observe.metrics import Metrics
from clara_eval.pipeline.evaluate import Evaluation, evaluate
from clara_eval.pipeline.plan import Plan
from clara_eval.pipeline.record import PLAN
from clara_eval.pipeline.status import Status
from clara_eval.publish.keeper import advance
from clara_eval.records.challenge_index import read_document, save_summary
from clara_eval.trace.store_keys import status_key

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Walker:
    """Runs attempts in this process."""

    app: App
    worker: str
    options: EngineOptions
    metrics: Metrics
    alerts: Alerts
    speed: Speed = field(init=False)
    running: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.speed = Speed.expected(self.app.settings.max_concurrency)

    async def attempt(self, address: Address, number: int) -> dict[str, Any]:
        """See one attempt through; raises only when the process is being stopped."""
        with bound_challenge(address, attempt=number), self.metrics.running.track_inprogress():
            return await self.tracked(self._attempt, address, number)

    async def tracked(self, work: Callable[..., Awaitable[dict[str, Any]]], *args: Any) -> dict[str, Any]:
        """Work that `stop` interrupts."""
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        try:
            return await work(*args)
        finally:
            self.running.discard(task)

    async def _attempt(self, address: Address, number: int) -> dict[str, Any]:
        started = time.monotonic()
        attempts = await read_attempts(self.app.store, self.app.chain_id, address)
        if attempts.number != number:
            return {"outcome": "superseded"}
        try:
            lease = f"evaluation:{self.app.chain_id}:{address}"
            async with held(self.app.store, lease, f"{self.worker}:{number}", self.options.lease_seconds):
                ending = await self._walk(address)
        except Exception as bad:  # noqa: BLE001 - every error has an ending; a bug is told with its traceback
            now = time.time()
            ending = ending_of(bad, address, failures=attempts.failures, now=now, options=self.options)
            _log.warning("attempt_failed", outcome=ending.outcome, reason=ending.reason,
                         exc_info=bad if ending.is_bug else None)  # fmt: skip
        await self._remember(address, attempts, ending)
        self.metrics.evaluations.labels(ending.outcome).inc()
        self.metrics.evaluation_seconds.observe(time.monotonic() - started)
        _log.info("attempt_ended", outcome=ending.outcome, seconds=round(time.monotonic() - started, 2))
        return {"outcome": ending.outcome, "retryAt": ending.retry_at}

    async def _walk(self, address: Address) -> Ending:
        challenge = await look_at_challenge(self.app.chain, address)
        if challenge.score_posted_at:
            # Queued by a tick that looked a moment too early, or posted and not written down before a crash.
            return Ending("recognised" if await record_posted(self.app, challenge) else "not_yet")
        challenge = await self._advanced(challenge)
        network = self.app.settings.network
        worth = worth_micro_usd(challenge.token, challenge.prize_pool, network)
        check_prize(worth, self.app.settings.min_prize_usd, int(time.time()))
        window = Window(challenge.deadline, challenge.scoring_deadline, challenge.block.timestamp)
        plan = await self._plan(challenge, window)
        options = self.app.options(plan, listener=self._listen)
        try:
            async with asyncio.timeout(window.budget_seconds):
                evaluation = await evaluate(address, self.app.ports, options)
        except TimeoutError:
            raise Temporary(
                f"The evaluation did not end within its {window.budget_seconds:.0f} s.",
                remedy="It goes on where it was.",
            ) from None
        return await self._ended(evaluation)

    async def _advanced(self, challenge: Challenge) -> Challenge:
        """Past the deadline and still open: move the contract on to scoring."""
        if challenge.status is not ChallengeStatus.OPEN:
            return challenge
        receipt = await advance(challenge, sender=self.app.sender, results=self.app.chain)
        self.metrics.transactions.labels("advance_to_scoring", receipt.outcome.value).inc()
        moved = await look_at_challenge(self.app.chain, challenge.address)
        if moved.status is ChallengeStatus.CANCELLED:
            raise Unscorable("Fewer than two agents submitted: the contract cancelled the challenge and refunded it.")
        return moved

    async def _plan(self, challenge: Challenge, window: Window) -> Plan:
        """The plan that fits the time left; a recorded one that no longer fits is made anew, with fewer games."""
        plan = self.app.plan()
        count, judges = challenge.submission_count, len(plan.models)
        more = most_games(window, count, judges, self.speed)
        how = how_degraded(more, count, judges)
        if more is None or how is None:
            return plan
        games = more + await self._answered(challenge.run)
        if games >= all_games(count, judges):
            return plan
        await self._replace_plan(challenge.run, games, all_games(count, judges))
        self.metrics.degraded.labels(how).inc()
        _log.warning("evaluation_degraded", how=how, games=games, seconds_left=window.seconds_left)
        return self.app.plan(max_games=games)

    async def _answered(self, run: str) -> int:
        """Comparisons that are paid for already: they cost no more time."""
        return sum([paid.purpose == "comparison" async for paid in self.app.store.answers_of(run)])

    async def _replace_plan(self, run: str, games: int, everything: int) -> None:
        recorded = await self.app.store.entry(run, "plan")
        is_finished = await self.app.store.entry(run, "digest") is not None
        if recorded is None or is_finished:
            return
        if (PLAN.read_text(recorded).max_games or everything) > games:
            await self.app.store.forget_entry(run, "plan")

    def _listen(self, status: Status) -> None:
        stage = status.stage
        if stage is not None and stage.name == "comparing" and stage.calls and stage.calls_per_second:
            self.speed = self.speed.blended(stage.calls_per_second)

    async def _ended(self, evaluation: Evaluation) -> Ending:
        ranking = evaluation.walk.ranking
        if ranking is not None and ranking.consistency.swap_consistency is not None:
            self.metrics.swap_consistency.set(ranking.consistency.swap_consistency)
        ending = ending_of_result(evaluation, time.time())
        if evaluation.receipt is not None:
            self.metrics.transactions.labels("post_scores", evaluation.receipt.outcome.value).inc()
        if ending.outcome == "complete":
            await self._show_posted(evaluation.challenge)
        if ending.outcome == "posted_elsewhere":
            await record_posted(self.app, await look_at_challenge(self.app.chain, evaluation.challenge.address))
        return ending

    async def _show_posted(self, challenge: Challenge) -> None:
        """The board at once, not at the next tick. It is posted already: a node that fails now changes nothing."""
        try:
            now = await look_at_challenge(self.app.chain, challenge.address)
        except Temporary as bad:
            _log.warning("board_waits_for_tick", problem=str(bad))
            return
        status = await read_document(self.app.store, self.app.chain_id, status_key(challenge.address)) or {}
        await save_summary(self.app.store, now, status.get("postedBy"))
        left = 1 - window_used(challenge, now.block.timestamp)
        self.metrics.window_left_at_post.observe(max(0.0, left))

    async def _remember(self, address: Address, attempts: Attempts, ending: Ending) -> None:
        """The next attempt's number first: once it is written, this one can never begin again."""
        store, chain_id = self.app.store, self.app.chain_id
        failed = ending.outcome in {"temporary", "settings"}
        await _insist(lambda: save_attempts(store, chain_id, address, attempts.after(ending.retry_at, failed=failed)))
        if ending.status is not None:
            changes: dict[str, Any] = {"status": ending.status, "reason": ending.reason, "retryAt": ending.retry_at}
            if ending.status in {"failed", "unscorable"}:
                changes["progress"] = 100
            await _insist(lambda: say_status(store, chain_id, address, time.time(), **changes))
        if ending.alert is not None:
            self.alerts.raise_alert(ending.alert)

    async def stop(self) -> None:
        """Cancel what runs: it stays pending in the queue, and another worker goes on where it stopped."""
        tasks = list(self.running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)


async def _insist(write: Any, *, tries: int = 60, pause: float = 1.0) -> None:
    """An ending must be written even if the database is restarting just now."""
    for left in reversed(range(tries)):
        try:
            await write()
        except Temporary as bad:
            if left == 0:
                raise
            _log.warning("store_not_answering", problem=str(bad))
            await asyncio.sleep(pause)
        else:
            return
