"""Evaluate a round: from its entries to a ranking with flags, without chain, store or service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clara_eval.config.eval_config import FeatureSchema, compile_schema, with_types
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.evaluation.entries import KeepFacts, accepted_solutions, collect_entries, read_facts, sort_rejected
from clara_eval.evaluation.execution import choose_harness, run_all
from clara_eval.evaluation.features.extract import ReadingContext, unevaluable
from clara_eval.evaluation.features.field import compare_field
from clara_eval.evaluation.play import Comparison, RuledComparisons, judge_by_rules, play_tournament
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_rules import find_giving_way, place, round_flags
from clara_eval.evaluation.round import EvaluationPlan, ProgressListener, Round, is_by_default
from clara_eval.evaluation.sources import Sources
from clara_eval.evaluation.trace import KeptAnswers
from clara_eval.judge.comparison import Judge, JudgeVector, ModelJudge, OrderingJudge, RulesJudge
from clara_eval.judge.extraction import type_names
from clara_eval.judge.reading import prompt_files
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.ranking import Ranking, choose_schedule, rank, tally


def canonical_order(challenge_id: str, submission_hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Sort by keccak(challengeId ‖ submissionHash), then id; not by arrival, which submitters choose."""
    key = {item: keccak_hex(bytes.fromhex(challenge_id[2:] + own[2:])) for item, own in submission_hashes.items()}
    return tuple(sorted(key, key=lambda item: (key[item], item)))


async def compare_and_rank(
    result: EvaluationResult, plan: EvaluationPlan, sources: Sources, log: AnswerLog, listener: ProgressListener
) -> EvaluationResult:
    """Compare the entries by rules if the config says so, else by the operator's jury, and rank them."""
    given, schema = result.given, result.schema

    def judge_arguments(name: str) -> tuple[StructuredLlm, str, FeatureSchema]:
        return StructuredLlm(sources.models.reader((name,)), plan.tokens, log=log), given.config.criteria, schema

    literal, names = plan.elo == "literal", ("rules",) if given.config.judge == "rules" else plan.judges
    judges = {name: RulesJudge(schema) if name == "rules" else ModelJudge(*judge_arguments(name)) for name in names}
    ranked = accepted_solutions(result.pieces, result.rejected)
    items = canonical_order(given.name, {s.submission.submitter: s.content_keccak for s in ranked})
    vectors: Mapping[str, JudgeVector] = {account: facts.vector for account, facts in result.features.items()}
    schedule = choose_schedule(
        items,
        tuple(judges),
        max_comparisons=plan.max_games,
        winner_count=given.winner_count,
        payout_bps=given.payout_bps,
        name=plan.schedule,
        literal=literal,
        in_turn=plan.jury == "in-turn",
    )
    comparisons: Sequence[Comparison] | None = judge_by_rules(schedule, judges, items, vectors)
    if comparisons is None:
        models = [name for name in plan.judges if name != "rules"] if schedule.name == "fours" else []
        comparisons = await play_tournament(
            schedule,
            judges,
            vectors,
            orderers={name: OrderingJudge(*judge_arguments(name)) for name in models},
            on_comparison=lambda done, total: listener("comparing", done, total),
            gives_up=sources.gives_up,
        )
    exact = is_exact(schema, judges)
    signers = {(paid.llm, paid.answer.signed.key) for paid in result.answers.values() if paid.answer.signed}
    return replace(
        result,
        key_reports=tuple([await sources.models.key_report(judge, key) for judge, key in sorted(signers)]),
        schedule=schedule.name,
        schedule_reason=schedule.explain(one.question for one in comparisons),
        comparisons=comparisons,
        ranking=rank_round(given, items, comparisons, result.likeness.families, exact=exact, literal=literal),
    )


def rank_round(
    given: Round,
    items: Sequence[str],
    comparisons: Sequence[Comparison],
    families: Mapping[Address, Address],
    *,
    exact: bool = False,
    literal: bool = False,
) -> Ranking | None:
    """Rank the items; `families` are also tested for their effect on who else is paid."""
    if not items:
        return None
    if isinstance(comparisons, RuledComparisons):
        table = comparisons.table
    else:
        table = tally(items, [one.result for one in comparisons if one.winner is not None])
    return rank(
        table.by_pair() if literal else table,
        seed=given.run.encode(),
        winner_count=given.winner_count,
        payout_bps=given.payout_bps,
        tie_break={s.submitter: s.submitted_at for s in given.submissions},
        by_name=True,
        clusters={str(member): str(head) for member, head in families.items()},
        literal=literal,
        exact=exact,
    )


def is_exact(schema: FeatureSchema, judges: Mapping[str, Judge]) -> bool:
    """Return whether no model was involved: rules decide, and tools measured all judged features."""
    measured = all(feature.source == "measured" for feature in schema.judged)
    return measured and all(isinstance(judge, RulesJudge) for judge in judges.values())


async def evaluate_round(
    given: Round,
    plan: EvaluationPlan,
    sources: Sources,
    listener: ProgressListener,
    keep_features: KeepFacts | None = None,
) -> EvaluationResult:
    """Evaluate the entries of a round; `plan` must have the rulings of `sources` applied (`ruled_plan`)."""
    answers, models, llm = KeptAnswers(), sources.models, None
    log = AnswerLog(answers.keep, sources.unanswered)
    if plan.readers:  # the others are asked if the first gives no usable answer
        others = tuple(models.reader((name,)) for name in plan.readers[1:])
        llm = StructuredLlm(models.reader(plan.readers), plan.tokens, others, log)
    schema, untyped = compile_schema(given.config)
    typed = await type_names(llm, given.config, untyped) if llm and untyped else ()
    schema = with_types(schema, typed)  # before any entry is read
    pieces, likeness, rejected = await collect_entries(given, sources, listener)
    judged = accepted_solutions(pieces, rejected)
    harness_choice = choose_harness(given, sources.reveal)
    execution = await run_all(sources.executed, harness_choice, given.config, schema, judged, listener)
    statement, harness = given.metadata.problem_statement, harness_choice.harness if harness_choice else None
    context = ReadingContext(given.name, given.beacon, given.config.language, sources.gives_up, statement, harness)
    read = await read_facts(
        llm, plan.reading, context, schema, judged, execution, listener=listener, keep=keep_features
    )
    features = compare_field(schema, read, given.winner_count)
    if keep_features is not None:
        await keep_features(features)
    result = EvaluationResult(
        given=given,
        schema=schema,
        typed_by_model=tuple(feature.name for feature in typed),
        prompts=prompt_files(),
        rulings=sources.rulings,
        pieces=pieces,
        likeness=likeness,
        rejected=sort_rejected([*rejected, *unevaluable(judged, features)]),
        execution=execution,
        features=features,
        answers=answers,
        unanswered=log.unanswered,
    )
    result = await compare_and_rank(result, plan, sources, log, listener)
    giving_way, by_default = find_giving_way(result), is_by_default(result.rulings)
    placed = place(result.ranking, result.rejected, giving_way if by_default else (), by_default=by_default)
    result = replace(result, placed=placed, behind_by_default=giving_way)
    return replace(result, flags=round_flags(result))
