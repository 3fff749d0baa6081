"""Read an `EvalConfig` from a poster's text, and collect every problem in one pass.

An unknown key is an error with a suggestion: a misspelt `weigth` must not count as 1 in silence. `take_eval_config` is
for what is escrowed already: it stops for less, and reports what it took otherwise than written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clara_eval.config.eval_config.catalogue import typed
from clara_eval.config.eval_config.feature_reading import read_feature
from clara_eval.config.eval_config.harness_reading import check_functions, read_harness
from clara_eval.config.eval_config.lenient import adapt
from clara_eval.config.eval_config.lint import lint_criteria, lint_feature, lint_judge
from clara_eval.config.eval_config.model import Adaptation, BareName, EvalConfig, Feature
from clara_eval.config.eval_config.problems import BadEvalConfig, ConfigProblem, ProblemReport, at
from clara_eval.config.eval_config.shape import MAX_CRITERIA, faults
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


def take_eval_config(text: str | bytes) -> tuple[EvalConfig, tuple[Adaptation, ...]]:
    """The config of a challenge that is posted already, as far as the specification's schema allows it."""
    report = ProblemReport(is_lenient=True)
    document = _document(text, report)
    adapted, told = adapt(document)
    config = _read_document(adapted, report) if not report.failed else None
    if config is None or report.failed:
        raise BadEvalConfig(report.problems)
    told += tuple(Adaptation(p.path, str(p.value), str(p.value), p.reason) for p in report.waived)
    return replace(config, canonical=canonical_json(document)), told


def collect_problems(text: str | bytes) -> list[ConfigProblem]:
    """All problems, errors first; an empty list means there is nothing to mend."""
    report = ProblemReport()
    _read(text, report)
    return sorted(report.problems, key=lambda problem: problem.severity)


def _read(text: str | bytes, report: ProblemReport) -> EvalConfig | None:
    document = _document(text, report)
    return _read_document(document, report) if not report.failed else None


def _document(text: str | bytes, report: ProblemReport) -> dict[str, object]:
    """The object in the text; an empty one with an error in the report where there is none."""
    try:
        document = read_strict_json(text, what="The eval config")
    except BadInput as bad:
        report.error(bad.path or "$", bad.value, bad.message, bad.remedy)
        return {}
    if not isinstance(document, dict):
        report.problems += [problem for _, problem in faults(document, "$").values()]
        return {}
    return document


def _read_document(document: Mapping[str, Any], report: ProblemReport) -> EvalConfig | None:
    wrong = _check_shape(report, document)
    harness = read_harness(report, document["harness"]) if "harness" in document else None
    items = document["features"][:MOST_FEATURES] if not wrong & {"$.features"} else []
    features = _read_features(items, report, harness.language if harness else None)
    if harness is not None:
        check_functions(report, harness, tuple(feature.name for feature in features))
    criteria = document["criteria"] if not wrong & {"$.criteria"} else ""
    lint_criteria(report, criteria[:MAX_CRITERIA])
    if document.get("judge") == "rules":
        _check_rules(features, report)
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


def _check_shape(report: ProblemReport, document: Mapping[str, Any]) -> set[str]:
    """Hold all but features and harness, which have readers of their own, to the schema; the paths of what is wrong."""
    wrong: set[str] = set()
    for path, (keyword, problem) in faults(document, "$").items():
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
    return wrong


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


def _check_rules(features: tuple[Feature | BareName, ...], report: ProblemReport) -> None:
    for number, item in enumerate(features):
        feature = item if isinstance(item, Feature) else typed(item.name)
        path = at("$.features", number)
        if feature is None:
            report.error(path, item.name, 'With judge "rules" every feature needs a type.', "Write it as an object.")
        elif feature.better is None and feature.type != "text":
            report.error(path, item.name, 'With judge "rules" every feature needs a direction.', 'Add "better".')
