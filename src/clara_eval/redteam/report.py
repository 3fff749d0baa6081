"""Figures with targets and 95 % intervals: Wilson's, or the rule of three (3/n) without a hit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from clara_eval.actions.calibrate import Z, wilson

Bound = float | None


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    what: str  # What is counted, in one sentence
    value: float
    trials: int
    low: float
    high: float
    at_most: Bound = None
    at_least: Bound = None
    detail: dict[str, object] = field(default_factory=dict)
    section: str = ""  # Set by the run

    @property
    def met(self) -> bool | None:
        """Return whether the target is met; None without a target, False without a trial."""
        if self.at_most is None and self.at_least is None:
            return None
        if not self.trials:
            return False
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    def to_json(self) -> dict[str, object]:
        target = {"atMost": self.at_most} if self.at_most is not None else {"atLeast": self.at_least}
        return {
            "section": self.section,
            "name": self.name,
            "what": self.what,
            "value": round(self.value, 5),
            "low": round(self.low, 5),
            "high": round(self.high, 5),
            "trials": self.trials,
            "target": None if self.met is None else target,
            "met": self.met,
            "detail": self.detail,
        }


def share(
    name: str, what: str, hits: int, trials: int, *, at_most: Bound = None, at_least: Bound = None, **detail: object
) -> Figure:
    low, high = interval(hits, trials)
    value = hits / trials if trials else 0.0
    return Figure(name, what, value, trials, low, high, at_most, at_least, {"hits": hits, **detail})


def number(name: str, what: str, values: Sequence[float], *, at_most: Bound = None, at_least: Bound = None) -> Figure:
    count = len(values)
    mean = math.fsum(values) / count if count else 0.0
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, count - 1))
    margin = Z * spread / math.sqrt(count) if count else 0.0
    return Figure(name, what, mean, count, mean - margin, mean + margin, at_most, at_least)


def interval(hits: int, trials: int) -> tuple[float, float]:
    if not trials:
        return 0.0, 1.0
    if hits == 0:
        return 0.0, min(1.0, 3 / trials)
    if hits == trials:
        return max(0.0, 1 - 3 / trials), 1.0
    return wilson(hits, trials)


@dataclass(frozen=True, slots=True)
class RedteamReport:
    figures: tuple[Figure, ...]
    seed: int
    corpus: dict[str, int]  # Number of payloads, in all and by class
    judge: str = "simulated"

    @property
    def met(self) -> bool:
        return all(figure.met is not False for figure in self.figures)

    def to_json(self) -> dict[str, object]:
        return {
            "judge": self.judge,
            "seed": self.seed,
            "corpus": self.corpus,
            "met": self.met,
            "missed": [figure.name for figure in self.figures if figure.met is False],
            "figures": [figure.to_json() for figure in self.figures],
        }
