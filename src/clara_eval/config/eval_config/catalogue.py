"""The built-in types of common feature names, from `catalogue.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from clara_eval.config.eval_config.model import EvalConfig, Feature, FeatureSchema, FeatureType
from clara_eval.core.model import HarnessLanguage

_COST = re.compile(r"(gas|fuel)_[a-z0-9_]+")
_DATA: dict[str, Any] = json.loads(resources.files(__package__).joinpath("catalogue.json").read_text("utf-8"))
LEVEL_ANCHORS: tuple[str, ...] = tuple(_DATA["anchors"]["general"])
"""What the levels 0–4 mean if a feature has no anchors of its own."""


def level_feature(name: str, description: str = "", anchors: tuple[str, ...] = LEVEL_ANCHORS) -> Feature:
    """Return a level from 0 to 4 with written anchors, the type of a name that has no other type."""
    return Feature(
        name=name,
        type="integer",
        min=0,
        max=4,
        better="higher",
        description=description or f"How far the submission shows: {name.replace('_', ' ')}.",
        anchors=anchors,
    )


def _feature(row: dict[str, Any], **more: Any) -> Feature:
    if "anchors" in row:
        return level_feature(row["name"], row["description"], tuple(_DATA["anchors"][row["anchors"]]))
    return Feature(**{**row, "values": tuple(row.get("values", ())), **more})


MEASURED = {row["name"]: _feature(row, source="measured") for row in _DATA["measured"]}
EXECUTED = {row["name"]: _feature(row, source="measured") for row in _DATA["executed"]}
COMMON = {row["name"]: _feature(row) for row in _DATA["common"]}


def known_feature(name: str) -> Feature | None:
    return MEASURED.get(name) or EXECUTED.get(name) or COMMON.get(name)


def executed_feature(name: str, language: HarnessLanguage) -> Feature | None:
    """Return the type of a feature that a harness in this language measures, or None."""
    if name == "tests_passed":
        return Feature(name, "number", 0, 1, better="higher", source="measured", description="Share of tests passed.")
    if name == "runs":
        text = "It compiles, loads and finishes within the limits."
        return Feature(name, "boolean", better="higher", source="measured", description=text)
    if name.startswith("test_"):
        return Feature(name, "boolean", better="higher", source="measured", description=f"The harness's {name} passes.")
    if name.startswith("metric_"):
        kind: FeatureType = "integer" if language == "solidity" else "number"
        return Feature(name, kind, source="measured", description=f"What the harness's {name} returns.")
    if cost := _COST.fullmatch(name):
        text = f"{cost[1].capitalize()} that the harness's function uses."
        return Feature(name, "integer", 0, better="lower", source="measured", description=text)
    return None


def compile_schema(config: EvalConfig) -> tuple[FeatureSchema, tuple[str, ...]]:
    """Return the schema in the poster's order, and the names that only have the fallback type."""
    pairs = [(item, item if isinstance(item, Feature) else known_feature(item.name)) for item in config.features]
    features = tuple(known or level_feature(item.name) for item, known in pairs)
    return FeatureSchema(features), tuple(item.name for item, known in pairs if known is None)


def with_types(schema: FeatureSchema, better_types: Iterable[Feature]) -> FeatureSchema:
    """Replace features by name; unknown names are ignored."""
    replacements = {feature.name: feature for feature in better_types}
    return FeatureSchema(tuple(replacements.get(feature.name, feature) for feature in schema.features))


KINDS = {
    "measured": "Code, judged by what tools measure: no model, no cost, nothing can be talked up.",
    "gas": "Solidity, run under your own tests: correctness first, then gas. No model.",
    "code": "Code that a model reads for correctness, beside what tools measure.",
    "text": "Writing: relevance, evidence and clarity, read by a model.",
    "amm": "An AMM's fee curve in Solidity: mathematics, gas and novelty, read by a model.",
}  # The kinds of challenges that have a starter config, each with a sentence to choose by.


def template_text(name: str) -> str:
    return resources.files(__package__).joinpath("starters", f"{name}.json").read_text("utf-8")
