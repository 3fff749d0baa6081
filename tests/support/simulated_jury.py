"""Simulated juries and other orders of items than the published one: what tests and the bench compare with."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.random import default_rng
from tests.support.simulation import (
    Model,
    SimulatedWorld,
    draw_quirks,
    draw_strengths,
    draw_verdicts,
    elo_order,
)

from clara_eval.ranking.model import fit
from clara_eval.ranking.results import Ints, Tally


def draw_jury(size: int, seed: int, *, judges: int, correlation: float, model: Model | None = None) -> SimulatedWorld:
    """A jury whose luck on the same question is correlated (normals with this correlation, made uniform)."""
    model = model or Model()
    random = default_rng(seed)
    truth, quirk = draw_strengths(size, model, random), draw_quirks(size, model, random)
    common = random.normal(size=(size, size))
    tables = []
    for _ in range(judges):
        mixed = correlation**0.5 * common + (1 - correlation) ** 0.5 * random.normal(size=(size, size))
        luck = np.vectorize(NormalDist().cdf)(mixed)
        tables.append(draw_verdicts(truth, quirk, luck, model))
    return SimulatedWorld(truth, tables[0], None, np.array(tables), seed, model, quirk)


def jury_table(world: SimulatedWorld, looks: Sequence[tuple[int, int]]) -> Tally:
    """The verdicts of every judge on these looks, in canonical order."""
    judges = np.array([world.verdicts]) if world.jury is None else world.jury
    first, second = np.array(sorted(looks), dtype=np.int64).reshape(-1, 2).T
    voice = np.tile(np.arange(len(judges)), len(first))
    first, second = np.repeat(first, len(judges)), np.repeat(second, len(judges))
    names = tuple(str(number) for number in range(len(judges)))
    return Tally(world.items, names, first, second, voice, judges[voice, first, second])


def strength_order(table: Tally) -> Ints:
    """Items by Bradley–Terry strength, best first."""
    return np.argsort(-fit(table).theta, kind="stable")


def published_order(table: Tally, seed: bytes, paid: int = 3) -> Ints:
    """Items as `rank` orders an adaptive tournament: paid places by Elo, those below by fitted strength."""
    by_elo = elo_order(table, seed)
    theta = fit(table).theta
    rest = by_elo[paid:]
    return np.concatenate((by_elo[:paid], rest[np.argsort(-theta[rest], kind="stable")]))
