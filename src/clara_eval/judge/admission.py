"""When a model may be called: bounds of a request, a gate, a circuit breaker, and pauses that a provider asks for."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.judge.port import JudgeDown, JudgeWaits, OutOfTime

SLOWEST_TOKENS_PER_SECOND = 40
"""A long answer has the time that a slow model needs for all of its tokens; a short one has `call_seconds`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of one request to a model. `deadline` is a moment of the event loop's clock, shared by a round."""

    deadline: float | None = None
    tries: int = 6
    call_seconds: float = 120.0
    first_pause_seconds: float = 0.5
    longest_pause_seconds: float = 30.0
    longest_wait_seconds: float = 60.0
    """If a provider asks for a longer pause, the run ends and comes back then, instead of holding its place."""
    most_probes: int = 6
    """After this many failed probes in a row, about two minutes, a model is not asked again in this run."""
    most_in_flight: int = 64
    ask_seconds: float = 1800.0
    """One request ends after this time, whatever it waits for: a place, a pause, the breaker or an answer."""

    @property
    def worst_case_seconds(self) -> float:
        """The longest time until `CachedLlm.ask` returns or raises, but for the store's own time to save."""
        return self.ask_seconds + sum(self.save_pause(number) for number in range(1, self.tries))

    def ends_at(self, now: float) -> float:
        return min(now + self.ask_seconds, math.inf if self.deadline is None else self.deadline)

    def call_limit(self, max_tokens: int) -> float:
        return max(self.call_seconds, max_tokens / SLOWEST_TOKENS_PER_SECOND)

    def pause(self, number: int, rng: random.Random) -> float:
        """Seconds before try `number` (from 1): doubling, with jitter."""
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2 ** (number - 1))
        return rng.uniform(longest / 2, longest)

    def save_pause(self, number: int) -> float:
        return self.first_pause_seconds * number


START = 8
OPEN_AFTER = 8
"""Failures in a row, over all callers, after which the judge counts as down."""
FIRST_COOLDOWN_SECONDS = 2.0
LONGEST_COOLDOWN_SECONDS = 60.0
PROBE_LOOK_SECONDS = 0.25


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after several failures in a row; then one probe at a time decides."""

    open_after: int = OPEN_AFTER
    is_open: bool = False
    opens_at: float = 0.0
    failures: int = 0
    failed_probes: int = 0
    _probing: bool = False
    _cooldown: float = FIRST_COOLDOWN_SECONDS

    def wait(self, now: float) -> float:
        """Return the seconds until it is worth looking again; 0 if a call may begin."""
        if not self.is_open:
            return 0.0
        if now < self.opens_at:
            return self.opens_at - now
        return PROBE_LOOK_SECONDS if self._probing else 0.0

    def begin(self) -> bool:
        """Begin a call; True if it is the probe."""
        self._probing = self._probing or self.is_open
        return self.is_open

    def answered(self) -> None:
        self.is_open, self._probing, self.failures, self.failed_probes = False, False, 0, 0
        self._cooldown = FIRST_COOLDOWN_SECONDS

    def failed(self, now: float, *, probe: bool) -> None:
        self.failures += 1
        if probe:
            self._probing = False
            self.failed_probes += 1
            self._cooldown = min(self._cooldown * 2, LONGEST_COOLDOWN_SECONDS)
        if probe or (not self.is_open and self.failures >= self.open_after):
            self.is_open = True
            self.opens_at = now + self._cooldown

    def abandoned(self, *, probe: bool) -> None:
        if probe:
            self._probing = False


class Gate:
    """Admits as many callers as the provider takes, in order: halves after a rate limit, grows with answers."""

    def __init__(self, most: int, *, clock: Callable[[], float]) -> None:
        self.limit = float(min(START, most))
        self.in_flight = 0
        self._most = float(most)
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._limited_at = -1.0
        self._was_limited = False

    async def enter(self) -> float:
        """Wait for a place and return the moment of entry, to be given to `limited`."""
        if self.in_flight >= int(self.limit) or self._waiting:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self.leave()
                raise
        else:
            self.in_flight += 1
        return self._clock()

    def leave(self) -> None:
        self.in_flight -= 1
        while self._waiting and self.in_flight < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)

    def answered(self) -> None:
        """Admit one more with each answer, or one more per round of answers after a rate limit."""
        if self.limit < self._most:
            self.limit = min(self._most, self.limit + (1 / self.limit if self._was_limited else 1.0))

    def limited(self, entered_at: float) -> None:
        """Halve the limit, unless that was done since this call began."""
        self._was_limited = True
        if entered_at >= self._limited_at:
            self.limit = max(1.0, self.limit / 2)
            self._limited_at = self._clock()


Sleep = Callable[[float], Awaitable[None]]


class Admission:
    def __init__(self, name: str, policy: RetryPolicy, gate: Gate, clock: Callable[[], float], sleep: Sleep) -> None:
        self._name, self.policy, self.clock, self.sleep = name, policy, clock, sleep
        self.gate = gate
        self.breaker = CircuitBreaker()
        self.tell: Callable[[str], None] = lambda _trouble: None
        """Called with each outage, while the call is still tried again."""
        self.broken: ConfigError | None = None
        """Why no call can succeed: a wrong key, model or account."""
        self._held_until = 0.0

    def hold(self, seconds: float) -> None:
        """Hold back every caller of this run: a Retry-After is not only for the caller that received it."""
        self._held_until = max(self._held_until, self.clock() + seconds)

    async def enter(self, until: float, *, yields: bool) -> float:
        """Wait for a place and return the moment of entry. A caller that waits for the model holds no place."""
        while True:
            await self._until_callable(until, yields=yields)
            try:
                async with asyncio.timeout(until - self.clock()):
                    entered_at = await self.gate.enter()
            except TimeoutError:
                raise OutOfTime(f"{self._name} was not asked: no place became free in time.") from None
            if self.broken is None and max(self._pauses()) <= 0:
                return entered_at
            self.gate.leave()

    async def rest(self, seconds: float, until: float) -> None:
        """Sleep, unless the pause is too long to hold a place for, or the time ends before."""
        if seconds > self.policy.longest_wait_seconds:
            raise JudgeWaits(f"{self._name} asks for a pause of {seconds:.0f} s.", retry_after_seconds=seconds)
        if self.clock() + seconds >= until:
            raise OutOfTime(f"{self._name} cannot answer before the time is over.", retry_after_seconds=seconds)
        await self.sleep(seconds)

    async def _until_callable(self, until: float, *, yields: bool) -> None:
        while True:
            if self.broken is not None:
                raise self.broken
            if self.breaker.failed_probes >= self.policy.most_probes:
                raise JudgeDown(f"{self._name} is down: {self.breaker.failed_probes} probes in a row failed.")
            held, down = self._pauses()
            if held <= 0 and down <= 0:
                return
            if yields and down > 0:
                raise Temporary(f"{self._name} is down.", retry_after_seconds=down)
            await self.rest(max(held, down), until)

    def _pauses(self) -> tuple[float, float]:
        now = self.clock()
        return self._held_until - now, self.breaker.wait(now)
