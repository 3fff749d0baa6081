"""docs/trace-format.md, section 9, has the formulas that the code has: every published estimate from the page alone."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from tests.support.simulation import TOP3, Model, draw_world, play

from clara_eval.ranking import Ranking, Tally, choose_schedule, rank, tally
from clara_eval.ranking.results import Floats

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "trace-format.md").read_text(encoding="utf-8").split())
Row = tuple[int, int, int, float]


def on_page(pattern: str) -> list[float]:
    """The numbers that the page has in this place."""
    found = re.search(pattern, PAGE)
    assert found, f"the page has no {pattern}"
    return [float(number) for number in found.groups()]


(SIDE_SD,) = on_page(r"γ ~ N\(0, ([\d.]+)²\)")
(ORDER,) = on_page(r"c is ([\d.]+) for pairs from an order and 1 else")
S, P, L = on_page(r"s = ([\d.]+), P = ([\d.]+), L = ([\d.]+)\.")
WEIGHT, PRIOR = on_page(r"s² = \(Σθ² \+ (\d+) · ([\d.]+)²\) /")
SHARED, SAME = on_page(r"equal sequences \+ ([\d.]+) · ([\d.]+)\)")
MOST_L, MOST_P = on_page(r"within 0…([\d.]+) and 0…([\d.]+)\. Then fit once more")
(DRAWS,) = map(int, on_page(r"(\d+) vectors θ ± A n"))
RANKS = tuple(map(int, on_page(r"are the places (\d+) and (\d+) of its 2000 sorted ranks")))
assert "the `elo` at the places `rankLow` and `rankHigh`, each sorted by itself" in PAGE


def fitted(rows: list[Row], size: int, from_order: list[bool]) -> tuple[Floats, Floats, Floats]:
    """θ, γ and C: the mode by plain Newton steps, measured seven times, and once more."""
    total, s, p_shared, l_shared = size + len(from_order), S, P, L
    design = np.zeros((len(rows), total))
    for number, (first, second, judge, _) in enumerate(rows):
        design[number, [first, second, size + judge]] = 1, -1, 1
    points = np.array([row[3] for row in rows])
    shown = defaultdict(list)
    for number, row in enumerate(rows):
        shown[row[:2]].append(number)
    at, v = np.zeros(total), np.full(len(rows), 0.25)
    for measured in range(8):
        w = np.array(
            [
                (ORDER if from_order[judge] else 1)
                / (1 + v[k] * ((len(shown[a, b]) - 1) * l_shared + len(shown[b, a]) * p_shared))
                for k, (a, b, judge, _) in enumerate(rows)
            ]
        )
        prior = np.array([s**-2] * size + [SIDE_SD**-2] * len(from_order))
        for _ in range(100):
            chance = 1 / (1 + np.exp(-design @ at))
            curvature = design.T @ ((w * chance * (1 - chance))[:, None] * design) + np.diag(prior)
            step = np.linalg.solve(curvature, design.T @ (w * (points - chance)) - prior * at)
            at = at + step / max(1.0, float(np.abs(step).max()))
        chance = 1 / (1 + np.exp(-design @ at))
        c = np.linalg.inv(design.T @ ((w * chance * (1 - chance))[:, None] * design) + np.diag(prior)).astype(
            np.float64
        )
        if measured == 7:
            return at[:size], at[size:], c
        v, rest = chance * (1 - chance), points - chance
        known = max(0.0, size - float(np.trace(c[:size, :size])) / s**2)
        s = math.sqrt((float(at[:size] @ at[:size]) + WEIGHT * PRIOR**2) / (known + WEIGHT))
        sums = {"same": [SHARED * SAME, SHARED], "other": [SHARED * P, SHARED]}
        for (a, b), numbers in shown.items():
            u = c[a, a] + c[b, b] - 2 * c[a, b]
            turned = product(numbers, shown.get((b, a), [])) if a < b else ()
            for kind, sign, pairs in (("same", 1, combinations(numbers, 2)), ("other", -1, turned)):
                for k, m in pairs:
                    sums[kind][0] += sign * rest[k] * rest[m] + u * v[k] * v[m]
                    sums[kind][1] += v[k] * v[m]
        l_shared = min(max(sums["same"][0] / sums["same"][1], 0), MOST_L)
        p_shared = min(max(sums["other"][0] / sums["other"][1], 0), MOST_P)
    raise AssertionError


def drawn(theta: Floats, c: Floats) -> Floats:
    size, half = len(theta), DRAWS // 2
    count = half * size
    stream = hashlib.shake_256(b"clara-eval normals draws").digest(16 * math.ceil(count / 2))
    words = [(int.from_bytes(stream[k : k + 8], "little") >> 11) + 0.5 for k in range(0, len(stream), 8)]
    u, t = np.array(words[: len(words) // 2]) / 2**53, np.array(words[len(words) // 2 :]) / 2**53
    radius = np.sqrt(-2 * np.log(u))
    flat = [*(radius * np.cos(2 * np.pi * t)), *(radius * np.sin(2 * np.pi * t))][:count]
    moves = np.array(flat).reshape(half, size) @ np.linalg.cholesky(c[:size, :size]).T
    return np.concatenate((theta + moves, theta - moves))


def check(found: Ranking, table: Tally) -> None:
    """Every estimate of the ranking against the page's formulas."""
    columns = zip(table.first.tolist(), table.second.tolist(), table.judge.tolist(), table.points.tolist(), strict=True)
    theta, side, c = fitted(list(columns), table.size, list(table.read_off or (False,) * len(table.judges)))
    draws = drawn(theta, c)
    place = np.argsort(np.argsort(-draws, axis=1, kind="stable"), axis=1)
    index = {item: number for number, item in enumerate(table.items)}
    order, free = [index[s.item] for s in found.standings], theta - theta.mean()
    elo_at, theta_at = sorted((s.elo for s in found.standings), reverse=True), sorted(free, reverse=True)
    for s in found.standings:
        i = index[s.item]
        ranks = np.sort(place[:, i])
        best, worst = (ranks[at - 1] for at in RANKS)
        low, high = min(free[i], theta_at[worst]), max(free[i], theta_at[best])
        assert (s.theta, s.theta_low, s.theta_high) == pytest.approx((free[i], low, high), abs=1e-3)
        assert (s.low, s.high) == pytest.approx((min(s.elo, elo_at[worst]), max(s.elo, elo_at[best])), abs=0.06)
        assert s.p_top == pytest.approx(np.mean(place[:, i] < found.winner_count), abs=2e-3)
        assert s.p_rank == pytest.approx([np.mean(place[:, i] == k) for k in range(len(s.p_rank))], abs=2e-3)
        assert (s.rank_low, s.rank_high) == (best + 1, worst + 1)
    for number, margin in enumerate(found.margins):
        ahead = 0.5 if margin.tied else np.mean(place[:, order[number]] < place[:, order[number + 1]])
        best = np.mean((place[:, order[: number + 1]] <= number).all(axis=1))
        assert (margin.probability, margin.set_chance) == pytest.approx((ahead, best), abs=2e-3)
    prizes = np.zeros(table.size)
    prizes[: len(found.payout_bps)] = np.array(found.payout_bps) / 10_000
    paid = np.zeros(table.size)
    paid[order] = prizes
    assert found.misallocation == pytest.approx(np.abs(prizes[place] - paid).sum(axis=1).mean() / 2, abs=2e-3)
    assert [judge.position_bias for judge in found.consistency.judges] == pytest.approx(list(side), abs=1e-3)


@pytest.mark.parametrize(("size", "kept"), [(5, 0.0), (9, 0.0), (12, 1.0)])
def test_every_published_estimate_follows_from_the_page(size: int, kept: float) -> None:
    """Both orders, fresh orders of four, and orders that repeat pairs."""
    world = draw_world(size, 8, Model(kept=kept))
    results = play(world, choose_schedule(world.items, ("",), max_comparisons=60, winner_count=3, payout_bps=TOP3))
    table = tally(world.items, results)
    check(rank(table, seed=b"page", winner_count=3, payout_bps=TOP3), table)
