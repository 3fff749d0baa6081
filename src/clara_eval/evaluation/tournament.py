"""The tournament of a round: who compares, what is asked, and the ranking from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.address import Address
from clara_eval.evaluation.plan import EvaluationPlan, ProgressListener
from clara_eval.evaluation.play import Comparison, play_tournament
from clara_eval.evaluation.result import tally_of
from clara_eval.evaluation.round import Round
from clara_eval.evaluation.ruled import judge_by_rules
from clara_eval.evaluation.sources import Sources
from clara_eval.judge import Judge, JudgeVector, ModelJudge, RulesJudge
from clara_eval.judge.comparison import OrderingJudge
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.ranking import Ranking, Schedule, canonical_order, choose_schedule, rank


@dataclass(frozen=True, slots=True)
class RoundJury:
    given: Round
    plan: EvaluationPlan
    schema: FeatureSchema
    sources: Sources
    log: AnswerLog

    def judges(self) -> dict[str, Judge]:
        """Rules if the poster asks for them, otherwise the operator's jury."""
        names = ("rules",) if self.given.config.judge == "rules" else self.plan.judges
        return {name: RulesJudge(self.schema) if name == "rules" else ModelJudge(*self._model(name)) for name in names}

    def orderers(self) -> dict[str, OrderingJudge]:
        """The models of the jury, for questions about several entries at once."""
        return {name: OrderingJudge(*self._model(name)) for name in self.plan.judges if name != "rules"}

    def _model(self, name: str) -> tuple[StructuredLlm, str, FeatureSchema]:
        llm = StructuredLlm(self.sources.asker(name), self.plan.tokens, log=self.log)
        return llm, self.given.config.criteria, self.schema


async def hold_tournament(
    jury: RoundJury,
    keccaks: Mapping[str, str],
    vectors: Mapping[str, JudgeVector],
    families: Mapping[Address, Address],
    listener: ProgressListener,
) -> tuple[Schedule, Sequence[Comparison], Ranking | None]:
    """Compare the entries with these content hashes and rank them."""
    given, judges = jury.given, jury.judges()
    items = canonical_order(given.name, keccaks)
    schedule = choose_schedule(
        items,
        tuple(judges),
        max_comparisons=jury.plan.max_games,
        winner_count=given.winner_count,
        payout_bps=given.payout_bps,
        name=jury.plan.schedule,
    )
    comparisons: Sequence[Comparison] | None = judge_by_rules(schedule, judges, items, vectors)
    if comparisons is None:
        comparisons = await play_tournament(
            schedule,
            judges,
            vectors,
            orderers=jury.orderers() if schedule.name == "fours" else None,
            on_comparison=lambda done, total: listener("comparing", done, total),
            gives_up=jury.sources.gives_up,
        )
    exact = is_exact(jury.schema, judges)
    return schedule, comparisons, rank_round(given, items, comparisons, families, exact=exact)


def rank_round(
    given: Round,
    items: Sequence[str],
    comparisons: Sequence[Comparison],
    families: Mapping[Address, Address],
    *,
    exact: bool = False,
) -> Ranking | None:
    """Rank the items; a family is judged once more as if it had stayed away."""
    if not items:
        return None
    return rank(
        tally_of(items, comparisons),
        seed=given.run.encode(),
        winner_count=given.winner_count,
        payout_bps=given.payout_bps,
        tie_break={s.submitter: s.submitted_at for s in given.submissions},
        by_name=True,
        clusters={str(member): str(head) for member, head in families.items()},
        exact=exact,
    )


def is_exact(schema: FeatureSchema, judges: Mapping[str, Judge]) -> bool:
    """Whether rules decide over facts that tools measured, and no model said anything."""
    measured = all(feature.source == "measured" for feature in schema.judged)
    return measured and all(isinstance(judge, RulesJudge) for judge in judges.values())
