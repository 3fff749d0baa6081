"""The typed facts of every entry, each read alone, within the money for reading."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import FeatureSchema, Metadata, compile_schema, with_types
from clara_eval.core.address import Address
from clara_eval.core.gather import gather_or_raise
from clara_eval.evaluation.answer_recorder import AnswerRecorder
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features import SubmissionFacts, extract_features
from clara_eval.evaluation.features.extract import ReadingContext, prompts_for
from clara_eval.evaluation.plan import EvaluationPlan, ProgressListener
from clara_eval.evaluation.sources import ModelSource
from clara_eval.judge import type_names
from clara_eval.judge.costs.reading import ReadingBudget, next_to_read
from clara_eval.judge.limits import about_one_entry, spent_on, within
from clara_eval.judge.port import Asker, Prompt
from clara_eval.submissions import Solution


@dataclass(frozen=True, slots=True)
class RoundReader:
    """The model that reads the entries, and the money for it; None is no model, or no bound."""

    asker: Asker | None
    money: ReadingBudget | None

    @classmethod
    def of(cls, plan: EvaluationPlan, recorder: AnswerRecorder, sources: ModelSource) -> RoundReader:
        if not plan.readers:
            return cls(None, plan.reading)
        others = [recorder.over(sources.reader((name,))) for name in plan.readers[1:]]
        return cls(within(plan.tokens, recorder.over(sources.reader(plan.readers)), others), plan.reading)

    async def settle_schema(self, metadata: Metadata) -> tuple[FeatureSchema, tuple[str, ...]]:
        """Close the schema from the poster's words alone; also the names that a model typed."""
        schema, untyped = compile_schema(metadata.config)
        if not untyped or self.asker is None:
            return schema, ()
        typed = await type_names(self.asker, metadata.config, untyped)
        return with_types(schema, typed), tuple(feature.name for feature in typed)

    async def read(
        self,
        context: ReadingContext,
        schema: FeatureSchema,
        solutions: Sequence[Solution],
        listener: ProgressListener,
        execution: Execution | None,
    ) -> dict[Address, SubmissionFacts]:
        """Read every entry: those first for which an equal share of the money suffices."""
        found: dict[str, SubmissionFacts] = {}

        async def one(solution: Solution, most: int, needs: int) -> int:
            account = solution.submission.submitter
            asker = about_one_entry(self.asker, self.money, most=most, needs=needs)
            executed = execution.executed.get(account) if execution else None
            found[account] = await extract_features(asker, schema, solution, context, executed)
            listener("extracting", len(found), len(solutions))
            return spent_on(asker)

        def prompts_by_account() -> dict[str, list[Prompt]]:
            return {name: prompts_for(schema, [solution], context) for name, solution in by_account.items()}

        by_account: dict[str, Solution] = {solution.submission.submitter: solution for solution in solutions}
        prompts = await asyncio.to_thread(prompts_by_account) if self.asker else {}
        usual = {name: self.money.usual(prompts.get(name, ())) if self.money else 0 for name in by_account}
        left = self.money.micro_usd if self.money else 0
        while usual:
            most = next_to_read(left, usual)
            if self.asker is not None and most:
                await self.asker.foresee([prompt for name in most for prompt in prompts[name]])
            most = most or dict.fromkeys(usual, left // len(usual))  # which is too little for each: they stay unread
            left -= sum(
                await gather_or_raise(one(by_account[name], bound, usual.pop(name)) for name, bound in most.items())
            )
        return {solution.submission.submitter: found[solution.submission.submitter] for solution in solutions}
