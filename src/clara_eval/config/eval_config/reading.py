"""Read an `EvalConfig` from a poster's text, and report every problem in one pass.

Texts are checked for what must not steer an evaluation: addresses, links, signals, commands.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, get_args

from clara_eval.config.eval_config import shape
from clara_eval.config.eval_config.catalogue import COMMON, EXECUTED, MEASURED, executed_feature, known_feature
from clara_eval.config.eval_config.model import BareName, EvalConfig, Feature, FeatureType, HarnessSpec
from clara_eval.config.eval_config.shape import BadEvalConfig, ConfigProblem, ProblemReport, at, suggestion
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json
from clara_eval.core.model import HarnessLanguage
from clara_eval.core.strict_json import read_strict_json

MOST_FEATURES, MOST_CRITERIA = 100, 32_000  # hard limits, even for a challenge that is posted
_HARD_LIMITS = {
    ("$.features", "maxItems"): (MOST_FEATURES, "There are {} features."),
    ("$.criteria", "maxLength"): (MOST_CRITERIA, "The criteria have {:,} characters."),
    ("$.criteria", "pattern"): (MOST_CRITERIA, ""),
}
SHORT_CRITERIA = 40
HARD_TO_READ = frozenset({"number"})  # types that models mostly read wrongly: docs/quality.md
_FORBIDDEN = (
    (r"https?://|\bwww\.|\bipfs://|\bdata:[a-z]+/", "a URL", "The judge opens no links: say what is wanted in words."),
    (r"\b0x[0-9a-fA-F]{64}\b|\b[0-9a-fA-F]{64}\b", "a hash", "Describe the property that makes a solution good."),
    (r"\b0x[0-9a-fA-F]{40}\b", "an address", "Who submitted must not matter: describe the work."),
    (r"(?i)\b[a-z0-9-]+\.(?:eth|base\.eth)\b", "an ENS name", "Who submitted must not matter: describe the work."),
)
_QUOTED = re.compile(r"[\"“«]([^\"”»\n]{1,200})[\"”»]|`([^`\n]{1,200})`")
_MAGIC = re.compile(
    r"(?i)\b(?:contain|includ|mention|say|phrase|word|magic|start|begin|end|sign|comment|string|token|marker)\w*\W+"
    r"(?:\w+\W+){0,4}$"
)
_WHO_OR_WHEN = re.compile(
    r"(?i)\b(?:submitter|author|wallet|sender|agent ?id|submitted (?:before|after|by|first|last)|"
    r"first submission|last submission|block (?:number )?\d+|timestamp)\b"
)
_ORDERS = re.compile(
    r"(?:^|_)(ignore|disregard|override|choose|select|pick|prefer|always|never|instructions?|winner|loser)(?=_|$)"
)
_LESS_IS_BETTER = re.compile(
    r"(?:^|_)(?:gas|costs?|errors|bugs|latency|slippage|complexity|duplicates?|vulnerabilities|risk|warnings)(?:_|$)"
)


def parse_eval_config(text: str | bytes) -> EvalConfig:
    """Return the config in `text`; raises BadEvalConfig with all problems if one is an error."""
    report = ProblemReport()
    config = read_document(read_object(text, report), report)
    if config is None:
        raise BadEvalConfig(report.problems)
    return config


def collect_problems(text: str | bytes) -> list[ConfigProblem]:
    """Return all problems of a config, errors first."""
    report = ProblemReport()
    read_document(read_object(text, report), report)
    return sorted(report.problems, key=lambda problem: problem.severity)


def read_object(text: str | bytes, report: ProblemReport) -> dict[str, object]:
    """Return the object in the text; if there is none, an empty one with an error in the report."""
    try:
        document = read_strict_json(text, what="The eval config")
    except BadInput as bad:
        report.error(bad.path or "$", bad.value, bad.message, bad.remedy)
        return {}
    if isinstance(document, dict):
        return document
    report.problems += [problem for _, problem in shape.find_faults(document, "$").values()]
    return {}


def read_document(document: Mapping[str, Any], report: ProblemReport) -> EvalConfig | None:
    """Return the config, or None if the report has an error, from before or from this document."""
    if report.failed:
        return None
    wrong = _check_shape(document, report)
    harness = _read_harness(report, document["harness"]) if "harness" in document else None
    items = [] if "$.features" in wrong else document["features"][:MOST_FEATURES]
    features = _read_features(items, report, harness.language if harness else None)
    if harness is not None:
        _check_functions(report, harness, {feature.name: path for path, feature in features.items()})
    criteria = "" if "$.criteria" in wrong else document["criteria"]
    _lint_criteria(report, criteria[: shape.MAX_CRITERIA])
    if document.get("judge") == "rules":
        _check_rules(report, features)
    if report.failed:
        return None
    return EvalConfig(
        version=1,
        features=tuple(features.values()),
        criteria=criteria if criteria.strip() else "",
        submission_format=document.get("submissionFormat"),
        language=document.get("language"),
        judge=document.get("judge"),
        canonical=canonical_json(document),
        harness=harness,
    )


def _check_shape(document: Mapping[str, Any], report: ProblemReport) -> set[str]:
    """Report what is wrong with the keys of the document, and return the paths that cannot be read."""
    wrong: set[str] = set()
    for path, (keyword, problem) in shape.find_faults(document, "$").items():
        if path == "$.harness":
            continue
        if (path, keyword) not in _HARD_LIMITS:
            report.problems.append(problem)
            wrong.add(path)
            continue
        most, reason = _HARD_LIMITS[path, keyword]
        size = len(document[path.removeprefix("$.")])
        add = report.forbid if size <= most else report.error
        add(path, size if reason else problem.value, reason.format(size) or problem.reason, problem.remedy)
    return wrong


def _read_features(
    items: list[object], report: ProblemReport, harness: HarnessLanguage | None
) -> dict[str, Feature | BareName]:
    """Return the features that can be read, by path."""
    found: dict[str, Feature | BareName] = {}
    for number, item in enumerate(items):
        path = at("$.features", number)
        feature = read_feature(report, path, item, harness)
        if feature is None:
            continue
        if feature.name in {other.name for other in found.values()}:
            report.error(path, feature.name, f"The feature {feature.name!r} appears twice.", "Keep one of them.")
            continue
        _lint_feature(report, path, feature)
        found[path] = feature
    types = [item.type if isinstance(item, Feature) else None for item in found.values()]
    if items and types == ["text"] * len(items):
        report.error(
            "$.features",
            None,
            'All features are of type "text", which never reaches the judge: there is nothing to compare.',
            "Add a number, integer, boolean or enum feature.",
        )
    return found


def read_feature(
    report: ProblemReport, path: str, item: object, harness: HarnessLanguage | None = None
) -> Feature | BareName | None:
    """Return the feature, or None with an error in the report; `harness` types names like `runs`."""
    wrong = shape.find_faults(item, path, shape.FeatureName if isinstance(item, str) else shape.FeatureShape)
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
    name = item["name"]
    ran = executed_feature(name, harness) if harness else None
    usual = ran or known_feature(name)
    kind = item.get("type", usual.type if usual else None)
    if kind is None and (executed_feature(name, "python") or executed_feature(name, "solidity")):
        reason = f"{name} needs a harness; this config has none."
        report.error(path, name, reason, 'Add "harness", or leave the feature out.')
        return None
    if kind is None:
        report.error(at(path, "type"), kind, "The feature has no type.", f"One of: {', '.join(get_args(FeatureType))}.")
        return None
    start = usual if usual is not None and usual.type == kind else Feature(name=name, type=kind)
    _check_meaning(report, path, item, kind)
    given = {key: _normalise(key, value) for key, value in item.items() if key not in bad}
    for key in ("values", "anchors"):
        _check_list(report, at(path, key), given.get(key, ()))
    for key in ("min", "max"):
        if kind == "integer" and not isinstance(given.get(key, 0), int):
            reason = f"{key} of an integer is not whole."
            report.error(at(path, key), given.pop(key), reason, 'Round it, or use type "number".')
    if {"min", "max"} & given.keys() and "anchors" not in given and start.anchors:
        given["anchors"] = ()  # the catalogue's anchors belong to the catalogue's range
    feature = dataclasses.replace(start, **given)
    levels = feature.high - feature.low + 1
    if feature.min is not None and feature.max is not None and not feature.min < feature.max:
        reason = f"min ({feature.min}) is not below max ({feature.max})."
        report.error(at(path, "min"), feature.min, reason, "Swap them.")
    elif feature.anchors and len(feature.anchors) != levels:
        reason = f"There are {len(feature.anchors)} anchors for {levels:g} levels."
        remedy = "Give min, max, and one anchor for each level from min to max."
        report.error(at(path, "anchors"), len(feature.anchors), reason, remedy)
    _check_measured(report, path, feature, ran)
    return feature


def _normalise(key: str, value: Any) -> Any:
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
            remedy = f"Remove it, or use type {' or '.join(kinds)}."
            report.error(at(path, key), item[key], f'"{key}" has no meaning for type "{kind}".', remedy)
    usual = known_feature(item["name"])
    if kind == "enum" and "values" not in item and not (usual and usual.type == "enum"):
        report.error(at(path, "values"), None, "An enum needs its values.", 'For example ["low", "medium", "high"].')
    if kind == "text" and "better" in item:
        report.error(at(path, "better"), item["better"], "A text has no better end.", "Remove it: no judge sees it.")


def _check_measured(report: ProblemReport, path: str, feature: Feature, ran: Feature | None) -> None:
    if feature.source != "measured":
        return
    name, known = feature.name, ran or MEASURED.get(feature.name) or EXECUTED.get(feature.name)
    if known is None:
        report.error(at(path, "source"), name, f"No tool measures {name!r}.", suggestion(name, MEASURED))
    elif name.startswith("metric_") and {known.type, feature.type} == {"number", "integer"}:
        return  # a harness may return either
    elif known.type != feature.type and (known.type, feature.type) != ("integer", "number"):
        report.error(at(path, "type"), feature.type, f"{name!r} is measured as {known.type}.", "Use that type.")


def _check_rules(report: ProblemReport, features: Mapping[str, Feature | BareName]) -> None:
    read_by_model = []
    for path, item in features.items():
        feature = item if isinstance(item, Feature) else known_feature(item.name)
        if feature is None:
            report.error(path, item.name, 'With judge "rules" every feature needs a type.', "Write it as an object.")
        elif feature.better is None and feature.type != "text":
            report.error(path, item.name, 'With judge "rules" every feature needs a direction.', 'Add "better".')
        read_by_model += [item.name] if feature is None or feature.source == "llm" else []
    if read_by_model:
        report.warn(
            "$.judge",
            "rules",
            f"Comparing by rules is free, but a model still has to read: {', '.join(read_by_model)}.",
            'Use only features with source "measured" for an evaluation without any model.',
        )


def _read_harness(report: ProblemReport, value: object) -> HarnessSpec | None:
    path, before = "$.harness", len(report.problems)
    report.problems += [problem for _, problem in shape.find_faults(value, path, shape.HarnessShape).values()]
    if not isinstance(value, dict):
        return None
    if value.get("hidden") is not True:
        if "source" not in value:
            reason = "A public harness needs its source."
            report.error(at(path, "source"), None, reason, 'Add "source", or "hidden": true.')
        if "ifNotRevealed" in value:
            report.error(at(path, "ifNotRevealed"), None, "Only a hidden harness is revealed.", "Remove it.")
    if len(report.problems) > before:
        return None
    return HarnessSpec(**shape.HarnessShape.model_validate(value).model_dump(exclude_unset=True))


def _check_functions(report: ProblemReport, spec: HarnessSpec, names: Mapping[str, str]) -> None:
    """Report the features (names with paths) that a public harness does not define."""
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
        if executed_feature(name, spec.language) is None or name in {"tests_passed", "runs"} or wanted & declared:
            continue
        near = suggestion(name, sorted(declared)) if declared else "It defines no test_ or metric_ function at all."
        report.error(path, name, f"The harness defines no {' or '.join(sorted(wanted))}.", near)


def _lint_criteria(report: ProblemReport, criteria: str) -> None:
    _lint_text(report, "$.criteria", criteria)
    if 0 < len(criteria.strip()) < SHORT_CRITERIA:
        reason = f"The criteria have {len(criteria.strip())} characters: too little to decide by."
        remedy = "Say what makes one solution better than another, in order of importance."
        report.warn("$.criteria", criteria, reason, remedy)


def _lint_feature(report: ProblemReport, path: str, feature: Feature | BareName) -> None:
    name, orders = feature.name, _ORDERS.findall(feature.name)
    if len(orders) >= 2:
        report.forbid(path, name, "The name is a command, not a property.", "Name what is observed, such as novelty.")
    elif orders:
        report.warn(path, name, f"The name reads like a command ({orders[0]!r}).", "Name what is observed.")
    if isinstance(feature, BareName):
        near = suggestion(name, (*MEASURED, *EXECUTED, *COMMON), 0.85)
        if known_feature(name) is None and "Did you mean" in near:
            report.warn(path, name, "No tool and no list knows this name: a model chooses what it means.", near)
        return
    _lint_text(report, at(path, "description"), feature.description)
    for number, anchor in enumerate(feature.anchors):
        _lint_text(report, at(at(path, "anchors"), number), anchor)
    _lint_direction(report, path, feature)
    if feature.source == "llm" and feature.type in {"number", "integer"} and None in {feature.min, feature.max}:
        reason = "A number that a model reads has no full range, so nothing can be clamped."
        report.warn(path, name, reason, "Give min and max.")
    elif is_hard_to_read(feature):
        reason = "Small models often misread means and shares (one measured model: 1 in 6 right)."
        report.warn(path, name, reason, "Measure it, or ask for a count or a level.")


def is_hard_to_read(feature: Feature | BareName) -> bool:
    return isinstance(feature, Feature) and feature.source == "llm" and feature.type in HARD_TO_READ


def _lint_text(report: ProblemReport, path: str, text: str) -> None:
    hidden = sorted({c for c in text if c not in "\n\r\t" and unicodedata.category(c) in {"Cc", "Cf", "Co", "Cn"}})
    if hidden:
        names = ", ".join(f"U+{ord(c):04X}" for c in hidden[:5])
        report.forbid(path, ascii(text[:80]), f"The text holds invisible characters ({names}).", "Remove them.")
    for pattern, what, remedy in _FORBIDDEN:
        if found := re.search(pattern, text):
            report.forbid(path, found.group(), f"The text holds {what}.", remedy)
    for quoted in _QUOTED.finditer(text):
        phrase = quoted.group(1) or quoted.group(2)
        if len(phrase.split()) >= 3 or _MAGIC.search(text[max(0, quoted.start() - 80) : quoted.start()]):
            remedy = "Describe the property instead of quoting words; the judge sees typed features and no text."
            report.warn(path, phrase, "A quoted phrase can be a signal between poster and submitter.", remedy)
    if found := _WHO_OR_WHEN.search(text):
        reason = f"The text speaks of who submitted or when ({found.group()!r})."
        remedy = "The judge sees neither; a tie already goes to the earlier submission."
        report.warn(path, found.group(), reason, remedy)


def _lint_direction(report: ProblemReport, path: str, feature: Feature) -> None:
    if feature.better is None or feature.type in {"enum", "text"}:
        return
    usual = known_feature(feature.name)
    if usual is not None and usual.better is not None:
        looks_reversed = usual.better != feature.better
    else:
        costly = _LESS_IS_BETTER.search(feature.name) is not None
        looks_reversed = costly and feature.better == "higher" and not feature.anchors and feature.type != "boolean"
    if looks_reversed:
        reason = f'For {feature.name!r}, better = "{feature.better}" looks reversed.'
        remedy = "Check the direction; if it is meant, say in the description what a high value means."
        report.warn(at(path, "better"), feature.better, reason, remedy)
