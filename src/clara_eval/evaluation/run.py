"""Evaluate a round: from its entries to a ranking with flags. Knows no chain, no store and no service."""

from __future__ import annotations

from dataclasses import replace

from clara_eval.evaluation.answer_recorder import KeptAnswers
from clara_eval.evaluation.evaluable import unevaluable
from clara_eval.evaluation.execution import run_all
from clara_eval.evaluation.features.extract import ReadingContext
from clara_eval.evaluation.features.field import compare_field
from clara_eval.evaluation.harness import choose_harness
from clara_eval.evaluation.intake import accounts, collect_entries, in_order
from clara_eval.evaluation.plan import EvaluationPlan, ProgressListener
from clara_eval.evaluation.reading import RoundReader
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_defaults import gave_way_flags, giving_way, place
from clara_eval.evaluation.review_rules import JudgedRound, round_flags
from clara_eval.evaluation.round import Round
from clara_eval.evaluation.rulings import is_by_default
from clara_eval.evaluation.sources import Sources, key_reports
from clara_eval.evaluation.tournament import RoundJury, hold_tournament
from clara_eval.judge import prompt_files
from clara_eval.judge.structured_llm import AnswerLog


async def evaluate_round(
    given: Round, plan: EvaluationPlan, sources: Sources, listener: ProgressListener
) -> EvaluationResult:
    """Rank the entries of a round; `plan` has the rulings of `sources` applied (`ruled_plan`)."""
    answers = KeptAnswers()
    log = AnswerLog(answers.keep, sources.unanswered)
    reader = RoundReader.of(plan, log, sources)
    schema, typed_by_model = await reader.settle_schema(given.metadata)
    entries = await collect_entries(given, sources, listener)
    judged, likeness, rulings = entries.judged, entries.likeness, sources.rulings
    chosen = choose_harness(given, sources.reveal)
    execution = await run_all(
        sources, chosen, given.config, schema, judged, lambda done, total: listener("executing", done, total)
    )
    context = ReadingContext(
        given.name,
        given.beacon,
        given.config.language,
        sources.gives_up,
        given.metadata.problem_statement,
        chosen.harness if chosen else None,
    )
    read = await reader.read(context, schema, judged, listener, execution)
    features = compare_field(schema, read, given.winner_count)
    rejected = in_order([*entries.rejected, *unevaluable(judged, features)])
    refused = accounts(rejected)
    tournament, comparisons, ranking = await hold_tournament(
        RoundJury(given, plan, schema, sources, log),
        {s.submission.submitter: s.content_keccak for s in judged if s.submission.submitter not in refused},
        {account: facts.vector for account, facts in features.items()},
        likeness.families,
        listener,
    )
    found = JudgedRound(given, ranking, (), rejected, judged, likeness, features, comparisons, chosen)
    behind, by_default = giving_way(found), is_by_default(rulings)
    placed = place(ranking, rejected, behind, by_default=True) if by_default else place(ranking, rejected)
    return EvaluationResult(
        given=given,
        schema=schema,
        typed_by_model=typed_by_model,
        prompts=prompt_files(),
        rulings=rulings,
        pieces=entries.pieces,
        likeness=likeness,
        rejected=rejected,
        execution=execution,
        features=features,
        answers=answers,
        unanswered=log.unanswered,
        key_reports=await key_reports(sources, answers),
        schedule=tournament.name,
        schedule_reason=tournament.reason,
        comparisons=comparisons,
        ranking=ranking,
        placed=placed,
        flags=(*round_flags(replace(found, placed=placed)), *(gave_way_flags(behind) if by_default else ())),
        behind_by_default=behind,
    )
