"""A judge without a model: the weighted merit of typed facts decides, and a small gap is a tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.constants import LARGEST_NUMBER
from clara_eval.core.errors import ConfigError
from clara_eval.judge.comparison import Decision, JudgeVector, Side, Value, Verdict
from clara_eval.judge.structured_llm import AskOutcome

TIE_BAND = 0.0001  # a ten-thousandth of the whole scale: closer than that, the facts do not say who is better
KNOWN = 0.05  # what the worst known value is worth: unknown is worth nothing
WIDEST_LINEAR = 100


@dataclass(frozen=True, slots=True)
class RulesJudge:
    schema: FeatureSchema
    name: str = "rules"

    def __post_init__(self) -> None:
        if not math.fsum(feature.weight for feature in self.schema.judged) > 0:
            raise ConfigError(
                "The rules cannot judge this config: no feature that reaches the judge has a weight above 0.",
                remedy="Give at least one number, boolean or enum feature a positive weight.",
            )
        silent = [feature.name for feature in self.schema.judged if feature.better is None]
        if silent:
            raise ConfigError(
                f"The rules cannot judge this config, because these features have no direction: {', '.join(silent)}.",
                remedy='Give each feature "better": "higher" or "lower", or set CLARA_JUDGES to a model.',
            )

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        """Do nothing."""

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision:
        return self.decide(first, second)

    def decide(self, first: JudgeVector, second: JudgeVector) -> Decision:
        return AskOutcome(self.verdict(first, second), "", ())

    def verdict(self, first: JudgeVector, second: JudgeVector) -> Verdict:
        gap = self.merit(first) - self.merit(second)
        if abs(gap) <= TIE_BAND:
            return Verdict("tie", 0.5, "Their merits are the same within a ten-thousandth.")
        winner: Side = "A" if gap > 0 else "B"
        confidence = round(0.5 + 0.5 * min(1.0, abs(gap) / 0.5), 3)
        return Verdict(winner, confidence, self._reason(winner, first, second))

    def merit(self, vector: JudgeVector) -> float:
        values, judged = vector.as_dict(), self.schema.judged
        weights = math.fsum(feature.weight for feature in judged)
        return math.fsum(f.weight * goodness(f, values[f.name]) for f in judged) / weights

    def _reason(self, winner: Side, first: JudgeVector, second: JudgeVector) -> str:
        better, worse = (first.as_dict(), second.as_dict()) if winner == "A" else (second.as_dict(), first.as_dict())
        judged = self.schema.judged
        gains = [(f.weight * (goodness(f, better[f.name]) - goodness(f, worse[f.name])), f.name) for f in judged]
        strongest = [name for gain, name in sorted(gains, key=lambda pair: (-pair[0], pair[1])) if gain > 0][:3]
        return "; ".join(f"{name} {_shown(better[name])} against {_shown(worse[name])}" for name in strongest)


def goodness(feature: Feature, value: Value) -> float:
    """Place a value between unknown (0), the worst known (`KNOWN`) and the best (1) of its feature."""
    if value is None:
        return 0.0
    share = min(1.0, max(0.0, _share(feature, value)))
    return KNOWN + (1.0 - KNOWN) * (share if feature.better == "higher" else 1.0 - share)


def _share(feature: Feature, value: Value) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return feature.values.index(value) / max(1, len(feature.values) - 1)
    assert value is not None, "unknown values are handled before"
    if feature.min is None:
        # No lower end: half the scale for each side of zero.
        return 0.5 + math.copysign(_by_ratio(abs(value), LARGEST_NUMBER), value) / 2
    above, span = value - feature.min, feature.high - feature.min
    return above / span if span <= WIDEST_LINEAR else _by_ratio(above, span)


def _by_ratio(above: float, span: float) -> float:
    return math.log1p(max(0.0, above)) / math.log1p(span)


def _shown(value: Value) -> str:
    return "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
