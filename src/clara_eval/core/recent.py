"""What was worked out of late, so that it is not worked out again: bounded, and safe to share between threads.

In: keys with values and what each weighs. Out: the value of a key, where it is still held. Must hold: all that is held
weighs no more than the bound, whoever chooses what comes in; the oldest goes first. A value must be what its key gives
always, so that nobody can tell whether it was held.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[K, tuple[V, int]] = {}
        self._weight = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._held)

    def find(self, key: K) -> tuple[V] | None:
        """The value in a tuple of its own, because it may be None; None where the key is not held."""
        with self._lock:
            found = self._held.get(key)
        return None if found is None else (found[0],)

    def put(self, key: K, value: V, weight: int = 1) -> None:
        """Hold it; what weighs more than everything may is not held."""
        if weight > self._most:
            return
        with self._lock:
            self._weight += weight - self._held.pop(key, (None, 0))[1]
            self._held[key] = value, weight
            while self._weight > self._most:
                self._weight -= self._held.pop(next(iter(self._held)))[1]
