"""Measure who is paid with ties, omitted entries, and a judge with position bias."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import combinations

from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.redteam.report import Figure, number, share

SIZE = 8
PAYOUT = (6000, 4000)
NOISE = 0.3
FAVOURS_FIRST = 0.5244  # In standard deviations (normal quantile): the first of two equals wins 70 % of the games


def _rank(items: Iterable[str], results: Sequence[Result], order: dict[str, int] | None = None) -> list[str]:
    return [standing.item for standing in _ranking(items, results, order or {}).standings]


def _ranking(items: Iterable[str], results: Sequence[Result], order: dict[str, int]) -> Ranking:
    counted = tally(sorted(items), results)
    return rank(counted, seed=b"redteam", winner_count=2, payout_bps=PAYOUT, tie_break=order, by_name=True)


def _make_trial(seed: str) -> tuple[random.Random, dict[str, float]]:
    """Return a random generator, and entries with their merits."""
    rng = random.Random(seed)  # noqa: S311 - a trial, not a secret
    return rng, {f"e{n}": rng.gauss(0, 1) for n in range(SIZE)}


def _play_games(merits: dict[str, float], rng: random.Random, *, noise: float = 0.0, bias: float = 0.0) -> list[Result]:
    """Judge every pair in both orders by merit with noise; `bias` favours the entry shown first."""
    found = []
    for one, other in combinations(merits, 2):
        for first, second in ((one, other), (other, one)):
            gap = merits[first] - merits[second] + bias + rng.gauss(0, noise)
            found.append(
                Result(first, second, "tie" if abs(gap) < 1e-12 else "first" if gap > 0 else "second", "judge")
            )
    return found


def measure_ties(trials: int, seed: int) -> list[Figure]:
    later_first = changed = 0
    for trial in range(trials):
        rng, merits = _make_trial(f"{seed}{trial}")
        best = max(merits, key=lambda item: merits[item])
        merits["twin"] = merits[best]
        order = {item: n for n, item in enumerate(rng.sample(sorted(merits), len(merits)))}
        games = _play_games(merits, rng)
        paid = _rank(merits, games, order)[:2]
        earlier, later = sorted((best, "twin"), key=lambda item: order[item])
        later_first += paid.index(earlier) > paid.index(later) if {earlier, later} <= set(paid) else earlier not in paid
        lost = [
            *(Result(item, "loser", "first", "judge") for item in merits),
            *(Result("loser", item, "second", "judge") for item in merits),
        ]
        changed += _rank([*merits, "loser"], games + lost, {**order, "loser": len(order)})[:2] != paid
    return [
        share("later_of_equals_paid_first", "equal entries of which the later one is paid before the earlier",
              later_first, trials, at_most=0.0),
        share("loser_changes_the_paid", "rounds in which an entry that loses every game changes who is paid",
              changed, trials, at_most=0.0),
    ]  # fmt: skip


def measure_stability(trials: int, seed: int) -> list[Figure]:
    """Omitting an unpaid entry must not change who is paid, unless the round is flagged."""
    silent = 0
    for trial in range(trials):
        rng, merits = _make_trial(f"{seed}s{trial}")
        games = _play_games(merits, rng, noise=0.7)
        ranking = _ranking(merits, games, {})
        paid = {standing.item for standing in ranking.standings[:2]}
        is_flagged = any(flag.severity != "info" for flag in ranking_flags(ranking, by_arrival=True))
        silent += not is_flagged and any(_changes_paid(merits, games, item, paid) for item in merits.keys() - paid)
    return [
        share("unflagged_instability", "rounds whose paid set depends on one entry, without a word about it",
              silent, trials, at_most=0.0),
    ]  # fmt: skip


def _changes_paid(merits: dict[str, float], games: Sequence[Result], left_out: str, paid: set[str]) -> bool:
    others = [game for game in games if left_out not in (game.first, game.second)]
    return set(_rank(merits.keys() - {left_out}, others)[:2]) != paid


def measure_utility(trials: int, seed: int) -> list[Figure]:
    """Compare Kendall's tau with the truth for judges with and without position bias."""
    losses, kept = [], []
    for trial in range(trials):
        rng, merits = _make_trial(f"{seed}u{trial}")
        truth = sorted(merits, key=lambda item: -merits[item])
        state = rng.getstate()
        plain = _rank(merits, _play_games(merits, rng, noise=NOISE))
        rng.setstate(state)
        biased = _rank(merits, _play_games(merits, rng, noise=NOISE, bias=FAVOURS_FIRST * NOISE))
        losses.append(tau(truth, plain) - tau(truth, biased))
        kept.append(tau(truth, _rank(merits, _play_games(merits, rng))))
    return [
        number("tau_lost_to_position_bias", "Kendall's tau lost by a judge that prefers the first side",
               losses, at_most=0.02),
        number("tau_of_clean_rounds", "Kendall's tau of the ranking with the truth, honest judge, clean entries",
               kept, at_least=0.95),
    ]  # fmt: skip


def tau(one: Sequence[str], other: Sequence[str]) -> float:
    place = {item: n for n, item in enumerate(other)}
    pairs = list(combinations(one, 2))
    return sum(1 if place[a] < place[b] else -1 for a, b in pairs) / len(pairs)
