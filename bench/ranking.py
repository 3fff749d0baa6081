"""The ranking benchmark: every target with its measured value, paired on seeds that were not used to choose anything.

Prints one JSON document: a row for each target with `target`, `measured` and `pass`. Winners are chosen by the shipped
Elo; where Bradley–Terry differs it is reported beside it. `c` is Bradley–Terry on the balanced full round (Borda at 300
items), `seed` the literal single pass with the lower index always shown first. The public data set is read from
`--data`; without it those rows say so.

The parts with simulated judges keep every trial in the folder `--keep`, one line each, and go on where the last run
ended, for at most `--minutes` each: many short runs add up to the wanted trials. A row says how many of the wanted
there are. Delete the folder when schedules or fits change: its lines know nothing of the code that made them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from clara_eval.ranking.estimate import estimate, standardised
from clara_eval.ranking.fours import Fours
from clara_eval.ranking.pairwise_csv import read_pairwise
from clara_eval.ranking.simulator import (
    TOP3,
    Model,
    Quality,
    SimulatedWorld,
    draw_world,
    elo_order,
    looks_of,
    play,
    quality,
)
from clara_eval.ranking.strength import fit
from clara_eval.ranking.uncertainty import word_for
from tests.support.simulated_jury import draw_jury, published_order, strength_order

from clara_eval.ranking import rank
from clara_eval.ranking.adaptive import (
    Adaptive,
    Tuning,
    best_pairs,
    objective,
    swiss_round,
)
from clara_eval.ranking.consistency import count_cycles, net_wins
from clara_eval.ranking.elo import elo, literal_elo
from clara_eval.ranking.results import Result, Winner
from clara_eval.ranking.schedule import Both, Field, Full, balanced_looks
from clara_eval.ranking.tally import Ints, Tally, tally, tally_columns

SEEDS = 9_000_000  # far from the seeds with which anything was tuned
ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Row:
    """One target."""

    id: str
    target: str
    measured: dict[str, Any]
    passed: bool | None
    note: str = ""
    seconds: float = field(default=0.0)

    def as_json(self) -> dict[str, Any]:
        shown = {"id": self.id, "target": self.target, "measured": self.measured, "pass": self.passed}
        return {**shown, **({"note": self.note} if self.note else {}), "seconds": round(self.seconds, 1)}


@dataclass(frozen=True)
class Run:
    """How much to run and where."""

    quick: bool
    jobs: int
    data: Path
    share: float = 1.0
    evalica: str = ""
    keep: Path | None = None
    minutes: float = 1e9

    def trials(self, full: int) -> int:
        return max(8, full // 20) if self.quick else max(8, round(full * self.share))

    def over(self, work: Callable[[int], Any], trials: int, offset: int) -> list[Any]:
        seeds = [SEEDS + offset + trial for trial in range(trials)]
        if self.jobs == 1:
            return [work(seed) for seed in seeds]
        with Pool(self.jobs) as pool:
            return pool.map(work, seeds, chunksize=2)

    def kept(self, name: str, work: Callable[[int], Any], trials: int, offset: int) -> list[dict[str, Any]]:
        """As `over`, for trials that give dictionaries; with a folder they are kept, and only what lacks is done."""
        if self.keep is None:
            return self.over(work, trials, offset)
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{name}.jsonl"
        found = _recorded(path, range(SEEDS + offset, SEEDS + offset + trials))
        rest = [seed for seed in range(SEEDS + offset, SEEDS + offset + trials) if seed not in found]
        end = time.perf_counter() + 60 * self.minutes
        with path.open("a", encoding="utf-8") as file, Pool(self.jobs) as pool:
            for seed, told in pool.imap_unordered(partial(_numbered, work), rest) if self.minutes > 0 else ():
                found[seed] = told
                file.write(json.dumps({"seed": seed, "told": told}, default=asdict) + "\n")
                file.flush()
                if time.perf_counter() > end:
                    pool.terminate()
                    break
        return [found[seed] for seed in sorted(found)]


def _numbered(work: Callable[[int], Any], seed: int) -> tuple[int, Any]:
    return seed, work(seed)


def _recorded(path: Path, seeds: range) -> dict[int, dict[str, Any]]:
    """The trials in a file, by seed; a line cut short by an interruption is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.endswith("}}") and (trial := json.loads(line))["seed"] in seeds:
            told = trial["told"]
            found[trial["seed"]] = {k: Quality(**v) if isinstance(v, dict) else v for k, v in told.items()}
    return found


def key(seed: int) -> bytes:
    return f"bench {seed}".encode()


def lower_first(world: SimulatedWorld) -> list[tuple[int, int]]:
    return [(i, j) for i in range(world.size) for j in range(i + 1, world.size)]


def literal_order(world: SimulatedWorld, looks: Sequence[tuple[int, int]]) -> Ints:
    first, second = np.array(looks).T
    ratings = literal_elo(world.size, first, second, world.verdicts[first, second] / 2)
    return np.argsort(-ratings, kind="stable")


