"""The `harness` of a config, and the features that only running a submission can give.

The value of `evalConfig.harness` comes in; a `HarnessSpec` goes out, or problems with path and remedy.
`executed_feature` types the names that a harness makes, all of them measured: `tests_passed`, `runs`, `test_…`,
`metric_…`, `gas_…` and `fuel_…`.
"""

from __future__ import annotations

import re

from clara_eval.config.eval_config.json_schema import faults
from clara_eval.config.eval_config.model import Feature, FeatureType, HarnessSpec
from clara_eval.config.eval_config.problems import ProblemReport, at, suggestion
from clara_eval.core.constants import HarnessLanguage

_COST = re.compile(r"(gas|fuel)_[a-z0-9_]+")


def read_harness(report: ProblemReport, value: object) -> HarnessSpec | None:
    path = "$.harness"
    wrong = faults(value, path, "properties", "harness")
    report.problems += [problem for _, problem in wrong.values()]
    if isinstance(value, dict) and value.get("hidden") is not True and "ifNotRevealed" in value:
        report.error(at(path, "ifNotRevealed"), None, "Only a hidden harness is revealed.", "Remove it.")
    elif isinstance(value, dict) and not wrong:
        return HarnessSpec(
            language=value["language"],
            source=value.get("source"),
            hidden=value.get("hidden", False),
            if_not_revealed=value.get("ifNotRevealed", "public"),
            reference=value.get("reference"),
        )
    return None


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
