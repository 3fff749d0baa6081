"""One item of `features`: a bare name, or an object with a type.

An item comes in with its path; a `Feature` or `BareName` goes out, or None with at least one error in the report.
What the object leaves out is taken from the catalogue where the name is known there. A key that has no meaning for
the type is an error, because the poster believes it does something.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from clara_eval.eval_config.catalogue import EXECUTED, MEASURED, typed
from clara_eval.eval_config.harness_reading import executed_feature
from clara_eval.eval_config.model import LARGEST_NUMBER, BareName, Better, Feature, FeatureType, HarnessLanguage, Source
from clara_eval.eval_config.problems import Report, at, suggestion

NAME = r"^[a-z][a-z0-9_]{0,39}$"
ENUM_VALUE = r"^[a-z0-9_-]{1,24}$"
MIN_VALUES, MAX_VALUES = 2, 12
MAX_WEIGHT = 1000
MAX_DESCRIPTION = 300
MAX_ANCHOR = 200
TYPES = get_args(FeatureType)
FEATURE_KEYS = ("name", "type", "min", "max", "values", "better", "weight", "source", "description", "anchors")
_RESERVED_FIELDS = (
    "winner",
    "loser",
    "tie",
    "confidence",
    "reason",
    "check",
    "check_lines",
    "canary",
    "decoy",
    "nonce",
    "evidence",
)
_RESERVED_RESULTS = ("verdict", "flags", "score", "scores", "rank", "elo")
# Who and when, which no prompt may hold.
_RESERVED_IDENTITY = ("submission", "submitter", "author", "address", "agent_id", "submitted_at")
# Words that mean something to a program that reads the vectors, or to a chat template.
_RESERVED_WORDS = ("constructor", "prototype", "features", "criteria", "system", "user", "assistant", "a", "b")
RESERVED = frozenset(_RESERVED_FIELDS + _RESERVED_RESULTS + _RESERVED_IDENTITY + _RESERVED_WORDS)
_NEEDED_BY = {"min": ("number", "integer"), "max": ("number", "integer"), "values": ("enum",), "anchors": ("integer",)}


def read_feature(
    report: Report, path: str, item: Any, harness: HarnessLanguage | None = None
) -> Feature | BareName | None:
    """`harness`: the language of the harness, which measures names like `tests_passed`; None without one."""
    if isinstance(item, str):
        if not _name_is_good(report, path, item):
            return None
        return (executed_feature(item, harness) if harness else None) or BareName(item)
    if not isinstance(item, dict):
        report.error(path, item, "A feature is a name or an object.", 'For example "novelty" or {"name": …}.')
        return None
    before = len(report.problems)
    for key in item:
        if key not in FEATURE_KEYS:
            report.error(at(path, key), item[key], f"The key {key[:60]!r} is unknown.", suggestion(key, FEATURE_KEYS))
    if "name" not in item:
        report.error(at(path, "name"), None, "The feature has no name.", 'Add "name".')
        return None
    if not _name_is_good(report, at(path, "name"), item["name"]):
        return None
    feature = _read_typed(report, path, item, harness)
    return feature if len(report.problems) == before else None


def _name_is_good(report: Report, path: str, name: Any) -> bool:
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        report.error(
            path,
            name,
            "This is not a usable feature name.",
            "Lower-case letters, digits and _, starting with a letter, at most 40.",
        )
        return False
    if name in RESERVED:
        report.error(path, name, f"The name {name!r} is reserved.", "Name a property of the work, such as novelty.")
        return False
    return True


def _read_typed(report: Report, path: str, item: Mapping[str, Any], harness: HarnessLanguage | None) -> Feature | None:
    ran = executed_feature(item["name"], harness) if harness else None
    usual = ran or typed(item["name"])
    kind = item.get("type", usual.type if usual else None)
    if kind not in TYPES:
        reason = "The feature has no type." if kind is None else "This type does not exist."
        report.error(at(path, "type"), kind, reason, f"One of: {', '.join(TYPES)}.")
        return None
    same_type = usual is not None and usual.type == kind
    start = usual if usual is not None and same_type else Feature(name=item["name"], type=kind)
    _check_meaning(report, path, item, kind)
    changes: dict[str, Any] = {
        "min": _number(report, path, item, "min", kind),
        "max": _number(report, path, item, "max", kind),
        "values": _values(report, path, item),
        "better": _choice(report, path, item, "better", get_args(Better)),
        "weight": _weight(report, path, item),
        "source": _choice(report, path, item, "source", get_args(Source)),
        "description": _text(report, path, item),
        "anchors": _anchors(report, path, item),
    }
    given = {key: value for key, value in changes.items() if key in item and value is not None}
    if {"min", "max"} & given.keys() and "anchors" not in given and start.anchors:
        given["anchors"] = ()  # the catalogue's anchors belong to the catalogue's range
    feature = dataclasses.replace(start, **given)
    _check_range(report, path, feature)
    _check_measured(report, path, feature, ran)
    return feature


def _check_meaning(report: Report, path: str, item: Mapping[str, Any], kind: FeatureType) -> None:
    for key, kinds in _NEEDED_BY.items():
        if key in item and kind not in kinds:
            report.error(
                at(path, key),
                item[key],
                f'"{key}" has no meaning for type "{kind}".',
                f"Remove it, or use type {' or '.join(kinds)}.",
            )
    usual = typed(item["name"])
    if kind == "enum" and "values" not in item and not (usual and usual.type == "enum"):
        report.error(at(path, "values"), None, "An enum needs its values.", 'For example ["low", "medium", "high"].')
    if kind == "text" and "better" in item:
        report.error(at(path, "better"), item["better"], "A text has no better end.", "Remove it: no judge sees it.")


def _number(report: Report, path: str, item: Mapping[str, Any], key: str, kind: FeatureType) -> float | None:
    value = item.get(key)
    if key not in item:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > LARGEST_NUMBER:
        report.error(at(path, key), value, f"{key} is not a number of reasonable size.", "Within ±1e12.")
        return None
    if kind == "integer" and value != int(value):
        report.error(at(path, key), value, f"{key} of an integer is not whole.", 'Round it, or use type "number".')
        return None
    return int(value) if value == int(value) else value


def _weight(report: Report, path: str, item: Mapping[str, Any]) -> float | None:
    value = item.get("weight")
    if "weight" not in item:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not 0 < value <= MAX_WEIGHT:  # type: ignore[operator]  # `good` has checked the type
        report.error(
            at(path, "weight"),
            value,
            "The weight is not a number above 0 and at most 1000.",
            'For less important features use small weights; for "less is better" use "better": "lower".',
        )
        return None
    return value


def _values(report: Report, path: str, item: Mapping[str, Any]) -> tuple[str, ...] | None:
    value = item.get("values")
    if "values" not in item:
        return None
    if not isinstance(value, list) or not MIN_VALUES <= len(value) <= MAX_VALUES:
        report.error(at(path, "values"), value, "An enum has 2 to 12 values.", 'For example ["low", "medium", "high"].')
        return None
    for number, one in enumerate(value):
        if not isinstance(one, str) or not re.fullmatch(ENUM_VALUE, one):
            report.error(
                at(at(path, "values"), number), one, "This is not a usable enum value.", "Match ^[a-z0-9_-]{1,24}$."
            )
        elif one in value[:number]:
            report.error(at(at(path, "values"), number), one, "The value appears twice.", "Keep one of them.")
    return tuple(str(one) for one in value)


def _choice(report: Report, path: str, item: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str | None:
    value = item.get(key)
    if key in item and value not in choices:
        hint = suggestion(value, choices) if isinstance(value, str) else f"One of: {', '.join(choices)}."
        report.error(at(path, key), value, f"{key} has no such value.", hint)
        return None
    return value


def _text(report: Report, path: str, item: Mapping[str, Any]) -> str | None:
    value = item.get("description")
    if "description" in item and (not isinstance(value, str) or len(value) > MAX_DESCRIPTION):
        report.error(
            at(path, "description"), value, "The description is not a text of up to 300 characters.", "Cut it."
        )
        return None
    return value


def _anchors(report: Report, path: str, item: Mapping[str, Any]) -> tuple[str, ...] | None:
    value = item.get("anchors")
    if "anchors" not in item:
        return None
    good = isinstance(value, list) and MIN_VALUES <= len(value) <= MAX_VALUES
    if not good or not all(isinstance(one, str) and 0 < len(one) <= MAX_ANCHOR for one in value):  # type: ignore[union-attr]  # `good` has checked the type
        report.error(at(path, "anchors"), value, "Anchors are 2 to 12 sentences of up to 200 characters.", "Mend them.")
        return None
    if any(len(one.splitlines()) > 1 for one in value):  # type: ignore[union-attr]  # as above
        report.error(at(path, "anchors"), value, "An anchor has more than one line.", "Write one sentence each.")
        return None
    return tuple(value)  # type: ignore[arg-type]  # checked above


def _check_range(report: Report, path: str, feature: Feature) -> None:
    if feature.min is not None and feature.max is not None and not feature.min < feature.max:
        report.error(
            at(path, "min"),
            feature.min,
            f"min ({feature.min}) is not below max ({feature.max}).",
            "Swap them.",
        )
    elif feature.anchors and len(feature.anchors) != feature.high - feature.low + 1:
        report.error(
            at(path, "anchors"),
            len(feature.anchors),
            f"There are {len(feature.anchors)} anchors for {feature.high - feature.low + 1:g} levels.",
            "Give min, max, and one anchor for each level from min to max.",
        )


def _check_measured(report: Report, path: str, feature: Feature, ran: Feature | None) -> None:
    if feature.source != "measured":
        return
    known = ran or MEASURED.get(feature.name) or EXECUTED.get(feature.name)
    if known is None:
        report.error(
            at(path, "source"), feature.name, f"No tool measures {feature.name!r}.", suggestion(feature.name, MEASURED)
        )
    elif feature.name.startswith("metric_") and {known.type, feature.type} == {"number", "integer"}:
        return  # a harness may count or measure: the poster knows which
    elif known.type != feature.type and (known.type, feature.type) != ("integer", "number"):
        report.error(at(path, "type"), feature.type, f"{feature.name!r} is measured as {known.type}.", "Use that type.")
