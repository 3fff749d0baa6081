"""Measure a judge on labelled pairs: agreement, kappa, biases. A pair is clear if both orders name one winner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.actions.calibration_labels import Side
from clara_eval.judge.calibration_gate import Calibration, Measured

Z = 1.959964
SIDES: tuple[Side, ...] = ("first", "second", "tie")


@dataclass(frozen=True, slots=True)
class Looked:
    """One labelled pair with the judge's verdict in both orders, as sides of the label; None is no verdict."""

    human: Side
    shown_first: Side | None
    """The verdict when `first` was shown first."""
    shown_second: Side | None
    """The verdict when `first` was shown second."""
    lengths: tuple[float, float] | None = None

    @property
    def verdict(self) -> Side | None:
        """Return the side that both orders name, else a tie; None if an order has no verdict."""
        if self.shown_first is None or self.shown_second is None:
            return None
        return self.shown_first if self.shown_first == self.shown_second else "tie"


def measure(judge: str, prompt: str, work: str, looked: Sequence[Looked]) -> Calibration:
    decided = [look for look in looked if look.verdict is not None]
    humans = Counter(look.human for look in looked)
    agreed = sum(look.verdict == look.human for look in decided)
    clear = [look for look in decided if look.verdict != "tie" and look.human != "tie"]
    return Calibration(
        judge,
        prompt,
        work,
        len(looked),
        len(looked) - len(decided),
        proportion(agreed, len(decided)),
        max(humans.values(), default=0) / max(1, len(looked)),
        _kappa(decided),
        proportion(sum(look.verdict == look.human for look in clear), len(clear)),
        mean([_position(look) for look in decided]),
        mean([_length(look) for look in decided if look.lengths and look.lengths[0] != look.lengths[1]]),
    )


def proportion(hits: int, count: int) -> Measured:
    """Return a share with Wilson's interval."""
    if not count:
        return Measured(None, None, None, 0)
    share = hits / count
    middle = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    half = Z / (1 + Z * Z / count) * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return _rounded(share, max(0.0, middle - half), min(1.0, middle + half), count)


def mean(values: Sequence[float]) -> Measured:
    """Return the mean with a normal interval, at least one pair of the sample wide."""
    count = len(values)
    if count < 2:
        return Measured(values[0] if values else None, None, None, count)
    middle = math.fsum(values) / count
    variance = math.fsum((value - middle) ** 2 for value in values) / (count - 1)
    half = max(Z * math.sqrt(variance / count), 1 / count)
    return _rounded(middle, middle - half, middle + half, count)


def _rounded(value: float, low: float, high: float, count: int) -> Measured:
    return Measured(round(value, 6), round(low, 6), round(high, 6), count)


def _position(look: Looked) -> float:
    """Return 1 if both orders chose the side shown first, -1 if both chose the other."""
    once = {"first": 1, "second": -1, "tie": 0}
    assert look.shown_first is not None
    assert look.shown_second is not None
    return (once[look.shown_first] - once[look.shown_second]) / 2


def _length(look: Looked) -> float:
    """Return half the difference of the judge's and the person's preference for the longer side."""
    assert look.lengths is not None
    assert look.verdict is not None
    longer = 1 if look.lengths[0] > look.lengths[1] else -1
    once = {"first": longer, "second": -longer, "tie": 0}
    return (once[look.verdict] - once[look.human]) / 2


def _kappa(decided: Sequence[Looked]) -> float | None:
    """Return Cohen's kappa; None if chance alone would always agree."""
    count = len(decided)
    if not count:
        return None
    judge, human = Counter(look.verdict for look in decided), Counter(look.human for look in decided)
    chance = math.fsum(judge[side] * human[side] for side in SIDES) / (count * count)
    agreed = sum(look.verdict == look.human for look in decided) / count
    return None if chance == 1 else round((agreed - chance) / (1 - chance), 6)