def borda_order(table: Tally) -> Ints:
    won = np.bincount(table.first, table.points, table.size) + np.bincount(table.second, 1 - table.points, table.size)
    return np.argsort(-won, kind="stable")


def adaptive_looks(world: SimulatedWorld, calls: int) -> list[tuple[int, int]]:
    """A tournament that spends its whole budget: the stop on a clear pay line would only save calls."""
    schedule = Adaptive(Field(world.items, max_comparisons=calls), 3, TOP3, Tuning(sure=1.1))
    return looks_of(play(world, schedule))


def paired(runs: Sequence[dict[str, Quality]], name: str, against: str) -> dict[str, float]:
    """Means of a method and its paired difference to another, with the standard error of the difference."""
    table = np.array([[getattr(run[k], f) for k in (name, against) for f in ("set", "misallocation")] for run in runs])
    means, gap = table.mean(axis=0), table[:, :2] - table[:, 2:]
    error = gap.std(axis=0) / len(runs) ** 0.5
    return {
        "set": round(float(means[0]), 4),
        "misallocation": round(float(means[1]), 4),
        "setGain": round(float(gap[:, 0].mean()), 4),
        "misallocationGain": round(float(gap[:, 1].mean()), 4),
        "setError": round(float(error[0]), 4),
        "misallocationError": round(float(error[1]), 4),
    }


# 1 and 2: order and position


def shuffles(seed: int) -> tuple[int, int]:
    world = draw_world(25, seed)
    results = [world.answer(game) for game in Field(world.items).pairings(list(balanced_looks(25)))]
    random = Random(seed)
    fixed, literal = set(), set()
    for _ in range(5):
        random.shuffle(results)
        fixed.add(repr(rank(world.items, results, seed=key(seed), winner_count=3, payout_bps=TOP3)))
        single = rank(world.items, results, seed=key(seed), winner_count=3, payout_bps=TOP3, literal=True)
        literal.add(frozenset(single.winners))
    return len(fixed) > 1, len(literal) > 1


def target_1(run: Run) -> list[Row]:
    found = np.array(run.over(shuffles, run.trials(100), 0))
    measured = {"changed": float(found[:, 0].mean()), "literalSetChangedIn5Orders": float(found[:, 1].mean())}
    return [
        Row("1", "shuffled results change 0 % of rankings (whole output compared)", measured, measured["changed"] == 0)
    ]


def positions(seed: int) -> tuple[Any, Any]:
    world = draw_world(25, seed, Model(bias=1.0))
    balanced = elo_order(world.table(list(balanced_looks(25))), key(seed))
    return balanced[:3], literal_order(world, lower_first(world))[:3]


def target_2(run: Run) -> list[Row]:
    found = run.over(positions, run.trials(3000), 10_000)
    shares = []
    for which in (0, 1):
        tops = np.concatenate([each[which] for each in found])
        chance = np.bincount(tops, minlength=25) / len(found)
        shares.append([round(float(chance[a : a + 5].mean()), 4) for a in (0, 20)])
    good = all(abs(share - 0.12) <= 0.015 for share in shares[0])
    measured = {"index0to4": shares[0][0], "index20to24": shares[0][1], "seed": shares[1], "trials": len(found)}
    return [Row("2", "bias 1.0: P(top 3) of index blocks 0–4 and 20–24 within .12 ± .015", measured, good)]


# 3 to 7: quality against calls


def fixed(seed: int) -> dict[str, Quality]:
    world = draw_world(25, seed)
    full = world.table(list(balanced_looks(25)))
    orders = {
        "seed": literal_order(world, lower_first(world)),
        "full": elo_order(full, key(seed)),
        "bt": strength_order(full),
    }
    return {name: quality(world.truth, order) for name, order in orders.items()}


def target_3(run: Run) -> list[Row]:
    """Many trials: the gain is smaller than what 600 of them can tell from luck (±.02)."""
    runs = run.kept("fixed", fixed, run.trials(6000), 100_000)
    if not runs:
        return []
    target = "25 items, full, 300 calls: misallocation ≤ seed − .01, set ≥ seed + .03"
    found = row("3", target, runs, ("full", "seed"), (0.03, -0.01))
    found.measured["bradleyTerry"] = paired(runs, "bt", "seed")
    return [found]


def small(seed: int) -> dict[str, Quality]:
    world = draw_world(25, seed)
    full = world.table(list(balanced_looks(25)))
    orders = {"c": strength_order(full)}
    looks = adaptive_looks(world, 300)
    for calls in (123, 153, 300):
        table = world.table(looks[:calls])
        orders[f"elo{calls}"], orders[f"bt{calls}"] = elo_order(table, key(seed)), strength_order(table)
    both = world.table([(i, j) for i in range(25) for j in range(25) if i != j])
    orders["both"] = elo_order(both, key(seed))
    return {name: quality(world.truth, order) for name, order in orders.items()}


