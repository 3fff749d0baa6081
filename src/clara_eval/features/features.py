"""What is known about one submission: the vector for the judge, texts for people, and flags for both.

A measured value beats a claimed one, and the gap is a flag. A value outside its range is clamped and flagged. What is
not known is None. Flags of severity `review` hold the post when they touch a paid place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from clara_eval.eval_config import Feature, FeatureSchema
from clara_eval.judge.vector import JudgeVector, Value, make_vector


@dataclass(frozen=True, slots=True)
class Flag:
    code: str
    feature: str | None
    sentence: str
    severity: Literal["warn", "review"] = "warn"


@dataclass(frozen=True, slots=True)
class Features:
    vector: JudgeVector
    text: dict[str, str]
    """`text` features, as a model wrote them: for people only."""
    measured: dict[str, Value]
    claimed: dict[str, Value]
    flags: tuple[Flag, ...] = ()
    requests: tuple[str, ...] = ()
    """Hashes of the requests whose answers these facts come from."""

    def to_json(self) -> dict[str, Any]:
        return {
            "features": self.vector.as_dict(),
            "text": dict(sorted(self.text.items())),
            "measured": dict(sorted(self.measured.items())),
            "claimed": dict(sorted(self.claimed.items())),
            "flags": [
                {"code": f.code, "feature": f.feature, "sentence": f.sentence, "severity": f.severity}
                for f in self.flags
            ],
            "requests": list(self.requests),
        }


def settle_facts(
    schema: FeatureSchema, measured: Mapping[str, Value], claimed: Mapping[str, Value]
) -> tuple[JudgeVector, tuple[Flag, ...]]:
    """One value for each judged feature: measured where a tool can, else claimed, else None."""
    values: dict[str, Value] = {}
    flags: list[Flag] = []
    for feature in schema.judged:
        by_tool = measured.get(feature.name)
        by_model = claimed.get(feature.name)
        chosen = by_tool if feature.source == "measured" or by_tool is not None else by_model
        if feature.source != "measured" and by_tool is not None and by_model is not None and by_tool != by_model:
            flags.append(
                Flag("claim_gap", feature.name, f"{feature.name} is claimed as {by_model} and measured as {by_tool}.")
            )
        values[feature.name] = chosen
        flags += _out_of_range(feature, chosen)
    return make_vector(schema, values), tuple(flags)


def _out_of_range(feature: Feature, value: Value) -> list[Flag]:
    if feature.source == "measured" or not isinstance(value, (int, float)) or isinstance(value, bool):
        return []
    if feature.low <= value <= feature.high:
        return []
    return [
        Flag("out_of_range", feature.name, f"{feature.name} was {value}, outside {feature.min}…{feature.max}; clamped.")
    ]
