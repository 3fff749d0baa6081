"""The typed facts of every entry, each read alone, within the money for reading."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import FeatureSchema, Metadata, compile_schema, with_types
from clara_eval.core.address import Address
from clara_eval.core.tasks import gather_or_raise
from clara_eval.evaluation.execution import Execution
from clara_eval.evaluation.features import SubmissionFacts, extract_features
from clara_eval.evaluation.features.extract import ReadingContext, prompts_for
from clara_eval.evaluation.plan import EvaluationPlan, ProgressListener
from clara_eval.evaluation.sources import ModelSource
from clara_eval.judge import type_names
from clara_eval.judge.costs.reading import ReadingBudget, next_to_read
from clara_eval.judge.port import Prompt
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.submissions import Solution


@dataclass(frozen=True, slots=True)
class RoundReader:
    """The model that reads the entries, and the money for it; None is no model, or no bound."""

    llm: StructuredLlm | None
    money: ReadingBudget | None

    @classmethod
    def of(cls, plan: EvaluationPlan, log: AnswerLog, sources: ModelSource) -> RoundReader:
        if not plan.readers:
            return cls(None, plan.reading)
        others = tuple(sources.reader((name,)) for name in plan.readers[1:])
        return cls(StructuredLlm(sources.reader(plan.readers), plan.tokens, others, log), plan.reading)

    async def settle_schema(self, metadata: Metadata) -> tuple[FeatureSchema, tuple[str, ...]]:
        """Close the schema from the poster's words alone; also the names that a model typed."""
        schema, untyped = compile_schema(metadata.config)
        if not untyped or self.llm is None:
            return schema, ()
        typed = await type_names(self.llm, metadata.config, untyped)
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
            llm = self.llm.about_one_entry(self.money, most=most, needs=needs) if self.llm else None
            executed = execution.executed.get(account) if execution else None
            found[account] = await extract_features(llm, schema, solution, context, executed)
            listener("extracting", len(found), len(solutions))
            return llm.share.spent if llm and llm.share else 0

        def prompts_by_account() -> dict[str, list[Prompt]]:
            return {name: prompts_for(schema, [solution], context) for name, solution in by_account.items()}

        by_account: dict[str, Solution] = {solution.submission.submitter: solution for solution in solutions}
        prompts = await asyncio.to_thread(prompts_by_account) if self.llm else {}
        usual = {name: self.money.usual(prompts.get(name, ())) if self.money else 0 for name in by_account}
        left = self.money.micro_usd if self.money else 0
        while usual:
            most = next_to_read(left, usual)
            if self.llm is not None and most:
                await self.llm.prefetch([prompt for name in most for prompt in prompts[name]])
            most = most or dict.fromkeys(usual, left // len(usual))  # which is too little for each: they stay unread
            left -= sum(
                await gather_or_raise(one(by_account[name], bound, usual.pop(name)) for name, bound in most.items())
            )
        return {solution.submission.submitter: found[solution.submission.submitter] for solution in solutions}
