"""Values and flags from running a submission; one that does not compile fails every test."""

from __future__ import annotations

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.flags import Flag
from clara_eval.harness import Executed, RunOutcome
from clara_eval.judge.comparison import Value

_ORDINARY = frozenset({RunOutcome.PASSED, RunOutcome.FAILED})


def executed_values(schema: FeatureSchema, executed: Executed | None) -> dict[str, Value]:
    if executed is None or not executed.is_measured:
        return {}
    measured = executed.features
    found: dict[str, Value] = {name: measured[name] for name in schema.names if name in measured}
    if executed.with_harness:
        failed = (f for f in schema.features if f.source == "measured" and f.name.startswith("test_"))
        found |= {feature.name: False for feature in failed if feature.name not in measured}
    return found


def executed_flags(executed: Executed | None) -> tuple[Flag, ...]:
    if executed is None or executed.outcome in _ORDINARY:
        return ()
    evidence = {"outcome": executed.outcome.value}
    if not executed.is_measured:
        sentence = "It could not be run on the evaluator's machine; what only running tells is unknown."
        return (Flag("not_executed", "review", sentence, evidence=evidence),)
    words = executed.outcome.value.replace("_", " ")
    return (
        Flag("does_not_run", "info", f"Run under the limits of the round it ended as: {words}.", evidence=evidence),
    )
