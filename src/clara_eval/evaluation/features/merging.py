"""Merge several readings of one submission: never better than the worst of them.

Without a direction: the mean of numbers, true if any part says so, the first known enum value. Two views that differ
by more than a tenth of the range are flagged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.flags import Flag
from clara_eval.judge.comparison import Value
from clara_eval.judge.extraction import Claims

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
