"""Compiled loops: the same bits as numpy, in every field."""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clara_eval.ranking import compiled, elo
from clara_eval.ranking.compiled import deal, has_loops, play
from clara_eval.tournament.tally import Floats, Ints

pytestmark = pytest.mark.skipif(not has_loops(), reason="needs the extra `fast`")


def field_of(size: int, count: int, seed: int, lopsided: float) -> tuple[Ints, Ints, Floats]:
    """Random results; the more lopsided, the farther ratings run apart and the oftener a few items play."""
    random = np.random.default_rng(seed)
    first = (size * random.random(count) ** (1 + lopsided)).astype(np.int64)
    second = (first + random.integers(1, size, count)) % size
    points = np.where(random.random(count) < 0.2, 0.5, (random.random(count) < (first < second)).astype(float))
    return first, second, points


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 400), st.integers(0, 2**32), st.floats(0, 6))
def test_compiled_loops_give_the_bits_of_numpy(size: int, count: int, seed: int, lopsided: float) -> None:
    """Rounds and ratings are equal, not only close, after every permutation."""
    first, second, points = field_of(size, count, seed, lopsided)
    dealt, rounds = deal(size, first, second) or ([], 0)
    plain, plain_rounds = elo._deal(size, first, second)
    assert (list(dealt), rounds) == (plain.tolist(), plain_rounds)
    plan = elo.draw_rounds(size, first, second, b"seed")
    orders = (elo._round_order(plan, b"seed", number) for number in range(elo.PERMUTATIONS))
    played = play(np.full(size, elo.START), (first, second, points), plan.table, orders, elo._powers())
    assert played is not None
    assert played.tobytes() == np.concatenate(elo._play_groups(size, first, second, points, plan, b"seed")).tobytes()


def test_ratings_beyond_the_table_change_as_numpy_has_it() -> None:
    """However far apart two are, the change is K times points less the expectation, and nothing traps."""
    apart = np.array([0.0, 1e-9, 700.0, 7_706.0, 7_707.3, 7_800.0, 1e6, 1e300])
    begin = np.concatenate((apart, np.zeros(len(apart))))
    games = np.arange(len(apart)), np.arange(len(apart)) + len(apart), np.full(len(apart), 0.5)
    for turned in (games, (games[1], games[0], games[2])):
        played = play(begin, turned, np.arange(len(apart))[None, :], [np.array([0])], elo._powers())
        change = elo.K * (0.5 - elo.expected(begin[turned[0]] - begin[turned[1]]))
        after = begin.copy()
        after[turned[0]] += change
        after[turned[1]] -= change
        assert played is not None
        assert played[0].tobytes() == after.tobytes()


def test_a_large_field_is_rated_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published does not tell whether the loops were there."""
    first, second, points = field_of(60, 60_000, 3, 1.0)
    there = elo.elo(60, first, second, points, b"seed")
    monkeypatch.setattr(compiled, "has_loops", lambda: False)
    assert there.tobytes() == elo.elo(60, first, second, points, b"seed").tobytes()
    assert deal(60, first, second) is None


ELSEWHERE = """
import hashlib
from clara_eval.ranking import compiled, elo
from clara_eval.ranking.test_compiled import field_of
first, second, points = field_of(60, 60_000, 3, 1.0)
print(hashlib.sha256(elo.elo(60, first, second, points, b"seed").tobytes()).hexdigest())
print(compiled.has_loops(), compiled.deal(60, first, second) is not None)
"""


def test_where_the_engine_gets_no_room_the_numbers_are_the_same() -> None:
    """A process that may address 3 GB cannot reserve what the engine wants; the ratings come from numpy, bit for bit."""
    first, second, points = field_of(60, 60_000, 3, 1.0)
    here = hashlib.sha256(elo.elo(60, first, second, points, b"seed").tobytes()).hexdigest()
    few = 3 << 30
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        env={"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (few, few)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [here, "True False"]