def row(
    ident: str, target: str, runs: Sequence[dict[str, Quality]], names: tuple[str, str], limits: tuple[float, float]
) -> Row:
    """Pass if set gains at least the first limit and misallocation at most the second."""
    measured: dict[str, Any] = paired(runs, *names)
    good = measured["setGain"] >= limits[0] and measured["misallocationGain"] <= limits[1]
    if names[0].startswith("elo"):
        measured["bradleyTerry"] = paired(runs, "bt" + names[0][3:], names[1])
    measured["trials"] = len(runs)
    return Row(ident, target, measured, good)


def targets_4_and_5(run: Run) -> list[Row]:
    runs = run.kept("small", small, run.trials(800), 20_000)
    if not runs:
        return []
    both = paired(runs, "both", "c")
    return [
        row("4", "25 items, ≤ 153 calls: set ≥ c, misallocation ≤ c − .03", runs, ("elo153", "c"), (0, -0.03)),
        row("4 stretch", "the same with ≤ 123 calls", runs, ("elo123", "c"), (0, -0.03)),
        row("5", "25 items, ≤ 300 calls: set ≥ c + .10, misallocation ≤ c − .05", runs, ("elo300", "c"), (0.10, -0.05)),
        Row("both", "for comparison: 600 calls, both orders of all pairs", both, None),
    ]


def middle(seed: int) -> dict[str, Quality]:
    world = draw_world(100, seed)
    orders = {"c": strength_order(world.table(list(balanced_looks(100))))}
    looks = adaptive_looks(world, 743)
    for calls in (609, 743):
        table = world.table(looks[:calls])
        orders[f"elo{calls}"], orders[f"bt{calls}"] = elo_order(table, key(seed)), strength_order(table)
    return {name: quality(world.truth, order) for name, order in orders.items()}


def target_6(run: Run) -> list[Row]:
    runs = run.kept("middle", middle, run.trials(600), 40_000)
    if not runs:
        return []
    target = "100 items, ≤ 743 calls: set ≥ c − .02, misallocation ≤ c"
    return [
        row("6", target, runs, ("elo743", "c"), (-0.02, 0)),
        row("6 stretch", "the same with ≤ 609 calls", runs, ("elo609", "c"), (-0.02, 0)),
    ]


def large(seed: int) -> dict[str, Quality]:
    world = draw_world(300, seed)
    table = world.table(adaptive_looks(world, 2260))
    orders = {
        "c": borda_order(world.table(list(balanced_looks(300)))),
        "elo2260": elo_order(table, key(seed)),
        "bt2260": strength_order(table),
    }
    return {name: quality(world.truth, order) for name, order in orders.items()}


def target_7(run: Run) -> list[Row]:
    # 160 trials know the gain in sets only to ±.043, which is as much as the target's own margin.
    runs = run.kept("large", large, run.trials(400), 60_000)
    if not runs:
        return []
    target = "300 items, ≤ 2260 calls: set ≥ c − .04, misallocation ≤ c + .02"
    return [row("7", target, runs, ("elo2260", "c"), (-0.04, 0.02))]


# 8: calibration


def believed(seed: int, pair_sd: float) -> tuple[Any, ...]:
    world = draw_world(25, seed, Model(pair_sd=pair_sd))
    results = [world.answer(game) for game in Field(world.items).pairings(adaptive_looks(world, 180))]
    found = rank(world.items, results, seed=key(seed), winner_count=3, payout_bps=TOP3)
    best = set(np.argsort(-world.truth)[:3].tolist())
    truth = world.truth - world.truth.mean()
    chances = [(s.p_top, int(s.item) in best) for s in found.standings]
    covered = [s.theta_low <= truth[int(s.item)] <= s.theta_high for s in found.standings]
    k, rest = int(found.margin.item), int(found.margin.next_item)
    return chances, covered, (found.margin.word, bool(truth[k] > truth[rest]))


def believed_plain(seed: int) -> tuple[Any, ...]:
    return believed(seed, 0.0)


def believed_quirks(seed: int) -> tuple[Any, ...]:
    return believed(seed, 1.0)


def target_8(run: Run) -> list[Row]:
    rows = []
    cases: list[tuple[str, Callable[[int], Any], int]] = [
        ("base", believed_plain, 500),
        ("pair effects", believed_quirks, 500),
    ]
    for name, work, trials in cases:
        found = run.over(work, run.trials(trials), 80_000)
        chances = np.array([pair for each in found for pair in each[0]])
        coverage = float(np.mean([inside for each in found for inside in each[1]]))
        bins = calibration(chances)
        worst = max(abs(b["predicted"] - b["actual"]) for b in bins)
        words = {
            word: [round(float(np.mean(hits)), 3), len(hits)]
            for word in ("toss-up", "uncertain", "clear")
            if (hits := [each[2][1] for each in found if each[2][0] == word])
        }
        measured = {"worstBin": round(worst, 4), "coverage": round(coverage, 4), "bins": bins, "payLineRight": words}
        target = f"{name}: P(top 3) in every decile bin within .08, 95 % intervals cover ≥ .90 (180 calls)"
        rows.append(Row(f"8 {name}", target, measured, worst <= 0.08 and coverage >= 0.90))
    return rows


