"""What is held of late stays within its bound."""

from __future__ import annotations

import random

from clara_eval.core.recent import Recent


def test_the_oldest_goes_first_and_the_bound_holds() -> None:
    """Whatever is put in, in whatever order, the latest that fit are held with their last values, and no more."""
    rng = random.Random(3)
    recent: Recent[int, int | None] = Recent(100)
    put: dict[int, tuple[int | None, int]] = {}
    for step in range(2_000):
        key, value, weight = rng.randrange(30), rng.choice((None, step)), rng.choice((1, 7, 40, 101))
        recent.put(key, value, weight)
        if weight <= 100:
            put.pop(key, None)
            put[key] = value, weight
            while sum(weight for _, weight in put.values()) > 100:
                del put[next(iter(put))]
        assert len(recent) == len(put)
        assert all(recent.find(n) == ((put[n][0],) if n in put else None) for n in range(30))
