"""Measure misplaced money and correct winners by number of calls, for our schedule and baselines.

Prints one JSON document with a row per case. Every release uses a new block of seeds (`--seeds`, far from all others).
The folder `--keep` has two files per case with one line per trial: `asked-…`, the questions of the default schedule,
and `told-…`, the figures about it. A later run continues; after a change of the figures but not of the questions remove
only the latter. `--verdicts FILE` replays real verdicts, a CSV with left, right, winner.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import combinations, pairwise
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.support.simulation import TOP3, Model, Quality, SimulatedWorld, draw_world, play, quality

from clara_eval.actions.calibrate import proportion
from clara_eval.actions.rank import read_results
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.ranking import Group, Ranking, Result, Schedule, Tally, choose_schedule, rank, rate, tally
from clara_eval.ranking.chances import EQUAL, count_chances, margins
from clara_eval.ranking.elo import literal_elo
from clara_eval.ranking.model import REPEATING, fit
from clara_eval.ranking.results import Field, Ints, Pairing
from clara_eval.ranking.schedule import FOURS_FROM, Fixed

SEEDS = 82_000_000
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
LEVELS = ("70 %", "80 %", "90 %")
SHOWN_CALLS = {5: (20,), 10: (45, 90), 25: (63, 120, 183, 240, 600), 100: (250, 500, 750)}
SAME_MONEY = "random + points, same money"
PRIZES = (100, 500, 5000)
BINS = (0.0, 0.5, 0.7, 0.9, 0.97, 1.01)


def points_order(results: Sequence[Result], size: int) -> Ints:
    return _points(tally([str(k) for k in range(size)], results))


def _points(table: Tally) -> Ints:
    """Sort best first by points; among equals the lower index comes first."""
    size = table.size
    won = np.bincount(table.first, table.points, size) + np.bincount(table.second, 1 - table.points, size)
    played = np.bincount(table.first, minlength=size) + np.bincount(table.second, minlength=size)
    return np.argsort(-won / np.maximum(played, 1), kind="stable")


def elo_order(results: Sequence[Result], size: int) -> Ints:
    """Sort best first by the Elo that would be posted."""
    table = tally([str(k) for k in range(size)], results)
    repeats = not table.read_off or fit(table).same < REPEATING
    return np.argsort(-rate(table, b"bench", repeats=repeats), kind="stable")


def specification(world: SimulatedWorld) -> Ints:
    """Compare every pair once with the lower index first; Elo in that order."""
    first, second = np.triu_indices(world.size, 1)
    ratings = literal_elo(world.size, first, second, world.verdicts[first, second] / 2)
    return np.argsort(-ratings, kind="stable")


def random_pairs(world: SimulatedWorld, calls: int) -> list[Result]:
    pairs = list(combinations(range(world.size), 2))
    Random(world.seed).shuffle(pairs)
    both = [*pairs, *((b, a) for a, b in pairs)][:calls]
    return [_asked(world, a, b) for a, b in both]


def swiss(world: SimulatedWorld, calls: int) -> list[Result]:
    """Pair neighbours by points, no pair twice in one sequence; Elo decides at the end."""
    results: list[Result] = []
    shown: set[tuple[int, int]] = set()
    won, played = np.zeros(world.size), np.zeros(world.size)
    while len(results) < calls:
        order = np.argsort(-won / np.maximum(played, 1), kind="stable").tolist()
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
            points = world.verdicts[look] / 2
            won[list(look)] += points, 1 - points
            played[list(look)] += 1
        if len(results) == before:
            break
    return results[:calls]


def _asked(world: SimulatedWorld, a: int, b: int) -> Result:
    return world.answer(Pairing(world.items[a], world.items[b]))


def shipped(world: SimulatedWorld, most: int | None) -> Iterator[list[Pairing | Group]]:
    """Return the questions of the default schedule, batch by batch."""
    schedule = choose_schedule(world.items, ("",), max_comparisons=most, winner_count=3, payout_bps=TOP3)
    results: list[Result] = []
    while batch := schedule.next_batch(results):
        results += answers(world, batch)
        yield list(batch)


def answers(world: SimulatedWorld, questions: Sequence[Pairing | Group]) -> list[Result]:
    found: list[Result] = []
    for question in questions:
        found += world.order_of(question) if isinstance(question, Group) else [world.answer(question)]
    return found


def asked_trial(size: int, model: Model, seed: int) -> list[list[int]]:
    """Return the questions of the default schedule: the items of each as they were shown."""
    world = draw_world(size, seed, model)
    shown = [q.items if isinstance(q, Group) else (q.first, q.second) for batch in shipped(world, None) for q in batch]
    return [[int(item) for item in items] for items in shown]


def told_trial(size: int, model: Model, asked: dict[int, list[list[int]]], seed: int) -> dict[str, Any]:
    """Return the figures of a trial: all methods by number of calls, and what the default states."""
    world = draw_world(size, seed, model)
    names = [tuple(str(item) for item in items) for items in asked[seed]]
    questions = [Group(items) if len(items) > 2 else Pairing(*items) for items in names]
    both = play(world, Fixed(Field(world.items), is_both=True))
    said = words(world, answers(world, questions))
    return {
        "methods": calls(world, questions, both),
        "calls": len(questions),
        "priced": priced(questions),
        "before": waits_by_flags(judged(world, both)) if model in (JUDGES[name] for name in LEVELS) else None,
        **said,
    }


def priced(questions: Sequence[Pairing | Group]) -> int:
    """Return the cost in pairs: an order of four entries costs two pairs."""
    return sum(2 if isinstance(question, Group) else 1 for question in questions)


def calls(world: SimulatedWorld, questions: list[Pairing | Group], both: list[Result]) -> dict[str, list[float]]:
    """Return winners and misplaced share of every method by number of calls."""
    size = world.size
    score = partial(quality, world.truth)
    found = {"both + points": figures_of(score(points_order(both, size)))}
    end = answers(world, questions)
    found["auto"] = figures_of(score(elo_order(end, size)))
    found[SAME_MONEY] = figures_of(score(points_order(random_pairs(world, priced(questions)), size)))
    if size > FOURS_FROM:
        for name, repeats in (("auto, repeats always counted", True), ("auto, repeats never counted", False)):
            ratings = rate(tally(world.items, end), b"bench", repeats=repeats)
            found[name] = figures_of(score(np.argsort(-ratings, kind="stable")))
    for shown in SHOWN_CALLS[size]:
        if shown < len(questions):
            found[f"auto {shown}"] = figures_of(score(elo_order(answers(world, questions[:shown]), size)))
    found["specification"] = figures_of(score(specification(world)))
    most = max(SHOWN_CALLS[size])
    by_swiss, by_lot = swiss(world, most), random_pairs(world, most)
    for shown in SHOWN_CALLS[size]:
        found[f"Swiss + Elo {shown}"] = figures_of(score(elo_order(by_swiss[:shown], size)))
        found[f"random + points {shown}"] = figures_of(score(points_order(by_lot[:shown], size)))
    return found


def figures_of(found: Quality) -> list[float]:
    return [found.set, round(found.misallocation, 4)]


def judged(world: SimulatedWorld, results: Sequence[Result]) -> Ranking:
    # skip the analysis of single entries, which only warns
    vars(import_module("clara_eval.ranking.rank"))["MAX_RERATED"] = 0
    return rank(tally(world.items, results), seed=b"bench", winner_count=3, payout_bps=TOP3)


def waits_by_flags(ranking: Ranking) -> bool:
    """Return whether the round waits for a reason other than misplaced money."""
    return any(flag.severity == "review" for flag in ranking_flags(ranking, by_arrival=False))


def words(world: SimulatedWorld, results: Sequence[Result]) -> dict[str, Any]:
    """Return what the ranking states about these results, and what is true."""
    ranking, truth = judged(world, results), world.truth
    order = [int(standing.item) for standing in ranking.standings]
    found = quality(truth, np.array(order))
    best = np.sort(truth)[::-1]
    place = np.argsort(np.argsort(-truth)) + 1
    width = [s.rank_high - s.rank_low for s in ranking.standings]
    return {
        "right": found.set,
        "misplaced": round(found.misallocation, 4),
        "said": ranking.margin.set_chance,
        "saidMisplaced": ranking.misallocation,
        "margins": [
            [
                margin.word,
                margin.probability,
                margin.set_chance,
                bool(sorted(truth[order[: margin.place]])[::-1] == best[: margin.place].tolist()),
                bool(truth[order[margin.place - 1]] >= truth[order[margin.place]]),
                bool(abs(truth[order[margin.place - 1]] - truth[order[margin.place]]) < EQUAL),
            ]
            for margin in ranking.margins
        ],
        "paid": [[s.p_top, bool(truth[int(s.item)] >= best[2])] for s in ranking.standings[:3]],
        "rankInside": float(np.mean([s.rank_low <= place[int(s.item)] <= s.rank_high for s in ranking.standings])),
        "width": float(np.mean(width)),
        "paidWidth": float(np.mean(width[:3])),
        "waitsAnyway": waits_by_flags(ranking),
    }


def speed() -> dict[str, Any]:
    """Measure CPU seconds for a round of 300 in both orders, and for one step of the schedule."""
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
    """Compare the top three of sampled real verdicts, eight per item, with those of all verdicts."""
    results = read_results(path)
    items = sorted({result.first for result in results} | {result.second for result in results})
    whole = fit(tally(items, results)).theta
    best = set(np.argsort(-whole)[:3].tolist())
    rows = []
    for trial in range(trials):
        drawn = Random(trial).sample(results, min(len(results), 8 * len(items)))
        table = tally(items, drawn)
        ratings = rate(table, b"bench")
        order = np.argsort(-ratings, kind="stable").tolist()
        margin = margins(items, order, ratings, count_chances(fit(table), 3), 3)[-1]
        by_points = _points(table)[:3].tolist()
        rows.append((set(order[:3]) == best, margin.set_chance, set(by_points) == best))
    right, said, points = np.array(rows, dtype=float).mean(axis=0).round(3).tolist()
    name = f"replay {path.name}: {len(items)} items, {len(results)} verdicts"
    return {"id": name, "trials": trials, "right": right, "said": said, "points": points}


def kept(name: str, work: Callable[[int], Any], asked: argparse.Namespace) -> dict[int, Any]:
    """Return the trials of a case by seed: from the folder, or computed if missing."""
    path = Path(asked.keep) / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(asked.seeds, asked.seeds + asked.trials)
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        trial = json.loads(line)
        found[trial["seed"]] = trial["told"]
    rest = [] if asked.kept_only else [seed for seed in seeds if seed not in found]
    if not rest:
        return dict(sorted(found.items()))
    with path.open("a", encoding="utf-8") as file, Pool(asked.jobs) as pool:
        for seed, one in pool.imap_unordered(partial(_numbered, work), rest):
            found[seed] = one
            file.write(json.dumps({"seed": seed, "told": one}, separators=(",", ":")) + "\n")
            file.flush()
    return dict(sorted(found.items()))


def _numbered(work: Callable[[int], Any], seed: int) -> tuple[int, Any]:
    return seed, work(seed)


def calls_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard error of every method; differences to both orders are paired."""
    methods: dict[str, Any] = {}
    for name in {name: 0 for trial in trials for name in trial["methods"]}:
        ended = "auto" if name.startswith("auto") else name
        have = np.array([trial["methods"].get(name, trial["methods"][ended]) for trial in trials])
        base = np.array([trial["methods"]["both + points"] for trial in trials])
        gap = have - base
        methods[name] = {
            "set": round(float(have[:, 0].mean()), 3),
            "misplaced": round(float(have[:, 1].mean()), 3),
            "setToBoth": [round(float(gap[:, 0].mean()), 3), _error(gap[:, 0])],
            "misplacedToBoth": [round(float(gap[:, 1].mean()), 3), _error(gap[:, 1])],
        }
    means = {name: round(float(np.mean([trial[name] for trial in trials])), 1) for name in ("calls", "priced")}
    ours, same = (np.array([trial["methods"][name][1] for trial in trials]) for name in ("auto", SAME_MONEY))
    gap = [round(float((ours - same).mean()), 3), _error(ours - same)]
    return {"id": f"calls {case}", "trials": len(trials), **means, "misplacedToSame": gap, "methods": methods}


