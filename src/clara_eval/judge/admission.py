"""How much a model may be asked: bounds of a request, a circuit breaker, and a gate that finds the pace."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

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
OPEN_AFTER = 8  # failures in a row, over all callers, after which the judge counts as down
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

    def __init__(self, most: int = 64, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._most = float(min(START, most)), float(most)
        self.clock, self.in_flight = clock, 0
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
        return self.clock()

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
            self._limited_at = self.clock()
