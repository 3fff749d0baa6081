"""From the poster's text to an `EvalConfig`, with every problem found in one pass.

Text comes in, strictly read; `collect_problems` gives all errors and warnings with JSON path, value, reason and
remedy; `parse_eval_config` gives the config or raises with the same list. An unknown key is an error with a
suggestion: a misspelt `weigth` must not silently count as 1. `take_eval_config` is for what is escrowed already: there
our taste stops nothing, and everything that was taken otherwise than written is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clara_eval.errors import BadInput
from clara_eval.eval_config.feature_reading import read_feature
from clara_eval.eval_config.harness_reading import check_functions, read_harness
from clara_eval.eval_config.lenient import adapt
from clara_eval.eval_config.lint import lint_criteria, lint_feature, lint_judge
from clara_eval.eval_config.model import Adaptation, BareName, EvalConfig, Feature, HarnessLanguage
from clara_eval.eval_config.problems import BadEvalConfig, Problem, Report, at, suggestion
from clara_eval.eval_config.strict_json import read_strict_json
from clara_eval.hashing import canonical_json

VERSION = 1
MAX_FEATURES = 20
MAX_CRITERIA = 4_000
MOST_FEATURES, MOST_CRITERIA = 100, 32_000
"""What is evaluated at all, however it was posted."""
FORMATS = ("code", "text", "url", "json")
LANGUAGE = r"^[A-Za-z0-9][A-Za-z0-9+#. _-]{0,39}$"
KEYS = ("version", "features", "criteria", "submissionFormat", "language", "judge", "harness")


def parse_eval_config(text: str | bytes) -> EvalConfig:
    """The config in `text`; raises BadEvalConfig with all problems if there is an error among them."""
    report = Report()
    config = _read(text, report)
    if config is None or report.failed:
        raise BadEvalConfig(report.problems)
    return config


def take_eval_config(text: str | bytes) -> tuple[EvalConfig, tuple[Adaptation, ...]]:
    """The config of a challenge that is posted already, as far as the specification's schema allows it."""
    report = Report(is_lenient=True)
    document = _document(text, report)
    adapted, told = adapt(document, KEYS, {"submissionFormat": FORMATS, "judge": ("rules",)}, LANGUAGE)
    config = _read_document(adapted, report) if not report.failed else None
    if config is None or report.failed:
        raise BadEvalConfig(report.problems)
    told += tuple(Adaptation(p.path, str(p.value), str(p.value), p.reason) for p in report.waived)
    return replace(config, canonical=canonical_json(document)), told


def collect_problems(text: str | bytes) -> list[Problem]:
    """All problems, errors first; an empty list means there is nothing to mend."""
    report = Report()
    _read(text, report)
    return sorted(report.problems, key=lambda problem: problem.severity)


def _read(text: str | bytes, report: Report) -> EvalConfig | None:
    document = _document(text, report)
    return _read_document(document, report) if not report.failed else None


def _document(text: str | bytes, report: Report) -> dict[str, Any]:
    """The object in the text; an empty one with an error in the report where there is none."""
    try:
        document = read_strict_json(text, what="The eval config")
    except BadInput as bad:
        report.error(bad.path or "$", bad.value, bad.message, bad.remedy)
        return {}
    if not isinstance(document, dict):
        report.error("$", document, "The eval config is not a JSON object.", "Write { … } with version and features.")
        return {}
    return document