def calibration(chances: np.ndarray[Any, Any]) -> list[dict[str, float]]:
    decile = np.minimum((chances[:, 0] * 10).astype(int), 9)
    return [
        {
            "predicted": round(float(chances[decile == d, 0].mean()), 3),
            "actual": round(float(chances[decile == d, 1].mean()), 3),
            "items": int(np.sum(decile == d)),
        }
        for d in range(10)
        if np.any(decile == d)
    ]


# 9: size


def target_9(_: Run) -> list[Row]:
    world = draw_world(1000, SEEDS)
    full = world.table(list(balanced_looks(1000)))
    beats = net_wins(full)
    cycles = min(clocked(lambda: count_cycles(beats), time.perf_counter) for _ in range(3))
    looks = Random(1).sample(list(balanced_looks(1000)), 12_000)
    table = world.table(looks)
    fitting = min(clocked(lambda: fit(table), time.process_time) for _ in range(3))
    results = [world.answer(game) for game in Field(world.items).pairings(looks)]
    whole = min(
        clocked(lambda: rank(world.items, results, seed=b"x", winner_count=3), time.process_time) for _ in range(2)
    )
    return [
        Row("9 cycles", "1000 items: cycles ≤ .5 s", {"seconds": round(cycles, 3)}, cycles <= 0.5),
        Row(
            "9 fit",
            "1000 items, 12 000 calls: Bradley–Terry ≤ 1 CPU-s",
            {"cpuSeconds": round(fitting, 3)},
            fitting <= 1,
        ),
        Row("9 rank", "1000 items, 12 000 calls: whole ranking ≤ 5 CPU-s", {"cpuSeconds": round(whole, 2)}, whole <= 5),
    ]


