"""A world in which the truth is known: how often does a schedule pay the right ones, for how many calls?

Strengths are normal (sd 1.65: a judge right on 80 % of decisive random pairs), verdicts follow Davidson's model with
ties (ν = .32: 10 %) and a lean of .3 logits to the item shown first. The judge is deterministic: one draw for each
ordered pair, so asking the same question again teaches nothing and the swap is the only second look. A variant adds
quirks of single pairs (sd 1). In come a size and a seed; out go verdicts, tournaments and their quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.random import Generator, default_rng

from clara_eval.core.model import Winner
from clara_eval.ranking import Group, Pairing, Result, Schedule, Tally, rate
from clara_eval.ranking.results import Floats, Ints

TOP3 = (6000, 2500, 1500)
Kind = Literal["", "cycles", "tails", "likes", "equals", "junk", "length", "verbosity"]
VERDICTS: tuple[Winner, Winner, Winner] = ("second", "tie", "first")  # by half points of the first


@dataclass(frozen=True, slots=True)
class Model:
    """How strengths spread and how the judge errs. The family `probit` is another world, with which nothing was tuned:
    heavy-tailed strengths, normal noise, a band of ties, and a share of answers that are mere lapses. Of the pairs in
    an order of several the share `kept` follows the verdicts on these pairs; the others are judged afresh. `kind` is
    one of the judges of the outside review.
    """

    sigma: float = 1.65
    nu: float = 0.32
    bias: float = 0.3
    pair_sd: float = 0.0
    family: Literal["logistic", "probit"] = "logistic"
    lapse: float = 0.05
    kept: float = 0.0
    kind: Kind = ""


@dataclass(frozen=True, slots=True)
class SimulatedWorld:
    """True strengths, and for each ordered pair the half points (0, 1, 2) the judge gives to the one shown first."""

    truth: Floats
    verdicts: Ints
    seen: Floats | None = None
    """Strengths as the judge sees them, if its taste is not the truth."""
    jury: Ints | None = None
    """Verdicts of several judges, one table each; `verdicts` is the first."""
    seed: int = 0
    model: Model = field(default_factory=Model)
    quirk: Floats | None = None

    @property
    def size(self) -> int:
        return len(self.truth)

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(str(i) for i in range(self.size))

    def answer(self, game: Pairing) -> Result:
        table = self.verdicts if self.jury is None else self.jury[int(game.judge)]
        return Result(game.first, game.second, VERDICTS[int(table[int(game.first), int(game.second)])], game.judge)

    def order_of(self, group: Group) -> list[Result]:
        """The pairs read off the judge's order."""
        return group.read_off([str(i) for i in self.order([int(item) for item in group.items])])

    def order(self, shown: Sequence[int]) -> list[int]:
        """The judge's order of several items shown together, best first: Plackett–Luce, or normal noise, once and for
        all for each sequence; earlier positions gain as much as they do in pairs.
        """
        random = default_rng([self.seed, *shown])
        at = np.array(shown)
        seen = (self.truth if self.seen is None else self.seen)[at]
        if self.model.kept:
            fresh = draw_verdicts(seen, np.zeros((len(at), len(at))), random.random((len(at), len(at))), self.model)
            own = random.random((len(at), len(at))) < self.model.kept
            points = np.triu(np.where(own, self.verdicts[np.ix_(at, at)], fresh), 1)
            won = points.sum(axis=1) + np.triu(2 - points, 1).sum(axis=0)
            return [int(i) for i in at[np.lexsort((random.random(len(at)), -won))]]
        noise = random.gumbel(size=len(at)) if self.model.family == "logistic" else random.normal(0, 1.13, len(at))
        lean = self.model.bias * np.linspace(0.5, -0.5, len(at))
        quirk = 0.0 if self.quirk is None else self.quirk[np.ix_(at, at)].mean(axis=1)
        return [int(i) for i in at[np.argsort(-(seen + lean + quirk + noise), kind="stable")]]

    def table(self, looks: Sequence[tuple[int, int]]) -> Tally:
        """The verdicts on these looks, in canonical order."""
        first, second = np.array(sorted(looks), dtype=np.int64).reshape(-1, 2).T
        return Tally(self.items, ("",), first, second, np.zeros_like(first), self.verdicts[first, second])


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one order: is the first right, the paid set, its order; share of the pot misallocated; lost strength; τ."""

    top1: float
    set: float
    order: float
    misallocation: float
    regret: float
    tau: float


def draw_world(size: int, seed: int, model: Model | None = None) -> SimulatedWorld:
    """Strengths and verdicts of one challenge."""
    model = model or Model()
    random = default_rng(seed)
    truth = draw_strengths(size, model, random)
    luck = random.random((size, size))
    quirk = draw_quirks(size, model, random)
    truth, seen, quirk = _as_judged(truth, quirk, model, random)
    verdicts = draw_verdicts(seen, quirk, luck, model)
    return SimulatedWorld(truth, verdicts, seen, seed=seed, model=model, quirk=quirk)


def _as_judged(truth: Floats, quirk: Floats, model: Model, random: Generator) -> tuple[Floats, Floats, Floats]:
    """Truth, strengths as the judge sees them, and quirks of pairs, by the kind of the judge."""
    size, seen = len(truth), truth
    length = random.normal(size=size) if model.kind else np.zeros(size)
    if model.kind == "cycles":
        phase = random.uniform(0, 2 * np.pi, size)
        quirk = quirk + 1.2 * np.sin(phase[:, None] - phase)
    elif model.kind == "tails":
        truth = seen = np.clip(random.standard_cauchy(size), -30, 30)
    elif model.kind == "likes":
        seen = truth + random.normal(0, 0.7, size)
    elif model.kind == "equals":
        truth = seen = np.round(truth / model.sigma) * model.sigma
    elif model.kind == "junk":
        truth = seen = np.where(random.random(size) < 0.5, truth, truth / 10 - 5)
    elif model.kind == "length":
        noise = np.abs(length)[:, None] + np.abs(length)
        quirk = quirk - (truth[:, None] - truth) * noise / (1 + noise)
    elif model.kind == "verbosity":
        seen = truth + 0.8 * (0.3 * truth / model.sigma + 0.91**0.5 * length)
    return truth, seen, quirk


def draw_strengths(size: int, model: Model, random: Generator) -> Floats:
    if model.family == "logistic":
        return random.normal(0, model.sigma, size)
    return np.asarray(random.standard_t(5, size) * model.sigma * (3 / 5) ** 0.5)


def draw_quirks(size: int, model: Model, random: Generator) -> Floats:
    if not model.pair_sd:
        return np.zeros((size, size))
    upper = np.triu(random.normal(0, model.pair_sd, (size, size)), 1)
    return np.asarray(upper - upper.T)


def draw_verdicts(truth: Floats, quirk: Floats, luck: Floats, model: Model) -> Ints:
    """Half points of the first by ordered pair, from uniform luck."""
    gap = truth[:, None] - truth[None, :] + model.bias + quirk
    if model.family == "logistic":
        win, lose = np.exp(gap / 2), np.exp(-gap / 2)
        total = win + lose + model.nu
        return np.where(luck < win / total, 2, np.where(luck < (win + model.nu) / total, 1, 0)).astype(np.int64)
    normal = np.vectorize(NormalDist(0, 1.6).inv_cdf)(np.clip(1 - luck, 1e-9, 1 - 1e-9))
    value = gap + normal
    lapse = (luck * 1000) % 1 < model.lapse
    usual = np.where(value > model.nu, 2, np.where(value < -model.nu, 0, 1))
    return np.where(lapse, ((luck * 7919) % 1 * 3).astype(np.int64), usual).astype(np.int64)


def play(world: SimulatedWorld, schedule: Schedule) -> list[Result]:
    """Ask until the schedule is finished."""
    results: list[Result] = []
    while batch := schedule.next_batch(results, ()):
        for question in batch:
            results += world.order_of(question) if isinstance(question, Group) else [world.answer(question)]
    return results


def looks_of(results: Sequence[Result]) -> list[tuple[int, int]]:
    return [(int(result.first), int(result.second)) for result in results]


def elo_order(table: Tally, seed: bytes) -> Ints:
    """Items by published Elo, best first."""
    return np.argsort(-rate(table, seed), kind="stable")


def quality(truth: Floats, order: Ints, payout_bps: Sequence[int] = TOP3) -> Quality:
    """Compare an order with the truth for these prizes."""
    size, k = len(truth), min(len(payout_bps), len(truth))
    best = np.argsort(-truth, kind="stable")
    prizes = np.array(payout_bps[:k], dtype=float) / sum(payout_bps[:k])
    paid, due = np.zeros(size), np.zeros(size)
    paid[order[:k]], due[best[:k]] = prizes, prizes
    place = np.empty(size)
    place[order] = -np.arange(size)
    agree = np.sign(truth[:, None] - truth) * np.sign(place[:, None] - place)
    return Quality(
        top1=float(order[0] == best[0]),
        set=float(sorted(truth[order[:k]].tolist()) == sorted(truth[best[:k]].tolist())),
        order=float(np.array_equal(order[:k], best[:k])),
        misallocation=float(np.abs(paid - due).sum() / 2),
        regret=float(prizes @ (truth[best[:k]] - truth[order[:k]])),
        tau=float(agree.sum() / max(1, size * (size - 1))),
    )


def mean_quality(qualities: Sequence[Quality]) -> Quality:
    names = [each.name for each in fields(Quality)]
    return Quality(*(float(np.mean([getattr(quality, name) for quality in qualities])) for name in names))
