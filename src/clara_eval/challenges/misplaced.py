"""How much of a prize is expected at wrong addresses, and how far the judges that say so agree with people."""

from __future__ import annotations

from clara_eval.chain.model import worth_micro_usd
from clara_eval.challenges.prepare import RoundCase
from clara_eval.documents.results import Misplaced
from clara_eval.evaluation.play import RuledComparisons
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_rules import misplaced_money
from clara_eval.judge.calibration_gate import CALIBRATION, Calibration, prompt_hash, work_hash
from clara_eval.store.sql_store import PublicKeys


def _prefix(judge: str, prompt: str) -> str:
    return f"calibration:{judge}:{prompt}:"


async def keep(store: PublicKeys, chain_id: int, found: Calibration) -> None:
    key = f"{_prefix(found.judge, found.prompt)}{found.work}"
    await store.put(chain_id, key, CALIBRATION.text(found))


async def known(store: PublicKeys, chain_id: int, judge: str, prompt: str, work: str) -> Calibration | None:
    """Return the calibration for this kind of work, else the one with most labels."""
    rows = await store.items(chain_id, _prefix(judge, prompt))
    found = [CALIBRATION.read_text(text) for _, text in rows]
    exact = [one for one in found if one.work == work]
    return max(exact or found, key=lambda one: (one.labels, one.work), default=None)


async def calibrations(case: RoundCase, result: EvaluationResult) -> dict[str, Calibration | None]:
    """What is known of each judge that voted; empty if rules did, which need no calibration."""
    if isinstance(result.comparisons, RuledComparisons):
        return {}
    voters = sorted({comparison.judge for comparison in result.comparisons if comparison.winner is not None})
    if "rules" in voters:
        return {}
    store, chain, work = case.ports.store, case.challenge.chain_id, work_hash(case.given.config, result.schema)
    return {judge: await known(store, chain, judge, prompt_hash(), work) for judge in voters}


def prize_usd(case: RoundCase) -> float | None:
    worth = worth_micro_usd(case.challenge.token, case.challenge.prize_pool, case.options.settings.network)
    return None if worth is None else worth / 1_000_000


async def misplaced(case: RoundCase, result: EvaluationResult) -> dict[str, object] | None:
    """The document about misplaced money (`Misplaced`); None if nobody is ranked."""
    ranking, worth = result.ranking, prize_usd(case)
    if ranking is None:
        return None
    told = [_agreement(judge, found) for judge, found in (await calibrations(case, result)).items()]
    agreement = "; ".join(told) or "rules: no calibration needed"
    return Misplaced(
        share=ranking.misallocation,
        usd=None if worth is None else round(ranking.misallocation * worth, 2),
        decidingVerdicts=ranking.deciding_verdicts,
        calibration=agreement,
        sentence=f"{misplaced_money(ranking, worth)} ({agreement}).",
    ).model_dump(mode="json")


def _agreement(judge: str, found: Calibration | None) -> str:
    if found is None or found.clear.value is None:
        return f"{judge}: not calibrated"
    sure = "no guarantee from so few labels" if found.alone is None else found.alone.sentence
    return f"{judge}: agrees with people on {found.clear.value:.0%} of clear pairs; {sure}"
