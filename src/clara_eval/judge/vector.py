"""What a judge may see of a submission: typed values, clamped and quantised; no other text fits in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import plain_json

Value = int | float | bool | str | None
STEPS = 1000
"""A number with a range has at most this many steps; without one it keeps three significant digits. Integers keep every
unit where a tool measured them or where there are at most this many; larger claimed ones keep three digits too. What a
tool measured on a wider range keeps four digits: steps of it would make neighbours equal."""


@dataclass(frozen=True, slots=True)
class JudgeVector:
    """Values in the order of the schema; made by `make_vector` only."""

    values: tuple[tuple[str, Value], ...]

    def as_dict(self) -> dict[str, Value]:
        return dict(self.values)

    def get(self, name: str) -> Value:
        return self.as_dict()[name]

    def to_json(self) -> str:
        """Return the canonical bytes: equal facts, equal text."""
        return _json_of(self)


@lru_cache(maxsize=4096)
def _json_of(vector: JudgeVector) -> str:
    return plain_json(vector.as_dict())


def make_vector(schema: FeatureSchema, values: Mapping[str, Value]) -> JudgeVector:
    """Make the vector of these values; a missing one is None. Raises BadInput for a wrong type."""
    return JudgeVector(tuple((f.name, checked(f, values.get(f.name))) for f in schema.judged))


def checked(feature: Feature, value: Value) -> Value:
    """Return the value as it may be shown. Raises BadInput if it is not of the feature's type."""
    if value is None:
        return None
    if feature.type == "boolean" and isinstance(value, bool):
        return value
    if feature.type == "enum" and isinstance(value, str) and value in feature.values:
        return value
    if feature.type in ("number", "integer") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return quantised(feature, value)
    raise BadInput(
        f"{value!r} is not a value of the {feature.type} feature {feature.name}.",
        path=feature.name,
        value=value,
        remedy="Only numbers, booleans and the listed enum values reach the judge.",
    )


def quantised(feature: Feature, value: float) -> int | float:
    """Clamp to the range and round to its grid."""
    if not math.isfinite(value):
        raise BadInput(f"{value} is not a finite number.", path=feature.name, value=str(value))
    clamped = min(max(value, feature.low), feature.high)
    if feature.type == "integer":
        exact = feature.source == "measured" or feature.high - feature.low <= STEPS
        return round(clamped if exact else float(f"{clamped:.3g}"))
    if feature.source == "measured" and feature.high - feature.low > STEPS:
        return float(f"{clamped:.4g}") + 0.0
    if feature.min is not None and feature.max is not None and feature.max > feature.min:
        step = (feature.max - feature.min) / STEPS
        clamped = feature.min + round((clamped - feature.min) / step) * step
        return float(f"{clamped:.6g}") + 0.0
    return float(f"{clamped:.3g}") + 0.0  # adding zero turns -0.0 into 0.0: equal values, equal bytes
