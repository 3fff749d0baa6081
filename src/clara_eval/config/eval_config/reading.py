"""Read an `EvalConfig` from a poster's text, and collect every problem in one pass; an unknown key is an error."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, get_args

from clara_eval.config.eval_config import shape
from clara_eval.config.eval_config.catalogue import EXECUTED, MEASURED, executed_feature, typed
from clara_eval.config.eval_config.lint import lint_criteria, lint_feature, lint_judge
from clara_eval.config.eval_config.model import BareName, EvalConfig, Feature, FeatureType, HarnessSpec
from clara_eval.config.eval_config.problems import BadEvalConfig, ConfigProblem, ProblemReport, at, suggestion
from clara_eval.core.constants import HarnessLanguage
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json
from clara_eval.core.strict_json import read_strict_json

VERSION = 1
MOST_FEATURES, MOST_CRITERIA = 100, 32_000
"""What is evaluated at all, however it was posted."""
_MOST = {
    ("$.features", "maxItems"): MOST_FEATURES,
    ("$.criteria", "maxLength"): MOST_CRITERIA,
    ("$.criteria", "pattern"): MOST_CRITERIA,
}
_SIZES = {"maxItems": "There are {} features.", "maxLength": "The criteria have {:,} characters."}


def parse_eval_config(text: str | bytes) -> EvalConfig:
    """The config in `text`; raises BadEvalConfig with all problems if there is an error among them."""
    report = ProblemReport()
    config = _read(text, report)
    if config is None or report.failed:
        raise BadEvalConfig(report.problems)
    return config


def collect_problems(text: str | bytes) -> list[ConfigProblem]:
    """All problems, errors first; an empty list means there is nothing to mend."""
    report = ProblemReport()
    _read(text, report)
    return sorted(report.problems, key=lambda problem: problem.severity)


def _read(text: str | bytes, report: ProblemReport) -> EvalConfig | None:
    document = read_object(text, report)
    return read_document(document, report) if not report.failed else None


def read_object(text: str | bytes, report: ProblemReport) -> dict[str, object]:
    """The object in the text; an empty one with an error in the report where there is none."""
    try:
        document = read_strict_json(text, what="The eval config")
    except BadInput as bad:
        report.error(bad.path or "$", bad.value, bad.message, bad.remedy)
        return {}
    if not isinstance(document, dict):
        report.problems += [problem for _, problem in shape.faults(document, "$").values()]
        return {}
    return document


def read_document(document: Mapping[str, Any], report: ProblemReport) -> EvalConfig | None:
    wrong: set[str] = set()
    for path, (keyword, problem) in shape.faults(document, "$").items():
        most = _MOST.get((path, keyword))
        if path == "$.harness":
            continue
        if most is None:
            report.problems.append(problem)
            wrong.add(path)
            continue
        size = len(document[path.removeprefix("$.")])
        judge = report.forbid if size <= most else report.error
        if keyword in _SIZES:
            judge(path, size, _SIZES[keyword].format(size), problem.remedy)
        else:
            judge(path, problem.value, problem.reason, problem.remedy)
    harness = read_harness(report, document["harness"]) if "harness" in document else None
    items = document["features"][:MOST_FEATURES] if not wrong & {"$.features"} else []
    features = _read_features(items, report, harness.language if harness else None)
    if harness is not None:
        check_functions(report, harness, {feature.name: _path_of(feature.name, items) for feature in features})
    criteria = document["criteria"] if not wrong & {"$.criteria"} else ""
    lint_criteria(report, criteria[: shape.MAX_CRITERIA])
    if document.get("judge") == "rules":
        _check_rules(features, items, report)
    config = EvalConfig(
        version=VERSION,
        features=features,
        criteria=criteria if criteria.strip() else "",
        submission_format=document.get("submissionFormat"),
        language=document.get("language"),
        judge=document.get("judge"),
        canonical=canonical_json(document),
        harness=harness,
    )
    lint_judge(report, config)
    return config


def _read_features(
    items: list[object], report: ProblemReport, harness: HarnessLanguage | None
) -> tuple[Feature | BareName, ...]:
    found: list[Feature | BareName] = []
    for number, item in enumerate(items):
        path = at("$.features", number)
        feature = read_feature(report, path, item, harness)
        if feature is None:
            continue
        if feature.name in {other.name for other in found}:
            report.error(path, feature.name, f"The feature {feature.name!r} appears twice.", "Keep one of them.")
            continue
        lint_feature(report, path, feature)
        found.append(feature)
    if items and len(found) == len(items) and all(isinstance(item, Feature) and item.type == "text" for item in found):
        report.error(
            "$.features",
            None,
            'All features are of type "text", which never reaches the judge: there is nothing to compare.',
            "Add a number, integer, boolean or enum feature.",
        )
    return tuple(found)


def _path_of(name: str, items: list[object]) -> str:
    """Where the poster wrote this feature; items that could not be read are counted, too."""
    names = [item.get("name") if isinstance(item, dict) else item for item in items]
    return at("$.features", names.index(name))


def _check_rules(features: tuple[Feature | BareName, ...], items: list[object], report: ProblemReport) -> None:
    for item in features:
        feature = item if isinstance(item, Feature) else typed(item.name)
        path = _path_of(item.name, items)
        if feature is None:
            report.error(path, item.name, 'With judge "rules" every feature needs a type.', "Write it as an object.")
        elif feature.better is None and feature.type != "text":
            report.error(path, item.name, 'With judge "rules" every feature needs a direction.', 'Add "better".')


def read_feature(
    report: ProblemReport, path: str, item: object, harness: HarnessLanguage | None = None
) -> Feature | BareName | None:
    """Return the feature, or None with an error in the report; a harness measures names like `tests_passed`."""
    wrong = shape.faults(item, path, shape.FeatureName if isinstance(item, str) else shape.FeatureShape)
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
    if kind is None and (executed_feature(item["name"], "python") or executed_feature(item["name"], "solidity")):
        told = f"{item['name']} needs a harness; this config has none."
        report.error(path, item["name"], told, 'Add "harness", or leave the feature out.')
        return None
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
    _check_measured(report, path, feature, ran)
    return feature


def _plain(key: str, value: Any) -> Any:
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
    for key, kinds in shape.TYPES_WITH.items():
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


def read_harness(report: ProblemReport, value: object) -> HarnessSpec | None:
    path = "$.harness"
    before = len(report.problems)
    report.problems += [problem for _, problem in shape.faults(value, path, shape.HarnessShape).values()]
    if not isinstance(value, dict):
        return None
    if value.get("hidden") is not True:
        if "source" not in value:
            report.error(
                at(path, "source"), None, "A public harness needs its source.", 'Add "source", or "hidden": true.'
            )
        if "ifNotRevealed" in value:
            report.error(at(path, "ifNotRevealed"), None, "Only a hidden harness is revealed.", "Remove it.")
    if len(report.problems) > before:
        return None
    return HarnessSpec(
        language=value["language"],
        source=value.get("source"),
        hidden=value.get("hidden", False),
        if_not_revealed=value.get("ifNotRevealed", "public"),
        reference=value.get("reference"),
    )


def check_functions(report: ProblemReport, spec: HarnessSpec, names: Mapping[str, str]) -> None:
    """A feature (by its path) of a public harness that the harness lacks would be unknown for everybody."""
    if spec.hidden or spec.source is None:
        return
    measured = [name for name in names if name.startswith(("metric_", "fuel_"))]
    if measured and spec.language != "solidity" and not re.search(r"\bseed\b", spec.source):
        report.warn(
            "$.harness.source",
            measured[0],
            "Its inputs are known to everybody: a table of the right answers costs no work.",
            "Draw them from `seed`, the second argument of the function, or hide the harness.",
        )
    declared = {name.lower() for name in re.findall(r"\b(?:test|metric)_\w+", spec.source)}
    for name, path in names.items():
        rest = name.partition("_")[2]
        wanted = {name} if name.startswith(("test_", "metric_")) else {f"test_{rest}", f"metric_{rest}"}
        feature = executed_feature(name, spec.language)
        if feature is None or name in {"tests_passed", "runs"} or wanted & declared:
            continue
        near = suggestion(name, sorted(declared)) if declared else "It defines no test_ or metric_ function at all."
        report.error(path, name, f"The harness defines no {' or '.join(sorted(wanted))}.", near)
