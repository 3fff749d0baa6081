"""Run the judges over pairs that people decided, in both orders, and keep how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clara_eval.actions.calibration_figures import Looked, measure
from clara_eval.actions.calibration_labels import Label, Labels, Side, read_labels
from clara_eval.app import open_jury
from clara_eval.config.settings import Settings
from clara_eval.core.errors import Temporary
from clara_eval.core.tasks import gather_or_raise
from clara_eval.judge import Judge, ModelJudge, RulesJudge
from clara_eval.judge.calibration_gate import (
    LEAST_LABELS,
    Calibration,
    Calibrations,
    Measured,
    keep,
    prompt_hash,
    why_not_alone,
)
from clara_eval.judge.comparison import Decision
from clara_eval.judge.structured_llm import StructuredLlm

__all__ = ["LEAST_LABELS", "Calibration", "JudgeAgreement", "Measured", "calibrate", "calibrate_labels"]
_STRAIGHT: dict[str, Side] = {"A": "first", "B": "second", "tie": "tie"}
_SWAPPED: dict[str, Side] = {"A": "second", "B": "first", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """How far one judge agrees with people, and why it may not post alone; None if it may."""

    calibration: Calibration
    doubt: str | None


async def calibrate_labels(text: str, settings: Settings, judges: str) -> list[JudgeAgreement]:
    """Run the judges over the labels of a file."""
    labels = read_labels(text)
    async with open_jury(settings, judges) as (askers, store):
        found = await calibrate(labels, askers, store, settings.network.chain_id)
    floor = settings.calibration_floor
    return [JudgeAgreement(one, why_not_alone((one.judge,), (one,), "known", floor)) for one in found]


async def calibrate(
    labels: Labels, askers: Mapping[str, StructuredLlm | None], store: Calibrations, chain_id: int
) -> list[Calibration]:
    """Calibrate each judge; an asker of None means rules."""
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
    async def one(label: Label) -> Looked:
        straight = await judge.compare(label.first, label.second)
        swapped = await judge.compare(label.second, label.first)
        return Looked(label.winner, _side(straight, _STRAIGHT), _side(swapped, _SWAPPED), label.lengths)

    return list(await gather_or_raise(one(label) for label in pairs))


def _side(decision: Decision, sides: Mapping[str, Side]) -> Side | None:
    if decision.outage:
        raise Temporary(f"The judges did not answer: {decision.reason}", remedy="Run it again: paid answers are kept.")
    return sides[decision.verdict.winner] if decision.verdict else None
