"""A gate that adapts how many calls of a model are in flight, and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

START = 8
OPEN_AFTER = 8
"""Failures in a row, over all callers, after which the judge counts as down."""
FIRST_COOLDOWN_SECONDS = 2.0
LONGEST_COOLDOWN_SECONDS = 60.0
PROBE_LOOK_SECONDS = 0.25
"""How often callers look whether the probe came back."""


@dataclass(slots=True)
class CircuitBreaker:
    """Opens after several failures in a row; then one probe at a time decides."""

    open_after: int = OPEN_AFTER
    is_open: bool = False
    opens_at: float = 0.0
    failures: int = 0
    failed_probes: int = 0
    """In a row; every one waited longer than the one before."""
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
        """End a call that says nothing about the model."""
        if probe:
            self._probing = False


class Gate:
    """Admits as many callers as the provider takes, in order: halves after a rate limit, grows with answers."""

    def __init__(self, most: int, *, start: int = START, clock: Callable[[], float]) -> None:
        self.limit = float(min(start, most))
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
        self._admit()

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

    def _admit(self) -> None:
        while self._waiting and self.in_flight < int(self.limit):
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)
