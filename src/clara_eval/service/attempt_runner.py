"""Run one attempt at one challenge and remember how it ended.

Invariant: an attempt never begins twice, and every attempt has an ending.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from functools import partial

import structlog

from clara_eval.actions.evaluate import EvaluationRequest, Observer, evaluate
from clara_eval.app import App
from clara_eval.chain.sender import Receipt
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.status import Attempts, StatusWriter, read_attempts, save_attempts
from clara_eval.core.address import Address
from clara_eval.documents.results import EvalStatus, State
from clara_eval.evaluation.scoring_window import Speed
from clara_eval.service.alerts import Alerts
from clara_eval.service.endings import Ending, ending_of, ending_of_result
from clara_eval.service.logs import bound_challenge
from clara_eval.service.metrics import Metrics
from clara_eval.service.options import EngineOptions
from clara_eval.service.record import show_posted
from clara_eval.store.retries import DATABASE

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class AttemptRunner:
    app: App
    worker: str
    options: EngineOptions
    metrics: Metrics
    alerts: Alerts
    speed: Speed = field(init=False)

    def __post_init__(self) -> None:
        self.speed = Speed.expected(self.app.settings.max_concurrency)

    async def attempt(self, address: Address, number: int) -> dict[str, object]:
        """Run one attempt to its end; raises only when the process is being stopped."""
        with bound_challenge(address, attempt=number), self.metrics.running.track_inprogress():
            return await self._attempt(address, number)

    async def _attempt(self, address: Address, number: int) -> dict[str, object]:
        started = time.monotonic()
        attempts = await read_attempts(self.app.store, self.app.chain_id, address)
        if attempts.number != number:
            return {"outcome": "superseded"}
        try:
            ending = await self._ended(await evaluate(self.app, address, self._request(number)))
        except Exception as bad:  # noqa: BLE001 - every error has an ending; a bug is logged with its traceback
            now = time.time()
            ending = ending_of(bad, address, failures=attempts.failures, now=now, options=self.options)
            _log.warning("attempt_failed", outcome=ending.outcome, reason=ending.reason,
                         exc_info=bad if ending.is_bug else None)  # fmt: skip
        await self._remember(address, attempts, ending)
        self.metrics.evaluations.labels(ending.outcome).inc()
        self.metrics.evaluation_seconds.observe(time.monotonic() - started)
        for listen in self.metrics.evaluation_listeners:
            listen(address, ending.outcome, time.monotonic() - started)
        _log.info("attempt_ended", outcome=ending.outcome, seconds=round(time.monotonic() - started, 2))
        return {"outcome": ending.outcome, "retryAt": ending.retry_at}

    def _request(self, number: int) -> EvaluationRequest:
        observer = Observer(self._listen, self._count_sent, lambda how: self.metrics.degraded.labels(how).inc())
        # Its own name for every run: a workflow that is queued again may meet its older run in this process.
        holder, seconds = f"{self.worker}:{number}:{uuid.uuid4().hex[:8]}", self.options.lease_seconds
        return EvaluationRequest(observer=observer, speed=self.speed, holder=holder, lease_seconds=seconds)

    def _count_sent(self, receipt: Receipt) -> None:
        self.metrics.transactions.labels(receipt.intention, receipt.outcome.value).inc()

    def _listen(self, status: EvalStatus) -> None:
        stage = status.stage
        if stage is not None and stage.name == "comparing" and stage.calls and stage.callsPerSecond:
            self.speed = self.speed.blended(stage.callsPerSecond)

    async def _ended(self, evaluation: Evaluation) -> Ending:
        ranking = evaluation.ran.ranking if evaluation.ran else None
        if ranking is not None and ranking.consistency.swap_consistency is not None:
            self.metrics.swap_consistency.set(ranking.consistency.swap_consistency)
        ending = ending_of_result(evaluation, time.time())
        if ending.outcome == "complete":
            await show_posted(self.app, self.metrics, evaluation.challenge)
        return ending

    async def _remember(self, address: Address, attempts: Attempts, ending: Ending) -> None:
        """Record the next attempt's number first: once it is written, this one can never begin again."""
        store, chain_id = self.app.store, self.app.chain_id
        failed = ending.outcome in {"temporary", "settings"}
        await DATABASE.until_written(
            lambda: save_attempts(store, chain_id, address, attempts.after(ending.retry_at, failed=failed))
        )
        if ending.status is not None:
            await DATABASE.until_written(partial(self._say, address, ending.status, ending))
        if ending.alert is not None:
            self.alerts.raise_alert(ending.alert)

    async def _say(self, address: Address, state: State, ending: Ending) -> None:
        status = await StatusWriter.resumed(self.app.store, self.app.chain_id, address)
        await status.say(state, reason=ending.reason, retry_at=ending.retry_at)
