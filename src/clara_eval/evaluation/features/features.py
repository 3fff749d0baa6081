"""The facts of one submission: a measured value beats a claimed one, and several readings are merged to the worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.flags import Flag
from clara_eval.harness import Executed, RunOutcome
from clara_eval.judge.comparison import JudgeVector, Value, checked, make_vector
from clara_eval.judge.extraction import Claims

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


TOLERANCE = 0.1
_HUGE = 1e300
"""Far outside every range; a mean of larger claims would not be a number any more."""
DISAGREE = "views_disagree"
LEVELS = 10
"""An integer with at most this many values may differ by one: neighbouring levels are a matter of reading."""
SHORT = 3
"""An ordered enum with more words than this may differ by one, for the same reason."""


def merge_parts(schema: FeatureSchema, parts: Sequence[Claims]) -> Claims:
    values = {
        feature.name: merge_values(feature, [part.values.get(feature.name) for part in parts])
        for feature in schema.judged
        if feature.source == "llm"
    }
    texts: dict[str, str] = {}
    for part in parts:
        for name, text in part.texts.items():
            texts.setdefault(name, text)
    return Claims(values, texts, frozenset().union(*(part.shown for part in parts)))


def merge_values(feature: Feature, values: Sequence[Value]) -> Value:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if feature.better is not None:
        return worst(feature, known)
    if feature.type == "boolean":
        return any(known)
    if feature.type == "enum":
        return known[0]
    mean = math.fsum(min(max(float(value), -_HUGE), _HUGE) for value in known) / len(known)
    return round(mean) if feature.type == "integer" else mean


def worst(feature: Feature, known: Sequence[Value]) -> Value:
    def order(value: Value) -> float:
        return feature.values.index(value) if isinstance(value, str) else float(value or 0)

    return (min if feature.better == "higher" else max)(known, key=order)


def merge_views(
    schema: FeatureSchema, full: Mapping[str, Value], neutral: Mapping[str, Value]
) -> tuple[dict[str, Value], tuple[Flag, ...]]:
    """Return what the neutral view confirms, with a flag if both differ."""
    merged: dict[str, Value] = {}
    flags: list[Flag] = []
    for name, whole in full.items():
        bare, feature = neutral.get(name), schema.feature(name)
        merged[name] = merge_values(feature, [bare, whole]) if feature.better else whole if bare is None else bare
        if bare is not None and whole is not None and differs(feature, whole, bare):
            sentence = (
                f"{name} is {whole} by the full text and {bare} by what the code does without its names and words;"
            )
            counts = "the worse counts" if feature.better else "the latter counts"
            evidence = {"feature": name, "full": whole, "neutral": bare}
            flags.append(Flag(DISAGREE, "review", f"{sentence} {counts}.", evidence=evidence))
    return merged, tuple(flags)


def differs(feature: Feature, one: Value, other: Value) -> bool:
    """Return whether two values are further apart than readings of one text may be."""
    if isinstance(one, str) and isinstance(other, str) and feature.better and len(feature.values) > SHORT:
        return abs(feature.values.index(one) - feature.values.index(other)) > 1
    if isinstance(one, (bool, str)) or isinstance(other, (bool, str)) or one is None or other is None:
        return one != other
    if feature.min is None or feature.max is None:
        return abs(one - other) > TOLERANCE * max(abs(one), abs(other))
    span = feature.max - feature.min
    room = 1 if feature.type == "integer" and span < LEVELS else TOLERANCE * span
    return abs(one - other) > room


_ORDINARY = frozenset({RunOutcome.PASSED, RunOutcome.FAILED})


def executed_values(schema: FeatureSchema, executed: Executed | None) -> dict[str, Value]:
    if executed is None or not executed.is_measured:
        return {}
    measured = executed.features
    found: dict[str, Value] = {name: measured[name] for name in schema.names if name in measured}
    if executed.with_harness:
        failed = (f for f in schema.features if f.source == "measured" and f.name.startswith("test_"))
        found |= {feature.name: False for feature in failed if feature.name not in measured}
    return found


def executed_flags(executed: Executed | None) -> tuple[Flag, ...]:
    if executed is None or executed.outcome in _ORDINARY:
        return ()
    evidence = {"outcome": executed.outcome.value}
    if not executed.is_measured:
        sentence = "It could not be run on the evaluator's machine; what only running tells is unknown."
        return (Flag("not_executed", "review", sentence, evidence=evidence),)
    words = executed.outcome.value.replace("_", " ")
    return (
        Flag("does_not_run", "info", f"Run under the limits of the round it ended as: {words}.", evidence=evidence),
    )
