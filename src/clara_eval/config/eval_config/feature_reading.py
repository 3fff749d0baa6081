"""Read one item of `features`: a bare name, or an object with a type; the catalogue gives what is left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from clara_eval.config.eval_config.catalogue import EXECUTED, MEASURED, executed_feature, typed
from clara_eval.config.eval_config.model import BareName, Feature, FeatureType
from clara_eval.config.eval_config.problems import ProblemReport, at, suggestion
from clara_eval.config.eval_config.shape import TYPES_WITH, FeatureName, FeatureShape, faults
from clara_eval.core.constants import HarnessLanguage


def read_feature(
    report: ProblemReport, path: str, item: object, harness: HarnessLanguage | None = None
) -> Feature | BareName | None:
    """Return the feature, or None with an error in the report; a harness measures names like `tests_passed`."""
    wrong = faults(item, path, FeatureName if isinstance(item, str) else FeatureShape)
    before = len(report.problems)
    report.problems += [problem for _, problem in wrong.values()]
    if isinstance(item, str):
        return None if wrong else (executed_feature(item, harness) if harness else None) or BareName(item)
    if not isinstance(item, dict) or at(path, "name") in wrong:
        return None
    bad = {
        key for key in item if any(place == at(path, key) or place.startswith(at(path, key) + "[") for place in wrong)
    }
    feature = None if "type" in bad else _read_typed(report, path, item, bad, harness)
    return feature if len(report.problems) == before else None


def _read_typed(
    report: ProblemReport, path: str, item: Mapping[str, Any], bad: set[str], harness: HarnessLanguage | None
) -> Feature | None:
    ran = executed_feature(item["name"], harness) if harness else None
    usual = ran or typed(item["name"])
    kind = item.get("type", usual.type if usual else None)
    if kind is None:
        report.error(at(path, "type"), kind, "The feature has no type.", f"One of: {', '.join(get_args(FeatureType))}.")
        return None
    same_type = usual is not None and usual.type == kind
    start = usual if usual is not None and same_type else Feature(name=item["name"], type=kind)
    _check_meaning(report, path, item, kind)
    given = {key: _plain(key, value) for key, value in item.items() if key not in bad}
    for key in ("values", "anchors"):
        _check_list(report, at(path, key), given.get(key, ()))
    for key in ("min", "max"):
        if kind == "integer" and not isinstance(given.get(key, 0), int):
            report.error(
                at(path, key), given.pop(key), f"{key} of an integer is not whole.", 'Round it, or use type "number".'
            )
    if {"min", "max"} & given.keys() and "anchors" not in given and start.anchors:
        given["anchors"] = ()  # the catalogue's anchors belong to the catalogue's range
    feature = dataclasses.replace(start, **given)
    _check_range(report, path, feature)
    _check_measured(report, path, feature, ran)
    return feature


def _plain(key: str, value: Any) -> Any:
    """Return lists as tuples and whole bounds as integers."""
    if isinstance(value, list):
        return tuple(value)
    return int(value) if key in {"min", "max"} and value == int(value) else value


def _check_list(report: ProblemReport, path: str, items: tuple[str, ...]) -> None:
    for number, one in enumerate(items):
        if len(one.splitlines()) > 1:
            report.error(path, one, "An anchor has more than one line.", "Write one sentence each.")
        elif path.endswith("values") and one in items[:number]:
            report.error(at(path, number), one, "The value appears twice.", "Keep one of them.")


def _check_meaning(report: ProblemReport, path: str, item: Mapping[str, Any], kind: FeatureType) -> None:
    for key, kinds in TYPES_WITH.items():
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


def _check_range(report: ProblemReport, path: str, feature: Feature) -> None:
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


def _check_measured(report: ProblemReport, path: str, feature: Feature, ran: Feature | None) -> None:
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
