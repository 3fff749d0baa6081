"""A leaderboard as the pages draw it: rows with intervals on one scale, the pay line, the podium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.documents.results import Features, LeaderboardRow, Scores, Value

PAGE_ROWS = 50
PODIUM = 3
KEY_FACTS = 2


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on a scale of 0 to 100."""

    left: float
    width: float
    middle: float


@dataclass(frozen=True, slots=True)
class Row:
    found: LeaderboardRow
    bar: Bar | None
    is_below: bool
    """Directly below the pay line."""
    facts: tuple[Value, ...] = ()

    @property
    def address(self) -> str:
        return self.found.address


@dataclass(frozen=True, slots=True)
class LeaderboardView:
    rows: tuple[Row, ...]
    podium: tuple[Row, ...]
    rejected: tuple[LeaderboardRow, ...]
    ranked: int
    paid: int
    page: int
    pages: int
    line: float | None
    """The pay line on the scale of the bars."""
    fact_names: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Rules on measured facts leave no interval."""
        return all(row.found.low is not None and row.found.low == row.found.high for row in self.rows)


@dataclass(frozen=True, slots=True)
class RatingScale:
    low: float
    high: float

    def at(self, value: float) -> float:
        return round(100 * (value - self.low) / ((self.high - self.low) or 1.0), 2)

    def bar(self, row: LeaderboardRow) -> Bar | None:
        if row.elo is None or row.low is None or row.high is None:
            return None
        left = self.at(row.low)
        width = 0.0 if row.low == row.high else round(max(0.8, self.at(row.high) - left), 2)
        return Bar(left, width, self.at(row.elo))


def scale_of(rows: Sequence[LeaderboardRow]) -> RatingScale:
    lows = [row.low for row in rows if row.low is not None]
    highs = [row.high for row in rows if row.high is not None]
    return RatingScale(min(lows, default=0.0), max(highs, default=1.0))


def leaderboard_of(scores: Scores, page: int) -> LeaderboardView:
    """One page of a ranking."""
    ranked, paid = scores.ranked, sum(row.is_paid for row in scores.ranked)
    scale = scale_of(ranked)
    drawn = [Row(row, scale.bar(row), is_below=place == paid > 0) for place, row in enumerate(ranked)]
    pages = max(1, -(-len(drawn) // PAGE_ROWS))
    page = min(max(1, page), pages)
    return LeaderboardView(
        rows=tuple(drawn[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]),
        podium=tuple(row for row in drawn[:PODIUM] if row.found.is_paid),
        rejected=tuple(row for row in scores.rankings if not row.is_ranked),
        ranked=len(ranked),
        paid=paid,
        page=page,
        pages=pages,
        line=_line(ranked, scale, paid),
    )


def _line(ranked: Sequence[LeaderboardRow], scale: RatingScale, paid: int) -> float | None:
    """Half-way between the last that is paid and the first that is not."""
    if not 0 < paid < len(ranked):
        return None
    last, following = ranked[paid - 1].elo, ranked[paid].elo
    return scale.at((last + following) / 2) if last is not None and following is not None else None


def around_line(scores: Scores, most: int) -> list[str]:
    """The best, and those on both sides of the pay line."""
    ranked, half = scores.ranked, most // 2
    paid = sum(row.is_paid for row in ranked)
    near = max(half, min(paid - half // 2, len(ranked) - half))
    chosen = [*ranked[:half], *ranked[near : near + half]]
    return [row.address for row in chosen]


def executed_names(rows: Sequence[LeaderboardRow]) -> tuple[str, ...]:
    """The columns of a round that was run: tests, and the first metric, else gas or fuel."""
    runs = [row.executed for row in rows if row.executed is not None]
    metrics = sorted({name for run in runs for name in run.metrics})[: KEY_FACTS - 1]
    unit = "fuel" if any(run.fuel for run in runs) else "gas"
    return ("tests", *(metrics or [unit])) if runs else ()


def executed_facts(row: LeaderboardRow, names: Sequence[str]) -> tuple[Value, ...]:
    """What running an entry measured, under these names."""
    run = row.executed
    if run is None:
        return (None,) * len(names)
    tests = run.outcome.replace("_", " ") if run.testsPassed is None else f"{run.testsPassed}/{run.tests}"
    known: dict[str, Value] = {**run.metrics, "tests": tests, "gas": run.gas, "fuel": run.fuel}
    return tuple(known.get(name) for name in names)


def key_facts(features: dict[str, Features], weights: dict[str, float]) -> tuple[str, ...]:
    """The facts in the rows if nothing was run: those of most weight that tell entries apart."""
    names = dict.fromkeys(name for found in features.values() for name in found.features)
    told = [name for name in names if len({found.features.get(name) for found in features.values()}) > 1]
    return tuple(sorted(told, key=lambda name: -weights.get(name, 1.0))[:KEY_FACTS])