def clocked(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


# The public data set and the speed of `rank`


def replay(job: tuple[int, str]) -> list[tuple[int, bool, bool]]:
    """Buy recorded comparisons one batch at a time, chosen from the fit that the adaptive schedule makes; after each
    batch: calls, is the set right by Elo, by fitted strength.
    """
    seed, path = job
    games = read_pairwise(Path(path))
    random = Random(SEEDS + seed)
    items = list(games.items)
    random.shuffle(items)
    whole = tally(items, games.results)
    want = set(np.argsort(-elo(whole.size, whole.first, whole.second, whole.points, b"whole"))[:3].tolist())
    pool = np.arange(len(whole.first))
    np.random.default_rng(SEEDS + seed).shuffle(pool)
    stock: dict[tuple[int, int], list[int]] = {}
    for i in pool.tolist():
        stock.setdefault((min(whole.first[i], whole.second[i]), max(whole.first[i], whole.second[i])), []).append(i)
    return list(_buy(whole, stock, want, seed))


def _buy(
    whole: Tally, stock: dict[tuple[int, int], list[int]], want: set[int], seed: int
) -> Iterable[tuple[int, bool, bool]]:
    size, bought = whole.size, np.zeros(len(whole.first), dtype=bool)
    left = np.zeros((size, size), dtype=np.int64)
    met = np.zeros((size, size), dtype=bool)
    for (i, j), rows in stock.items():
        left[i, j] = left[j, i] = len(rows)
    tuning, prizes = Tuning(), objective(None, 3, Tuning())  # paid alike: the question is who the three are
    found = estimate(whole.take(bought))
    for batch in range(10_000):
        pairs = swiss_round(found.theta, (left > 0) & ~met) if batch < tuning.opening_rounds(size) else []
        for i, j in pairs or best_pairs(found, prizes, left, tuning):
            bought[stock[min(i, j), max(i, j)].pop()] = True
            left[i, j] -= 1
            left[j, i] = left[i, j]
            met[i, j] = met[j, i] = True
        calls = int(bought.sum())
        if calls > 1000:
            return
        table = whole.take(bought)
        found = estimate(table, begin=found)
        by_strength = np.argsort(-found.theta, kind="stable")[:3]
        yield calls, set(elo_order(table, key(seed))[:3].tolist()) == want, set(by_strength.tolist()) == want


def public_set(run: Run) -> list[Row]:
    path = run.data / "ranking" / "llmfao_gpt4_comparisons.csv"
    if not path.exists():
        return [Row("public", "public data set", {}, None, note=f"not found: {path}; give its folder with --data")]
    seeds = 30 if not run.quick else 6
    with Pool(run.jobs) as pool:
        histories = pool.map(replay, [(seed, str(path)) for seed in range(seeds)], chunksize=1)
    measured: dict[str, Any] = {"seeds": seeds}
    for which, name in ((1, "elo"), (2, "strength")):
        measured[name] = {
            "shareRight": {str(c): round(_share(histories, c, which), 3) for c in (323, 485, 600, 647, 800, 970)},
            "neededForAllSeeds": max(_settled(history, which) for history in histories),
            "neededMedian": float(np.median([_settled(history, which) for history in histories])),
        }
    good = max(measured[name]["neededForAllSeeds"] for name in ("elo", "strength")) <= 600
    return [
        Row("public", "full-data top 3 in every one of 30 seeds with ≤ 600 comparisons", measured, good),
        *speed(path),
    ]


def _share(histories: Sequence[Sequence[tuple[int, bool, bool]]], calls: int, which: int) -> float:
    return float(np.mean([[step for step in history if step[0] <= calls][-1][which] for history in histories]))


def _settled(history: Sequence[tuple[int, bool, bool]], which: int) -> int:
    """Calls from which on the set stays right."""
    wrong = [n for n, step in enumerate(history) if not step[which]]
    first = wrong[-1] + 1 if wrong else 0
    return history[first][0] if first < len(history) else 10**6


def speed(path: Path) -> list[Row]:
    games = read_pairwise(path)
    rank(games.items, games.results, seed=None, winner_count=3)
    used = [
        clocked(lambda: _rank_file(path), clock) for clock in (time.process_time, time.perf_counter) for _ in range(3)
    ]
    cpu, wall = min(used[:3]), min(used[3:])
    measured = {"cpuSeconds": round(cpu, 3), "wallSeconds": round(wall, 3)}
    return [Row("rank file", "rank the public file (3236 rows): < .5 s of work beyond start-up", measured, cpu < 0.5)]


def _rank_file(path: Path) -> None:
    games = read_pairwise(path)
    rank(games.items, games.results, seed=None, winner_count=3)


def million(run: Run) -> list[Row]:
    """In a process of its own, so that its memory can be read; CPU seconds bound the wall time of an idle machine."""
    count = 50_000 if run.quick else 1_000_000
    random = np.random.default_rng(SEEDS)
    truth = random.normal(0, 1.65, 1000)
    first = random.integers(0, 1000, count)
    second = (first + random.integers(1, 1000, count)) % 1000
    wins = random.random(count) < 1 / (1 + np.exp(truth[second] - truth[first]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.csv"
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(("left", "right", "winner"))
            out.writerows(
                (f"i{a}", f"i{b}", "left" if w else "right") for a, b, w in zip(first, second, wins, strict=True)
            )
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "clara_eval", "rank", str(path), "--json"], check=True, stdout=subprocess.DEVNULL
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    measured = {"results": count, "cpuSeconds": round(cpu, 2), "wallSeconds": round(wall, 2)}
    measured |= {"megabytes": round(after.ru_maxrss / 1024), "load": round(os.getloadavg()[0], 1)}
    good = min(cpu, wall) <= 4 and after.ru_maxrss / 1024 < 500
    return [Row("rank million", "1 000 000 results over 1000 items, whole command: ≤ 4 s, < 500 MB", measured, good)]


# Words that are true, fewer calls


CASES: dict[str, Model] = {
    "base": Model(),
    "judge right on 70 %": Model(sigma=0.85),
    "judge right on 90 %": Model(sigma=3.55),
    "quirks sd 1": Model(pair_sd=1.0),
    "quirks sd 2": Model(pair_sd=2.0),
    "position bias 1.0": Model(bias=1.0),
    "another simulator": Model(family="probit"),
    "another simulator, quirks": Model(family="probit", pair_sd=1.0),
}
JURY = "jury of three, correlation .6"


def said(case: str, kind: str, seed: int, size: int = 25) -> dict[str, float]:
    """One challenge in a case: what the ranking said about the paid set, and whether it was so."""
    world = draw_jury(size, seed, judges=3, correlation=0.6) if case == JURY else draw_world(size, seed, CASES[case])
    field_ = Field(world.items, ("0", "1", "2") if case == JURY else ("",))
    found = rank(world.items, play(world, (Both if kind == "both" else Full)(field_)), seed=key(seed), winner_count=3)
    truth, margin = world.truth - world.truth.mean(), found.margin
    best = set(np.argsort(-truth)[:3].tolist())
    place = np.empty(size, dtype=int)
    place[np.argsort(-truth)] = np.arange(1, size + 1)
    return {
        "right": float({int(item) for item in found.winners} == best),
        "ahead": float(truth[int(margin.item)] > truth[int(margin.next_item)]),
        "setChance": margin.set_chance,
        "probability": margin.probability,
        "covered": float(np.mean([s.theta_low <= truth[int(s.item)] <= s.theta_high for s in found.standings])),
        "rankCovered": float(np.mean([s.rank_low <= place[int(s.item)] <= s.rank_high for s in found.standings])),
    }


def share(runs: Sequence[dict[str, float]], what: str, when: Callable[[dict[str, float]], bool]) -> dict[str, Any]:
    hits = [run[what] for run in runs if when(run)]
    if not hits:
        return {"share": None, "error": None, "cases": 0}
    mean = float(np.mean(hits))
    return {"share": round(mean, 4), "error": round((mean * (1 - mean) / len(hits)) ** 0.5, 4), "cases": len(hits)}


def speaks(word: str, run: dict[str, float]) -> bool:
    """Whether the ranking used this word; from the kept chances, so that trials outlive a change of thresholds."""
    return word_for(run["probability"], run["setChance"]) == word


def words(run: Run) -> list[Row]:
    rows = []
    trials = run.trials(1000)
    for number, case in enumerate([*CASES, JURY]):
        runs = run.kept(f"words-{number}", partial(said, case, "both"), trials, 1_000_000 + 10_000 * number)
        if not runs:
            continue
        clear, toss = share(runs, "right", partial(speaks, "clear")), share(runs, "ahead", partial(speaks, "toss-up"))
        sure = share(runs, "ahead", lambda run: run["probability"] >= 0.9)
        covered = [each["covered"] for each in runs]
        measured = {
            "setRightWhenClear": clear,
            "rightWhenTossUp": toss,
            "rightWhenP90": sure,
            "setChance": calibration(np.array([(each["setChance"], each["right"]) for each in runs])),
            "coverage": round(float(np.mean(covered)), 4),
            "coverageError": round(float(np.std(covered) / len(runs) ** 0.5), 4),
            "rankCoverage": round(float(np.mean([each["rankCovered"] for each in runs])), 4),
            "trials": len(runs),
            "wanted": 1000,
        }
        good = (clear["share"] is None or clear["share"] >= 0.89) and (toss["share"] or 0) >= 0.45
        if case == JURY:
            good = good and (sure["share"] or 0) >= 0.93
        target = f"{case}, both: set right ≥ .89 when clear, toss-up right ≥ .45"
        rows.append(Row(f"words: {case}", target + (", p ≥ .9 right ≥ .93" if case == JURY else ""), measured, good))
    return rows


def coverage(run: Run) -> list[Row]:
    rows = []
    trials = run.trials(600)
    cases = ("base", "quirks sd 1", "judge right on 90 %")
    every = [(size, case, kind) for size in (25, 10) for case in cases for kind in ("full", "both")]
    for number, (size, case, kind) in enumerate(every):
        work = partial(said, case, kind, size=size)
        runs = run.kept(f"coverage-{number}", work, trials, 2_000_000 + 10_000 * number)
        if not runs:
            continue
        covered = [each["covered"] for each in runs]
        measured = {"coverage": round(float(np.mean(covered)), 4), "trials": len(runs), "wanted": 600}
        measured["error"] = round(float(np.std(covered) / len(runs) ** 0.5), 4)
        measured["rankCoverage"] = round(float(np.mean([each["rankCovered"] for each in runs])), 4)
        name = f"intervals: {kind}, {case}" + ("" if size == 25 else f", {size} items")
        rows.append(Row(name, "95 % intervals cover ≥ .90", measured, measured["coverage"] >= 0.90))
    return rows


def first_calls(results: Sequence[Result], calls: int) -> list[Result]:
    """The results of the first questions; one order of four is one question and six results."""
    kept: list[Result] = []
    asked: set[Any] = set()
    for result in results:
        asked.add((result.group, result.judge) if result.group else result.pairing)
        if len(asked) > calls:
            return kept
        kept.append(result)
    return kept


def few(seed: int, size: int, budgets: Sequence[int], model: Model) -> dict[str, Quality]:
    """The schedule fours at several budgets, and what it is held against."""
    world = draw_world(size, seed, model)
    schedule = Fours(Field(world.items, max_comparisons=max(budgets)), 3, TOP3, Tuning(sure=1.1))
    results = play(world, schedule)
    orders: dict[str, Ints] = {}
    for calls in budgets:
        table = tally(world.items, first_calls(results, calls))
        orders[f"fours{calls}"] = np.argsort(-np.round(estimate(table).theta, 6), kind="stable")
    if size == 25:
        orders["against"] = elo_order(world.table([(i, j) for i in range(25) for j in range(25) if i != j]), key(seed))
    elif size == 100:
        orders["against"] = strength_order(world.table(list(balanced_looks(size))))
    else:
        orders["against"] = borda_order(world.table(list(balanced_looks(size))))
    return {name: quality(world.truth, order) for name, order in orders.items()}


def few_25(model: Model, seed: int) -> dict[str, Quality]:
    return few(seed, 25, (63, 183, 240), model)


def few_100(seed: int) -> dict[str, Quality]:
    return few(seed, 100, (500,), Model())


def few_300(seed: int) -> dict[str, Quality]:
    return few(seed, 300, (1800,), Model())


ORDERS: dict[str, Model] = {
    "": Model(),
    ", another simulator": Model(family="probit"),
    ", orders that repeat the verdicts on pairs": Model(kept=True),
}


def fewer(run: Run) -> list[Row]:
    rows = []
    for number, (name, model) in enumerate(ORDERS.items()):
        runs = run.kept(f"few-25-{number}", partial(few_25, model), run.trials(1000), 3_000_000 + 100_000 * number)
        if not runs:
            continue
        for calls, ident in ((240, "calls: 25 items"), (183, "calls: 25 items, stretch")):
            target = f"≤ {calls} calls: set ≥ both orders (600) − .02, misallocation ≤ + .01{name}"
            rows.append(row(ident + name, target, runs, (f"fours{calls}", "against"), (-0.02, 0.01)))
        measured: dict[str, Any] = {**paired(runs, "fours63", "against"), "trials": len(runs)}
        good = measured["set"] >= 0.27 and measured["misallocation"] <= 0.31
        target = f"≤ 63 calls: set ≥ .27, misallocation ≤ .31{name}"
        rows.append(Row(f"calls: 25 items, few{name}", target, measured, good))
    return _of(rows, 1000)


def _of(rows: list[Row], wanted: int) -> list[Row]:
    for one in rows:
        one.measured["wanted"] = wanted
    return rows


def fewer_100(run: Run) -> list[Row]:
    runs = run.kept("few-100", few_100, run.trials(400), 3_300_000)
    target = "100 items, ≤ 500 calls: set ≥ c − .02, misallocation ≤ c + .01 (c: 4950 calls)"
    rows = [row("calls: 100 items", target, runs, ("fours500", "against"), (-0.02, 0.01))] if runs else []
    return _of(rows, 400)


def fewer_300(run: Run) -> list[Row]:
    runs = run.kept("few-300", few_300, run.trials(200), 3_350_000)
    target = "300 items, ≤ 1800 calls: set ≥ c − .02, misallocation ≤ c + .01 (c: Borda, 44850 calls)"
    rows = [row("calls: 300 items", target, runs, ("fours1800", "against"), (-0.02, 0.01))] if runs else []
    return _of(rows, 200)


def covaried(seed: int) -> dict[str, Quality]:
    """Four typed features that explain nothing, or three quarters of the strengths, beside none; 63 calls."""
    world = draw_world(25, seed)
    random = np.random.default_rng([seed, 4])
    noise = random.normal(size=(4, 25))
    told = world.truth / 1.65 + (1 / 0.75 - 1) ** 0.5 * 2 * noise  # the mean of the four explains .75
    features = {"none": None, "nothing": standardised(noise.tolist(), 25), "much": standardised(told.tolist(), 25)}
    found: dict[str, Quality] = {}
    for name, columns in features.items():
        field_ = Field(world.items, max_comparisons=63)
        results = play(world, Fours(field_, 3, TOP3, Tuning(sure=1.1), features=columns))
        theta = estimate(tally(world.items, results), columns).theta
        found[name] = quality(world.truth, np.argsort(-np.round(theta, 6), kind="stable"))
    return found


def features_help(run: Run) -> list[Row]:
    runs = run.kept("covariates", covaried, run.trials(400), 3_600_000)
    if not runs:
        return []
    harmless, helpful = paired(runs, "nothing", "none"), paired(runs, "much", "none")
    good = harmless["setGain"] >= -2 * harmless["setError"]
    good = good and harmless["misallocationGain"] <= 2 * harmless["misallocationError"]
    target = "25 items, 63 calls: features that explain nothing do not hurt (within two standard errors)"
    return _of(
        [
            Row("calls: features, R² 0", target, {**harmless, "trials": len(runs)}, good),
            Row("calls: features, R² .75", "for comparison", {**helpful, "trials": len(runs)}, None),
        ],
        400,
    )


def below(seed: int) -> dict[str, Quality]:
    world = draw_world(25, seed)
    table = world.table(adaptive_looks(world, 153))
    return {
        "elo": quality(world.truth, elo_order(table, key(seed))),
        "published": quality(world.truth, published_order(table, key(seed))),
    }


def lower_places(run: Run) -> list[Row]:
    runs = run.over(below, run.trials(400), 3_400_000)
    tau = {name: round(float(np.mean([each[name].tau for each in runs])), 4) for name in ("elo", "published")}
    error = float(np.std([each["published"].tau for each in runs]) / len(runs) ** 0.5)
    measured = {**tau, "error": round(error, 4), "trials": len(runs)}
    return [
        Row(
            "below the pay line",
            "25 items, 153 calls: τ of the published order ≥ .62",
            measured,
            tau["published"] >= 0.62,
        )
    ]


def tied(seed: int) -> tuple[bool, bool]:
    world = draw_world(25, seed)
    results = play(world, (Both if seed % 2 else Full)(Field(world.items)))
    found = {rank(world.items, results, seed=str(k).encode(), winner_count=3, by_name=True).winners for k in range(4)}
    beaten = [Result(item, "loser", "first") for item in world.items]
    beaten += [Result("loser", item, "second") for item in world.items] if seed % 2 else []
    more = rank([*world.items, "loser"], [*results, *beaten], seed=b"0", winner_count=3, by_name=True).winners
    return len(found) > 1, more not in found


def ties(run: Run) -> list[Row]:
    found = np.array(run.over(tied, run.trials(300), 3_500_000))
    measured = {"changedBySeed": float(found[:, 0].mean()), "changedByLoser": float(found[:, 1].mean())}
    target = "equal records: 0 winner lists change with the seed, 0 with an entry that loses every game"
    return [Row("ties", target, {**measured, "trials": len(found)}, not found.any())]


EVALICA = """
import sys, time
import numpy as np
from evalica import Winner, bradley_terry
table = np.load(sys.argv[1])
left, right = ([f"i{k}" for k in column] for column in table[:2])
winners = [Winner.X if won else Winner.Y for won in table[2]]
start = time.process_time()
bradley_terry(left, right, winners)
print(time.process_time() - start)
"""


def beside_evalica(run: Run) -> list[Row]:
    """Tally and fit of a million results beside evalica's Bradley–Terry, from lists of names, in CPU seconds."""
    count = 50_000 if run.quick else 1_000_000
    random = np.random.default_rng(SEEDS)
    truth = random.normal(0, 1.65, 1000)
    first = random.integers(0, 1000, count)
    second = (first + random.integers(1, 1000, count)) % 1000
    wins = random.random(count) < 1 / (1 + np.exp(truth[second] - truth[first]))
    left, right = ([f"i{k}" for k in column.tolist()] for column in (first, second))
    winners: list[Winner] = ["first" if won else "second" for won in wins.tolist()]
    items = sorted({*left, *right})
    ours = min(clocked(lambda: fit(tally_columns(items, left, right, winners)), time.process_time) for _ in range(3))
    target = "1 000 000 results, 1000 items: tally and fit ≤ 2 × evalica"
    if not run.evalica:
        note = "give --evalica PYTHON, an interpreter that has evalica installed"
        return [Row("tally and fit", target, {"cpuSeconds": round(ours, 2)}, None, note=note)]
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "results.npy", np.array([first, second, wins]))
        command = [run.evalica, "-c", EVALICA, str(Path(folder) / "results.npy")]
        told = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(3)]
    theirs = min(float(text) for text in told)
    measured = {"cpuSeconds": round(ours, 2), "evalica": round(theirs, 2), "ratio": round(ours / theirs, 2)}
    return [Row("tally and fit", target, measured, ours <= 2 * theirs)]


