"""The built-in types of common feature names, from `catalogue.json`.

`MEASURED` holds what tools compute, `EXECUTED` what compiling or loading tells without a harness, `COMMON` what a model
reads: levels 0–4 with written anchors, closed enums, booleans. None is of type `text`.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

from clara_eval.config.eval_config.model import Feature, FeatureType
from clara_eval.core.constants import HarnessLanguage

_COST = re.compile(r"(gas|fuel)_[a-z0-9_]+")
_DATA: dict[str, Any] = json.loads(resources.files(__package__).joinpath("catalogue.json").read_text("utf-8"))
LEVEL_ANCHORS: tuple[str, ...] = tuple(_DATA["anchors"]["general"])
"""What the levels 0–4 mean if a feature has no anchors of its own."""


def level_feature(name: str, description: str = "", anchors: tuple[str, ...] = LEVEL_ANCHORS) -> Feature:
    """Return an integer level 0–4 with written anchors: the type of a name that nothing else types."""
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


def typed(name: str) -> Feature | None:
    """Return the catalogue's feature of this name, or None."""
    return MEASURED.get(name) or EXECUTED.get(name) or COMMON.get(name)


def executed_feature(name: str, language: HarnessLanguage) -> Feature | None:
    """The type of a feature that a harness in this language gives, or None."""
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