def _read_document(document: Mapping[str, Any], report: Report) -> EvalConfig | None:
    check_keys(report, "$", document, KEYS)
    if "version" not in document:
        report.error("$.version", None, "The version is missing.", 'Add "version": 1.')
    elif isinstance(document["version"], bool) or document["version"] != VERSION:
        report.error("$.version", document["version"], "Only version 1 exists.", 'Write "version": 1.')
    harness = read_harness(report, document["harness"]) if "harness" in document else None
    features = _read_features(document.get("features"), report, harness.language if harness else None)
    if harness is not None:
        check_functions(report, harness, tuple(feature.name for feature in features))
    criteria = _read_criteria(document.get("criteria"), report)
    _check_choice(report, document, "submissionFormat", FORMATS)
    _check_choice(report, document, "judge", ("rules",))
    if "language" in document:
        _check_language(report, document["language"])
    if document.get("judge") == "rules":
        _check_rules(features, report)
    config = EvalConfig(
        version=VERSION,
        features=features,
        criteria=criteria,
        submission_format=document.get("submissionFormat"),
        language=document.get("language"),
        judge=document.get("judge"),
        canonical=canonical_json(document),
        harness=harness,
    )
    lint_judge(report, config)
    return config


def check_keys(report: Report, path: str, document: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in document:
        if key not in known:
            report.error(at(path, key), document[key], f"The key {key[:60]!r} is unknown.", suggestion(key, known))


def _read_features(value: Any, report: Report, harness: HarnessLanguage | None) -> tuple[Feature | BareName, ...]:
    if value is None:
        report.error("$.features", None, "The features are missing.", 'Add "features": ["correctness", …].')
        return ()
    if not isinstance(value, list):
        report.error("$.features", value, "The features are not a list.", "Write [ … ] with 1 to 20 items.")
        return ()
    if not 1 <= len(value) <= MAX_FEATURES:
        judge = report.forbid if 1 <= len(value) <= MOST_FEATURES else report.error
        judge("$.features", len(value), f"There are {len(value)} features.", f"Give 1 to {MAX_FEATURES}.")
    found: list[Feature | BareName] = []
    for number, item in enumerate(value[:MOST_FEATURES]):
        path = at("$.features", number)
        feature = read_feature(report, path, item, harness)
        if feature is None:
            continue
        if feature.name in {other.name for other in found}:
            report.error(path, feature.name, f"The feature {feature.name!r} appears twice.", "Keep one of them.")
            continue
        lint_feature(report, path, feature)
        found.append(feature)
    if len(found) == len(value) and all(isinstance(item, Feature) and item.type == "text" for item in found):
        report.error(
            "$.features",
            None,
            'All features are of type "text", which never reaches the judge: there is nothing to compare.',
            "Add a number, integer, boolean or enum feature.",
        )
    return tuple(found)


def _read_criteria(value: Any, report: Report) -> str:
    if report.is_lenient and isinstance(value, str) and not value.strip():
        report.forbid("$.criteria", value, "The criteria are empty: the features alone decide.", "")
        return ""
    if not isinstance(value, str) or not value.strip():
        reason = "The criteria are missing." if value is None else "The criteria are not a text."
        report.error("$.criteria", value, reason, "Say in words what makes one solution better than another.")
        return ""
    if len(value) > MAX_CRITERIA:
        judge = report.forbid if len(value) <= MOST_CRITERIA else report.error
        judge("$.criteria", len(value), f"The criteria have {len(value):,} characters.", "At most 4,000.")
    lint_criteria(report, value[:MAX_CRITERIA])
    return value


def _check_choice(report: Report, document: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> None:
    value = document.get(key)
    if key not in document or value in choices:
        return
    hint = suggestion(value, choices) if isinstance(value, str) else f"One of: {', '.join(choices)}."
    report.error(at("$", key), value, f"{key} has no such value.", f"{hint} Or leave it out.")


def _check_language(report: Report, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch(LANGUAGE, value):
        report.error("$.language", value, "This is not the name of a language.", 'For example "solidity".')


def _check_rules(features: tuple[Feature | BareName, ...], report: Report) -> None:
    from clara_eval.eval_config.catalogue import typed

    for number, item in enumerate(features):
        feature = item if isinstance(item, Feature) else typed(item.name)
        path = at("$.features", number)
        if feature is None:
            report.error(path, item.name, 'With judge "rules" every feature needs a type.', "Write it as an object.")
        elif feature.better is None and feature.type != "text":
            report.error(path, item.name, 'With judge "rules" every feature needs a direction.', 'Add "better".')
