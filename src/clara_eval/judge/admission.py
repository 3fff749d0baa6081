"""When a model may be called: a place at the gate, no pause asked for, and a breaker that is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.judge.concurrency import CircuitBreaker, Gate
from clara_eval.judge.outages import JudgeDown, JudgeWaits, OutOfTime
from clara_eval.judge.retry import RetryPolicy

Sleep = Callable[[float], Awaitable[None]]


class Admission:
    """Admits the calls of one run to one model."""

    def __init__(self, name: str, policy: RetryPolicy, gate: Gate, clock: Callable[[], float], sleep: Sleep) -> None:
        self._name, self._policy, self._clock, self.sleep = name, policy, clock, sleep
        self.gate = gate
        self.breaker = CircuitBreaker()
        self.broken: ConfigError | None = None
        """Why no call can succeed: a wrong key, model or account."""
        self._held_until = 0.0

    def hold(self, seconds: float) -> None:
        """Hold back every caller of this run: a Retry-After is not only for the caller that received it."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    async def enter(self, until: float, *, yields: bool) -> float:
        """Wait for a place and return the moment of entry. A caller that waits for the model holds no place."""
        while True:
            await self._until_callable(until, yields=yields)
            try:
                async with asyncio.timeout(until - self._clock()):
                    entered_at = await self.gate.enter()
            except TimeoutError:
                raise OutOfTime(f"{self._name} was not asked: no place became free in time.") from None
            if self.broken is None and max(self._pauses()) <= 0:
                return entered_at
            self.gate.leave()

    async def rest(self, seconds: float, until: float) -> None:
        """Sleep, unless the pause is too long to hold a place for, or the time ends before."""
        if seconds > self._policy.longest_wait_seconds:
            raise JudgeWaits(f"{self._name} asks for a pause of {seconds:.0f} s.", retry_after_seconds=seconds)
        if self._clock() + seconds >= until:
            raise OutOfTime(f"{self._name} cannot answer before the time is over.", retry_after_seconds=seconds)
        await self.sleep(seconds)

    async def _until_callable(self, until: float, *, yields: bool) -> None:
        while True:
            if self.broken is not None:
                raise self.broken
            if self.breaker.failed_probes >= self._policy.most_probes:
                raise JudgeDown(f"{self._name} is down: {self.breaker.failed_probes} probes in a row failed.")
            held, down = self._pauses()
            if held <= 0 and down <= 0:
                return
            if yields and down > 0:
                raise Temporary(f"{self._name} is down.", retry_after_seconds=down)
            await self.rest(max(held, down), until)

    def _pauses(self) -> tuple[float, float]:
        """Seconds left of a Retry-After, and of the breaker's pause."""
        now = self._clock()
        return self._held_until - now, self.breaker.wait(now)
