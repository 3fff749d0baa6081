"""The facts of one submission: a measured value beats a claimed one, and a gap between them is a flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.flags import Flag
from clara_eval.judge.comparison import JudgeVector, Value, checked, make_vector

SecondView = Literal["read", "same", "missing", "none"]
"""Of the code in neutral words: it was read; it is the whole text; it could not be made; prose has none."""
MANY_CLAIMS = 3
"""From this many claims on, all of them at or near their best is unlikely to be honest."""


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    vector: JudgeVector
    text: dict[str, str]
    """`text` features, as a model wrote them: for people only."""
    measured: dict[str, Value]
    claimed: dict[str, Value]
    flags: tuple[Flag, ...] = ()
    requests: tuple[str, ...] = ()
    """Hashes of the requests whose answers these facts come from."""
    second_view: SecondView = "none"
    unsupported: tuple[str, ...] = ()
    """Claimed features with a value for which no line was shown, or none that the second view bears out."""

    def to_json(self) -> dict[str, object]:
        return {
            "features": self.vector.as_dict(),
            "text": dict(sorted(self.text.items())),
            "measured": dict(sorted(self.measured.items())),
            "claimed": dict(sorted(self.claimed.items())),
            "flags": to_camel_json(self.flags),
            "requests": list(self.requests),
            "secondView": self.second_view,
            "unsupported": list(self.unsupported),
        }


def choose_values(
    schema: FeatureSchema, measured: Mapping[str, Value], claimed: Mapping[str, Value]
) -> tuple[JudgeVector, tuple[Flag, ...]]:
    """Return one value for each judged feature: measured, else claimed, else None."""
    values: dict[str, Value] = {}
    flags: list[Flag] = []
    for feature in schema.judged:
        by_tool, by_model = _fitting(feature, measured.get(feature.name)), claimed.get(feature.name)
        chosen = by_tool if feature.source == "measured" or by_tool is not None else by_model
        if by_tool is not None and by_model is not None and _is_gap(feature, by_tool, by_model):
            sentence = f"{feature.name} is claimed as {by_model} and measured as {by_tool}."
            evidence = {"feature": feature.name, "claimed": by_model, "measured": by_tool}
            flags.append(Flag("claim_gap", "review", sentence, evidence=evidence))
        values[feature.name] = chosen
        flags += _out_of_range(feature, chosen)
    return make_vector(schema, values), tuple(flags)


def _fitting(feature: Feature, value: Value) -> Value:
    """Return a measured value if the poster's feature of this name can hold it."""
    try:
        checked(feature, value)
    except BadInput:
        return None
    return value


def _is_gap(feature: Feature, by_tool: Value, by_model: Value) -> bool:
    if isinstance(by_tool, (bool, str)) or isinstance(by_model, (bool, str)) or by_tool is None or by_model is None:
        return by_tool != by_model
    # Counting is hard for models: a tenth, or one, is not a lie.
    return abs(by_tool - by_model) > max(0.1 * abs(by_tool), 1.0 if feature.type == "integer" else 0.0)


def _out_of_range(feature: Feature, value: Value) -> list[Flag]:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or feature.low <= value <= feature.high:
        return []
    span = f"{feature.low:g}…{feature.high:g}"
    sentence = f"{feature.name} was {value:g}, outside {span}; the bound counts."
    return [Flag("out_of_range", "warn", sentence, evidence={"feature": feature.name, "value": value})]
