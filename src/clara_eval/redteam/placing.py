"""Measure who is paid under ties, entries left out, and a judge with a favourite side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

from clara_eval.ranking import Ranking, Result, rank, tally
from clara_eval.redteam.report import Figure, number, share

SIZE = 8
PAYOUT = (6000, 4000)
NOISE = 0.3
FAVOURS_FIRST = 0.5244
"""Of the noise: of two equal entries the one shown first wins seven times in ten."""


def _rank(items: Sequence[str], results: Sequence[Result], order: dict[str, int]) -> Ranking:
    return rank(
        tally(items, results), seed=b"redteam", winner_count=2, payout_bps=PAYOUT, tie_break=order, by_name=True
    )


def _paid(ranking: Ranking) -> list[str]:
    return [standing.item for standing in ranking.standings[:2]]


def _play(
    merits: dict[str, float], rng: random.Random, *, noise: float = 0.0, bias: float = 0.0, both: bool = True
) -> list[Result]:
    """Every pair, in both orders, judged by merit with noise; `bias` favours whoever is shown first."""
    found = []
    for one, other in combinations(merits, 2):
        for first, second in ((one, other), (other, one)) if both else ((one, other),):
            gap = merits[first] - merits[second] + bias + rng.gauss(0, noise)
            winner = "tie" if abs(gap) < 1e-12 else "first" if gap > 0 else "second"
            found.append(_result(first, second, winner))
    return found


def _result(first: str, second: str, winner: str) -> Result:
    return Result(first, second, winner, "judge")  # type: ignore[arg-type]  # one of the three words


def measure_ties(trials: int, seed: int) -> list[Figure]:
    later_first = changed = 0
    for trial in range(trials):
        rng = random.Random(f"{seed}{trial}")  # noqa: S311 - a trial, not a secret
        merits = {f"e{n}": rng.gauss(0, 1) for n in range(SIZE)}
        best = max(merits, key=lambda item: merits[item])
        merits["twin"] = merits[best]
        order = {item: n for n, item in enumerate(rng.sample(sorted(merits), len(merits)))}
        games = _play(merits, rng)
        paid = _paid(_rank(sorted(merits), games, order))
        earlier, later = sorted((best, "twin"), key=lambda item: order[item])
        later_first += paid.index(earlier) > paid.index(later) if {earlier, later} <= set(paid) else earlier not in paid
        loser = {**merits, "loser": min(merits.values()) - 1}
        more = [
            *games,
            *(_result(item, "loser", "first") for item in merits),
            *(_result("loser", i, "second") for i in merits),
        ]
        changed += _paid(_rank(sorted(loser), more, {**order, "loser": len(order)})) != paid
    return [
        share("ties", "later_of_equals_paid_first", "equal entries of which the later one is paid before the earlier",
              later_first, trials, at_most=0.0),
        share("ties", "loser_changes_the_paid", "rounds in which an entry that loses every game changes who is paid",
              changed, trials, at_most=0.0),
    ]  # fmt: skip


def measure_stability(trials: int, seed: int) -> list[Figure]:
    """Leaving one entry out must not change who of the others is paid, or a person is told."""
    silent = 0
    for trial in range(trials):
        rng = random.Random(f"{seed}s{trial}")  # noqa: S311 - a trial, not a secret
        merits = {f"e{n}": rng.gauss(0, 1) for n in range(SIZE)}
        games = _play(merits, rng, noise=0.7)
        whole = _rank(sorted(merits), games, {})
        told = any(flag.severity != "info" for flag in whole.flags)
        silent += not told and any(_moved(merits, games, left_out, _paid(whole)) for left_out in merits)
    return [
        share("ties", "unflagged_instability", "rounds whose paid set depends on one entry, without a word about it",
              silent, trials, at_most=0.0),
    ]  # fmt: skip


def _moved(merits: dict[str, float], games: Sequence[Result], left_out: str, paid: Sequence[str]) -> bool:
    rest = [item for item in sorted(merits) if item != left_out]
    left = [game for game in games if left_out not in (game.first, game.second)]
    return left_out not in paid and set(_paid(_rank(rest, left, {}))) != set(paid)


def measure_utility(trials: int, seed: int) -> list[Figure]:
    """Kendall's tau with the truth: a judge that likes the first side against one that does not."""
    losses, kept = [], []
    for trial in range(trials):
        rng = random.Random(f"{seed}u{trial}")  # noqa: S311 - a trial, not a secret
        merits = {f"e{n}": rng.gauss(0, 1) for n in range(SIZE)}
        truth = sorted(merits, key=lambda item: -merits[item])
        state = rng.getstate()
        plain = _order(merits, _play(merits, rng, noise=NOISE))
        rng.setstate(state)
        biased = _order(merits, _play(merits, rng, noise=NOISE, bias=FAVOURS_FIRST * NOISE))
        losses.append(tau(truth, plain) - tau(truth, biased))
        kept.append(tau(truth, _order(merits, _play(merits, rng))))
    return [
        number("utility", "tau_lost_to_position_bias", "Kendall's tau lost by a judge that prefers the first side",
               losses, at_most=0.02),
        number("utility", "tau_of_clean_rounds", "Kendall's tau of the ranking with the truth, honest judge, clean "
               "entries", kept, at_least=0.95),
    ]  # fmt: skip


def _order(merits: dict[str, float], games: Sequence[Result]) -> list[str]:
    return [standing.item for standing in _rank(sorted(merits), games, {}).standings]


def tau(one: Sequence[str], other: Sequence[str]) -> float:
    place = {item: n for n, item in enumerate(other)}
    pairs = list(combinations(one, 2))
    return sum(1 if place[a] < place[b] else -1 for a, b in pairs) / len(pairs)
