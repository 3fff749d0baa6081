"""Run the judges over pairs that people decided, and keep what that says about them.

In: labels and a store. Out: one `Calibration` for each judge, kept for the gate. Every pair is asked in both orders;
answers are recorded like all others, so running it again pays for nothing twice. An outage ends it and it can be
run again; verdicts that a judge cannot give are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clara_eval.core.errors import Temporary
from clara_eval.core.gather import gather_or_raise
from clara_eval.judge import Judge, ModelJudge, RulesJudge
from clara_eval.judge.calibration.gate import Calibrations, keep, prompt_hash
from clara_eval.judge.calibration.labels import Label, Labels, Side
from clara_eval.judge.calibration.measure import Calibration, Looked, measure
from clara_eval.judge.comparison import Decision
from clara_eval.judge.structured_llm import StructuredLlm

_STRAIGHT: dict[str, Side] = {"A": "first", "B": "second", "tie": "tie"}
_SWAPPED: dict[str, Side] = {"A": "second", "B": "first", "tie": "tie"}


async def calibrate(
    labels: Labels, askers: Mapping[str, StructuredLlm | None], store: Calibrations, chain_id: int
) -> list[Calibration]:
    """One calibration for each judge; None stands for one that needs no model."""
    found = []
    for name, asker in askers.items():
        judge: Judge = (
            RulesJudge(labels.schema) if asker is None else ModelJudge(asker, labels.config.criteria, labels.schema)
        )
        looked = await look(judge, labels.pairs)
        calibration = measure(name, prompt_hash(), labels.work, looked)
        await keep(store, chain_id, calibration)
        found.append(calibration)
    return found


async def look(judge: Judge, pairs: Sequence[Label]) -> list[Looked]:
    """Every pair in both orders."""

    async def one(label: Label) -> Looked:
        straight = await judge.compare(label.first, label.second)
        swapped = await judge.compare(label.second, label.first)
        return Looked(label.winner, _side(straight, _STRAIGHT), _side(swapped, _SWAPPED), label.lengths)

    return list(await gather_or_raise(one(label) for label in pairs))


def _side(decision: Decision, sides: Mapping[str, Side]) -> Side | None:
    if decision.outage:
        raise Temporary(f"The judges did not answer: {decision.reason}", remedy="Run it again: paid answers are kept.")
    return sides[decision.verdict.winner] if decision.verdict else None
