"""Read the `harness` of a config, and check the features that only running a submission can give."""

from __future__ import annotations

import re

from clara_eval.config.eval_config.catalogue import executed_feature
from clara_eval.config.eval_config.model import HarnessSpec
from clara_eval.config.eval_config.problems import ProblemReport, at, suggestion
from clara_eval.config.eval_config.shape import HarnessShape, faults


def read_harness(report: ProblemReport, value: object) -> HarnessSpec | None:
    path = "$.harness"
    before = len(report.problems)
    report.problems += [problem for _, problem in faults(value, path, HarnessShape).values()]
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


def check_functions(report: ProblemReport, spec: HarnessSpec, names: tuple[str, ...]) -> None:
    """A feature of a public harness that the harness does not have would be unknown for everybody."""
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
    for number, name in enumerate(names):
        rest = name.partition("_")[2]
        wanted = {name} if name.startswith(("test_", "metric_")) else {f"test_{rest}", f"metric_{rest}"}
        feature = executed_feature(name, spec.language)
        if feature is None or name in {"tests_passed", "runs"} or wanted & declared:
            continue
        report.error(
            at("$.features", number), name, "The harness has no such function.", suggestion(name, sorted(declared))
        )