def words_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    means = {
        name: round(float(np.mean([trial[name] for trial in trials])), 3)
        for name in ("right", "said", "misplaced", "saidMisplaced", "rankInside", "width", "paidWidth")
    }
    lines = [trial["margins"][-1] for trial in trials]
    sure = [is_best for trial in trials for chance, is_best in trial["paid"] if chance >= 0.9]
    return {
        "id": f"words {case}",
        "trials": len(trials),
        **means,
        "clear": _share([line[3] for line in lines if line[0] == "clear"]),
        "equal": _share([line[5] for line in lines if line[0] == "about equal"]),
        "pPaid90": _share(sure),
    }


def calibration_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often each stated word and probability is true, over all paid places."""
    places = [margin for trial in trials for margin in trial["margins"]]
    said = {
        "clear": [place[3] for place in places if place[0] == "clear"],
        "about equal": [place[5] for place in places if place[0] == "about equal"],
        "uncertain": [place[4] for place in places if place[0] == "uncertain"],
        "toss-up": [place[4] for place in places if place[0] == "toss-up"],
    }
    chances = {
        "these are the best": [(place[2], place[3]) for place in places],
        "better than the next": [(place[1], place[4]) for place in places],
        "this paid one is among the best": [pair for trial in trials for pair in trial["paid"]],
    }
    found = {
        name: [
            [round(float(np.mean([p for p, _ in some])), 3), *_share([is_true for _, is_true in some])]
            for low, high in pairwise(BINS)
            if (some := [(p, is_true) for p, is_true in pairs if low <= p < high])
        ]
        for name, pairs in chances.items()
    }
    words_said = {name: _share(are_true) for name, are_true in said.items()}
    return {"id": f"calibration {case}", "trials": len(trials), "words": words_said, "chances": found}


def _share(are_true: Sequence[bool]) -> list[Any]:
    """Return the share, its 95 % Wilson interval, and the number of trials."""
    found = proportion(sum(are_true), len(are_true))
    return [None if value is None else round(value, 3) for value in (found.value, found.low, found.high)] + [
        found.count
    ]


def waits_row(case: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"waits {case}",
        "trials": len(trials),
        "waits": {f"${prize}": _waits(trials, prize) for prize in PRIZES},
    }


def _waits(trials: list[dict[str, Any]], prize: int) -> dict[str, Any]:
    """Count rounds held for misplaced money ($50 and 20 %), and how often each group is right."""
    by_money = [trial["saidMisplaced"] * prize > 50 and trial["saidMisplaced"] > 0.2 for trial in trials]
    waits = [money or trial["waitsAnyway"] for money, trial in zip(by_money, trials, strict=True)]
    return {
        "before": _share([trial["before"] for trial in trials]),
        "now": _share(waits),
        "rightPosted": _share([trial["right"] for trial, wait in zip(trials, waits, strict=True) if not wait]),
        "rightWaiting": _share([trial["right"] for trial, wait in zip(trials, waits, strict=True) if wait]),
    }


def _error(values: Any) -> float:
    return round(float(values.std() / len(values) ** 0.5), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="eight trials of one case")
    parser.add_argument("--sizes", default="25,10,5,100")
    parser.add_argument("--judges", default=",".join(JUDGES).replace(", ", "; "), help="names, separated by commas")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="var/ranking")
    parser.add_argument("--kept-only", action="store_true", help="ask nothing: the rows of the trials that are kept")
    parser.add_argument("--verdicts", type=Path)
    asked = parser.parse_args()
    if asked.quick:
        asked.sizes, asked.judges, asked.trials = "10", "80 %", 8
    judges = [name.replace("; ", ", ") for name in asked.judges.split(",")]
    rows: list[dict[str, Any]] = []
    pooled: dict[str, list[dict[str, Any]]] = {}
    for size in map(int, asked.sizes.split(",")):
        for judge in judges if size < 100 else [name for name in judges if name in LEVELS]:
            case, model = f"N={size}, {judge}", JUDGES[judge]
            name = f"{size}-{judge}".replace(" ", "_").replace("%", "")
            questions = kept(f"asked-{name}", partial(asked_trial, size, model), asked)
            trials = list(kept(f"told-{name}", partial(told_trial, size, model, questions), asked).values())
            if not trials:
                continue
            rows += [calls_row(case, trials), words_row(case, trials)]
            rows += [waits_row(case, trials)] if judge in LEVELS else []
            pooled.setdefault("taste" if judge in TASTE else "noise", []).extend(trials)
    for kind, trials in pooled.items():
        rows += [words_row(f"all judges of {kind}", trials), calibration_row(f"all judges of {kind}", trials)]
    rows.append(speed())
    if asked.verdicts:
        rows.append(replay(asked.verdicts, asked.trials))
    print(json.dumps({"seeds": asked.seeds, "rows": rows}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