TARGETS: dict[str, Callable[[Run], list[Row]]] = {
    "million": million,
    "1": target_1,
    "2": target_2,
    "3": target_3,
    "4-5": targets_4_and_5,
    "6": target_6,
    "7": target_7,
    "8": target_8,
    "9": target_9,
    "public": public_set,
    "evalica": beside_evalica,
    "ties": ties,
    "words": words,
    "coverage": coverage,
    "fewer": fewer,
    "fewer-100": fewer_100,
    "fewer-300": fewer_300,
    "covariates": features_help,
    "below": lower_places,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the trials: shows that it runs, proves nothing"
    )
    parser.add_argument("--only", default="", help=f"comma list of {', '.join(TARGETS)}")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the public data")
    parser.add_argument("--share", type=float, default=1.0, help="share of the trials; below 1 errors are larger")
    parser.add_argument("--evalica", default="", help="an interpreter in whose environment evalica is installed")
    parser.add_argument("--keep", type=Path, help="folder that keeps the trials, to go on another time")
    parser.add_argument("--minutes", type=float, default=1e9, help="at most so long for each part; 0 only tells")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    given = (options.share, options.evalica, options.keep, options.minutes)
    run = Run(options.quick, options.jobs, options.data, *given)
    wanted = options.only.split(",") if options.only else list(TARGETS)
    rows: list[Row] = []
    for name in wanted:
        start = time.perf_counter()
        made = TARGETS[name](run)
        if made:
            made[0].seconds = time.perf_counter() - start
        rows += made
        for one in made:
            print(
                f"{'ok ' if one.passed else '-- ' if one.passed is None else 'NO '} {one.id}: {one.target}",
                file=sys.stderr,
            )
    print(
        json.dumps(
            {"quick": run.quick, "share": run.share, "rows": [one.as_json() for one in rows]},
            indent=1,
            ensure_ascii=False,
        )
    )
    return int(any(one.passed is False for one in rows) and not run.quick)


if __name__ == "__main__":
    raise SystemExit(main())
