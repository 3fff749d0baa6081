"""Does the confidence that a judge claims tell anything? Measured on recorded comparisons, used for nothing.

In come comparisons of a round; out goes how well confidence separates verdicts that survived the swap of the sides
from those that did not: .5 tells nothing, 1 everything. Only where this is clearly above .5 on many recorded rounds
would weighing verdicts by confidence be worth a thought; until then every verdict counts the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from clara_eval.evaluation.play import Comparison

CLEARLY = 2.0  # standard errors


@dataclass(frozen=True, slots=True)
class ConfidenceReport:
    """`separation` is the chance that a kept verdict was claimed with more confidence than one that was not; None where
    all were kept, or none. `error` is its standard error.
    """

    kept: int
    turned: int
    separation: float | None
    error: float | None

    @property
    def tells_something(self) -> bool:
        return self.separation is not None and self.error is not None and self.separation - 0.5 > CLEARLY * self.error


def measure_confidence(comparisons: Iterable[Comparison]) -> ConfidenceReport:
    """Every judge's pairs that were asked in both orders, each with the mean of its two confidences."""
    asked = {
        (c.first, c.second, c.judge): c
        for c in comparisons
        if c.winner is not None and c.confidence is not None and not c.group
    }
    kept: list[float] = []
    turned: list[float] = []
    for (first, second, judge), one in asked.items():
        other = asked.get((second, first, judge))
        if other is None or first > second:
            continue
        same = (one.winner, other.winner) in {("first", "second"), ("second", "first"), ("tie", "tie")}
        (kept if same else turned).append(((one.confidence or 0.0) + (other.confidence or 0.0)) / 2)
    return separation_of(kept, turned)


def separation_of(kept: Sequence[float], turned: Sequence[float]) -> ConfidenceReport:
    """How well confidences tell verdicts of one kind from those of the other."""
    if not kept or not turned:
        return ConfidenceReport(len(kept), len(turned), None, None)
    gap = np.sign(np.array(kept)[:, None] - np.array(turned)[None, :])
    separation = float((gap.mean() + 1) / 2)
    return ConfidenceReport(
        len(kept), len(turned), round(separation, 4), round(_error(separation, len(kept), len(turned)), 4)
    )


def _error(area: float, kept: int, turned: int) -> float:
    """Hanley and McNeil's standard error of an area under the curve."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (kept - 1) * (q1 - area**2) + (turned - 1) * (q2 - area**2)
    return float(max(variance / (kept * turned), 0.0) ** 0.5)
