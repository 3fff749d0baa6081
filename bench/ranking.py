"""The ranking bench: misplaced money and right sets against calls, for the shipped default and plain baselines.

Prints one JSON document with a row for each case. Every release takes a fresh block of seeds (`--seeds`, far from all
others); trials are kept in the folder `--keep`, one line each, and a later run goes on where the last one ended.
`--verdicts FILE` replays real verdicts, given as CSV with the columns left, right, winner.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.support.simulation import TOP3, Model, Quality, SimulatedWorld, draw_world, play, quality

from clara_eval.actions.rank import read_results
from clara_eval.ranking import Group, Result, Schedule, choose_schedule, rank, rate, tally
from clara_eval.ranking.chances import EQUAL, count_chances, margins
from clara_eval.ranking.elo import literal_elo
from clara_eval.ranking.model import fit
from clara_eval.ranking.rank import REPEATING
from clara_eval.ranking.results import Field, Ints
from clara_eval.ranking.schedule import Fixed

SEEDS = 61_000_000
JUDGES: dict[str, Model] = {
    "80 %": Model(),
    "70 %": Model(sigma=0.85),
    "90 %": Model(sigma=3.55),
    "80 %, orders half repeat pairs": Model(kept=0.5),
    "80 %, orders repeat pairs": Model(kept=1.0),
    "intransitive": Model(kind="cycles"),
    "heavy tails": Model(kind="tails"),
    "likes of single entries": Model(kind="likes"),
    "equal entries": Model(kind="equals"),
    "half junk": Model(kind="junk"),
    "40 % ties": Model(nu=2.0),
    "accuracy by length": Model(kind="length"),
    "verbosity": Model(kind="verbosity"),
}
TASTE = {"likes of single entries", "verbosity"}
SHOWN_CALLS = {5: (20,), 10: (30, 45, 90), 25: (63, 120, 183, 240, 600), 100: (250, 500, 750)}
PRIZES = (100, 500, 5000)


def points_order(results: Sequence[Result], size: int) -> Ints:
    """Best first by points, the lower index among equals."""
    table = tally([str(k) for k in range(size)], results)
    won = np.bincount(table.first, table.points, size) + np.bincount(table.second, 1 - table.points, size)
    played = np.bincount(table.first, minlength=size) + np.bincount(table.second, minlength=size)
    return np.argsort(-won / np.maximum(played, 1), kind="stable")


def elo_order(results: Sequence[Result], size: int) -> Ints:
    """Best first by the Elo that would be posted."""
    table = tally([str(k) for k in range(size)], results)
    repeats = not table.read_off or fit(table).same < REPEATING
    return np.argsort(-rate(table, b"bench", repeats=repeats), kind="stable")


def specification(world: SimulatedWorld) -> Ints:
    """Every pair once, the lower index first, Elo in that order."""
    first, second = np.triu_indices(world.size, 1)
    ratings = literal_elo(world.size, first, second, world.verdicts[first, second] / 2)
    return np.argsort(-ratings, kind="stable")


def random_pairs(world: SimulatedWorld, calls: int) -> list[Result]:
    pairs = list(combinations(range(world.size), 2))
    Random(world.seed).shuffle(pairs)
    both = [*pairs, *((b, a) for a, b in pairs)][:calls]
    return [_asked(world, a, b) for a, b in both]


def swiss(world: SimulatedWorld, calls: int) -> list[Result]:
    """Rounds of neighbours by points, no pair twice in one sequence; Elo decides at the end."""
    results: list[Result] = []
    shown: set[tuple[int, int]] = set()
    while len(results) < calls:
        order = points_order(results, world.size).tolist()
        before = len(results)
        while len(order) > 1:
            a = order.pop(0)
            free = [b for b in order if (a, b) not in shown or (b, a) not in shown]
            if not free:
                continue
            b = free[0]
            order.remove(b)
            look = (a, b) if (a, b) not in shown else (b, a)
            shown.add(look)
            results.append(_asked(world, *look))
        if len(results) == before:
            break
    return results[:calls]


def _asked(world: SimulatedWorld, a: int, b: int) -> Result:
    return world.answer(next(iter(Field(world.items).pairings([(a, b)]))))


def shipped(world: SimulatedWorld, most: int | None) -> Iterator[tuple[int, list[Result]]]:
    """The default schedule, batch by batch: calls so far and all results."""
    schedule = choose_schedule(world.items, ("",), max_comparisons=most, winner_count=3, payout_bps=TOP3)
    results: list[Result] = []
    calls = 0
    while batch := schedule.next_batch(results):
        for question in batch:
            results += world.order_of(question) if isinstance(question, Group) else [world.answer(question)]
            calls += 1
        yield calls, list(results)


def told(found: Quality) -> list[float]:
    return [found.set, found.misallocation]


def calls_trial(size: int, model: Model, seed: int) -> dict[str, Any]:
    """Set and misplaced share of every method at every number of calls."""
    world = draw_world(size, seed, model)
    score = partial(quality, world.truth)
    found = {"specification": told(score(specification(world)))}
    both = play(world, Fixed(Field(world.items), is_both=True))
    found["both + points"] = told(score(points_order(both, size)))
    end: list[Result] = []
    calls = 0
    at: dict[int, list[Result]] = {}
    for calls, end in shipped(world, None):
        at |= {shown: end for shown in SHOWN_CALLS[size] if calls <= shown}
    found |= {f"auto {shown}": told(score(elo_order(some, size))) for shown, some in at.items()}
    found["auto"] = told(score(elo_order(end, size)))
    found["auto calls"] = [float(calls), 0.0]
    most = max(SHOWN_CALLS[size])
    by_swiss, by_lot = swiss(world, most), random_pairs(world, most)
    for shown in SHOWN_CALLS[size]:
        found[f"Swiss + Elo {shown}"] = told(score(elo_order(by_swiss[:shown], size)))
        found[f"random + points {shown}"] = told(score(points_order(by_lot[:shown], size)))
    return found


def words_trial(size: int, model: Model, seed: int) -> dict[str, Any]:
    """What is said after the default schedule, and what is true."""
    world = draw_world(size, seed, model)
    *_, (calls, results) = shipped(world, None)
    table = tally(world.items, results)
    ranking = rank(table, seed=b"bench", winner_count=3, payout_bps=TOP3)
    order = [int(standing.item) for standing in ranking.standings]
    found = quality(world.truth, np.array(order))
    best = set(np.argsort(-world.truth)[:3].tolist())
    truth = world.truth - world.truth.mean()
    place = np.argsort(np.argsort(-world.truth)) + 1
    return {
        "calls": calls,
        "right": found.set,
        "misplaced": found.misallocation,
        "said": ranking.margin.set_chance,
        "saidMisplaced": ranking.misallocation,
        "word": ranking.margin.word,
        "gap": float(abs(truth[order[2]] - truth[order[3]])),
        "paid": [[s.p_top, int(s.item) in best] for s in ranking.standings[:3]],
        "inside": float(np.mean([s.theta_low <= truth[int(s.item)] <= s.theta_high for s in ranking.standings])),
        "rankInside": float(np.mean([s.rank_low <= place[int(s.item)] <= s.rank_high for s in ranking.standings])),
        "width": float(np.mean([s.theta_high - s.theta_low for s in ranking.standings])),
        "waitsAnyway": any(flag.severity == "review" for flag in ranking.flags),
    }


def speed() -> dict[str, Any]:
    """Seconds of CPU for a round of 300 in both orders, and for one step of the schedule."""
    world = draw_world(300, 1)
    table = tally(world.items, play(world, Fixed(Field(world.items), is_both=True)))
    begin = time.process_time()
    rank(table, seed=b"bench", winner_count=3)
    ranked = time.process_time() - begin
    some = play(world, _few(world))
    begin = time.process_time()
    choose_schedule(world.items, ("",), max_comparisons=None, winner_count=3).next_batch(some)
    return {"id": "speed", "rank300": round(ranked, 2), "step300": round(time.process_time() - begin, 2)}


def _few(world: SimulatedWorld) -> Schedule:
    return choose_schedule(world.items, ("",), max_comparisons=150, winner_count=3)


def replay(path: Path, trials: int) -> dict[str, Any]:
    """Real verdicts: the paid three of 200 drawn rows of each field against those of all rows."""
    results = read_results(path)
    items = sorted({result.first for result in results} | {result.second for result in results})
    whole = fit(tally(items, results)).theta
    best = set(np.argsort(-whole)[:3].tolist())
    right = []
    for trial in range(trials):
        table = tally(items, Random(trial).sample(results, min(len(results), 8 * len(items))))
        chances = count_chances(fit(table), 3)
        order = np.argsort(-rate(table, b"bench"), kind="stable").tolist()
        margin = margins(items, order, rate(table, b"bench"), chances, 3)[-1]
        right.append((set(order[:3]) == best, margin.set_chance))
    shares = np.array(right, dtype=float).mean(axis=0)
    return {"id": f"replay {path.name}", "trials": trials, "right": shares[0], "said": shares[1]}


def kept(name: str, work: Callable[[int], dict[str, Any]], asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The trials of a case: those in the folder, and what is missing."""
    path = Path(asked.keep) / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        trial = json.loads(line)
        found[trial["seed"]] = trial["told"]
    rest = [seed for seed in range(asked.seeds, asked.seeds + asked.trials) if seed not in found]
    with path.open("a", encoding="utf-8") as file, Pool(asked.jobs) as pool:
        for seed, one in pool.imap_unordered(partial(_numbered, work), rest):
            found[seed] = one
            file.write(json.dumps({"seed": seed, "told": one}) + "\n")
            file.flush()
    return [found[seed] for seed in sorted(found)]


