"""How long a model call is tried: one policy for every provider, with a stated worst case."""

from __future__ import annotations

import math
import random
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
        """Seconds after the failed save `number` (from 1)."""
        return self.first_pause_seconds * number
