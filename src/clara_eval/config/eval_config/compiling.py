"""Compile a poster's features to the closed schema of one evaluation, before any submission is read."""

from __future__ import annotations

from collections.abc import Iterable

from clara_eval.config.eval_config.catalogue import level_feature, typed
from clara_eval.config.eval_config.model import EvalConfig, Feature, FeatureSchema


def compile_schema(config: EvalConfig) -> tuple[FeatureSchema, tuple[str, ...]]:
    """Return the schema in the poster's order, and the names in it that only have the fallback type."""
    features: list[Feature] = []
    untyped: list[str] = []
    for item in config.features:
        known = item if isinstance(item, Feature) else typed(item.name)
        if known is None:
            untyped.append(item.name)
        features.append(known or level_feature(item.name))
    return FeatureSchema(tuple(features)), tuple(untyped)


def with_types(schema: FeatureSchema, better_types: Iterable[Feature]) -> FeatureSchema:
    """Replace features by name; unknown names are ignored."""
    replacements = {feature.name: feature for feature in better_types}
    return FeatureSchema(tuple(replacements.get(feature.name, feature) for feature in schema.features))