def _numbered(work: Callable[[int], dict[str, Any]], seed: int) -> tuple[int, dict[str, Any]]:
    return seed, work(seed)


def calls_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard error of every method; differences to both orders are paired."""
    methods: dict[str, Any] = {}
    for name in trials[0]:
        have = np.array([trial[name] for trial in trials if name in trial])
        base = np.array([trial["both + points"] for trial in trials if name in trial])
        gap = have - base
        methods[name] = {
            "set": round(float(have[:, 0].mean()), 3),
            "misplaced": round(float(have[:, 1].mean()), 3),
            "setToBoth": [round(float(gap[:, 0].mean()), 3), _error(gap[:, 0])],
            "misplacedToBoth": [round(float(gap[:, 1].mean()), 3), _error(gap[:, 1])],
        }
    return {"id": f"calls {case}", "trials": len(trials), "methods": methods}


def words_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    clear = [trial["right"] for trial in trials if trial["word"] == "clear"]
    equal = [trial["gap"] < EQUAL for trial in trials if trial["word"] == "about equal"]
    sure = [is_paid for trial in trials for chance, is_paid in trial["paid"] if chance >= 0.9]
    means = {
        name: round(float(np.mean([trial[name] for trial in trials])), 3)
        for name in ("calls", "right", "said", "misplaced", "saidMisplaced", "inside", "rankInside", "width")
    }
    waits = {f"${prize}": _waits(trials, prize) for prize in PRIZES}
    return {
        "id": f"words {case}",
        "trials": len(trials),
        **means,
        "clear": [len(clear), round(float(np.mean(clear)), 3) if clear else None],
        "equal": [len(equal), round(float(np.mean(equal)), 3) if equal else None],
        "pPaid90": [len(sure), round(float(np.mean(sure)), 3) if sure else None],
        "waits": waits,
    }


def _waits(trials: list[dict[str, Any]], prize: int) -> dict[str, Any]:
    """Rounds that wait by the rule of misplaced money, with the defaults of $50 and 20 %; and how right each are."""
    by_money = [trial["saidMisplaced"] * prize > 50 and trial["saidMisplaced"] > 0.2 for trial in trials]
    waits = [money or trial["waitsAnyway"] for money, trial in zip(by_money, trials, strict=True)]
    posted = [trial["right"] for trial, wait in zip(trials, waits, strict=True) if not wait]
    held = [trial["right"] for trial, wait in zip(trials, waits, strict=True) if wait]
    return {
        "share": round(float(np.mean(waits)), 3),
        "before": round(float(np.mean([trial["waitsAnyway"] for trial in trials])), 3),
        "rightPosted": round(float(np.mean(posted)), 3) if posted else None,
        "rightWaiting": round(float(np.mean(held)), 3) if held else None,
    }


def _error(values: Any) -> float:
    return round(float(values.std() / len(values) ** 0.5), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="eight trials of one case")
    parser.add_argument("--sizes", default="5,10,25,100")
    parser.add_argument("--judges", default=",".join(JUDGES).replace(", ", "; "), help="names, separated by commas")
    parser.add_argument("--parts", default="calls,words,speed")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="var/ranking")
    parser.add_argument("--verdicts", type=Path)
    asked = parser.parse_args()
    if asked.quick:
        asked.sizes, asked.judges, asked.trials = "10", "80 %", 8
    rows = []
    pooled: dict[str, list[dict[str, Any]]] = {}
    for size in map(int, asked.sizes.split(",")):
        for judge in (name.replace("; ", ", ") for name in asked.judges.split(",")):
            for part, work, row in (("calls", calls_trial, calls_row), ("words", words_trial, words_row)):
                if part in asked.parts.split(","):
                    name = f"{part}-{size}-{judge}".replace(" ", "_").replace("%", "")
                    trials = kept(name, partial(work, size, JUDGES[judge]), asked)
                    rows.append(row(f"N={size}, {judge}", trials))
                    if part == "words":
                        pooled.setdefault("taste" if judge in TASTE else "noise", []).extend(trials)
    rows += [words_row(f"all judges of {kind}", trials) for kind, trials in pooled.items()]
    if "speed" in asked.parts.split(","):
        rows.append(speed())
    if asked.verdicts:
        rows.append(replay(asked.verdicts, asked.trials))
    print(json.dumps({"seeds": asked.seeds, "rows": rows}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
