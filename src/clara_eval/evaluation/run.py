"""Evaluate a round: from its entries to a ranking with flags. Knows no chain, no store and no service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clara_eval.config.eval_config import FeatureSchema, compile_schema, with_types
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.evaluation.entries import KeepFacts, collect_entries, in_order, read_facts, remaining
from clara_eval.evaluation.execution import choose_harness, run_all
from clara_eval.evaluation.features.extract import ReadingContext, unevaluable
from clara_eval.evaluation.features.field import compare_field
from clara_eval.evaluation.play import Comparison, RuledComparisons, judge_by_rules, play_tournament
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.review_rules import giving_way, place, round_flags
from clara_eval.evaluation.round import EvaluationPlan, ProgressListener, Round, is_by_default
from clara_eval.evaluation.sources import Sources
from clara_eval.evaluation.trace import KeptAnswers
from clara_eval.judge.comparison import Judge, JudgeVector, ModelJudge, OrderingJudge, RulesJudge
from clara_eval.judge.extraction import type_names
from clara_eval.judge.reading import prompt_files
from clara_eval.judge.structured_llm import AnswerLog, StructuredLlm
from clara_eval.ranking import Ranking, choose_schedule, rank, tally


def canonical_order(challenge_id: str, submission_hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Sort by keccak(challengeId ‖ submissionHash), then id, never by arrival: being early gains no side or index."""
    key = {item: keccak_hex(bytes.fromhex(challenge_id[2:] + own[2:])) for item, own in submission_hashes.items()}
    return tuple(sorted(key, key=lambda item: (key[item], item)))


async def hold_tournament(
    found: EvaluationResult, plan: EvaluationPlan, sources: Sources, log: AnswerLog, listener: ProgressListener
) -> EvaluationResult:
    """Compare the entries by rules if the poster asks for them, else by the operator's jury, and rank them."""
    given, schema = found.given, found.schema

    def asked(name: str) -> tuple[StructuredLlm, str, FeatureSchema]:
        return StructuredLlm(sources.models.reader((name,)), plan.tokens, log=log), given.config.criteria, schema

    literal, names = plan.elo == "literal", ("rules",) if given.config.judge == "rules" else plan.judges
    judges = {name: RulesJudge(schema) if name == "rules" else ModelJudge(*asked(name)) for name in names}
    ranked = remaining(found.pieces, found.rejected)
    items = canonical_order(given.name, {s.submission.submitter: s.content_keccak for s in ranked})
    vectors: Mapping[str, JudgeVector] = {account: facts.vector for account, facts in found.features.items()}
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
            orderers={name: OrderingJudge(*asked(name)) for name in models},
            on_comparison=lambda done, total: listener("comparing", done, total),
            gives_up=sources.gives_up,
        )
    exact = is_exact(schema, judges)
    signers = {(paid.llm, paid.answer.signed.key) for paid in found.answers.values() if paid.answer.signed}
    return replace(
        found,
        key_reports=tuple([await sources.models.key_report(judge, key) for judge, key in sorted(signers)]),
        schedule=schedule.name,
        schedule_reason=schedule.explain(one.question for one in comparisons),
        comparisons=comparisons,
        ranking=rank_round(given, items, comparisons, found.likeness.families, exact=exact, literal=literal),
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
    """Rank the items; a family is judged once more as if it had stayed away."""
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
    """Whether rules decide over facts that tools measured, and no model said anything."""
    measured = all(feature.source == "measured" for feature in schema.judged)
    return measured and all(isinstance(judge, RulesJudge) for judge in judges.values())


async def evaluate_round(
    given: Round,
    plan: EvaluationPlan,
    sources: Sources,
    listener: ProgressListener,
    keep_features: KeepFacts | None = None,
) -> EvaluationResult:
    """Rank the entries of a round; `plan` has the rulings of `sources` applied (`ruled_plan`)."""
    answers, models, llm = KeptAnswers(), sources.models, None
    log = AnswerLog(answers.keep, sources.unanswered)
    if plan.readers:  # the first reads the entries, the others are asked after it
        others = tuple(models.reader((name,)) for name in plan.readers[1:])
        llm = StructuredLlm(models.reader(plan.readers), plan.tokens, others, log)
    schema, untyped = compile_schema(given.config)
    typed = await type_names(llm, given.config, untyped) if llm and untyped else ()
    schema = with_types(schema, typed)  # from the poster's words alone
    pieces, likeness, refused = await collect_entries(given, sources, listener)
    judged = remaining(pieces, refused)
    chosen = choose_harness(given, sources.reveal)
    execution = await run_all(sources.executed, chosen, given.config, schema, judged, listener)
    statement, harness = given.metadata.problem_statement, chosen.harness if chosen else None
    context = ReadingContext(given.name, given.beacon, given.config.language, sources.gives_up, statement, harness)
    read = await read_facts(
        llm, plan.reading, context, schema, judged, execution, listener=listener, keep=keep_features
    )
    features = compare_field(schema, read, given.winner_count)
    if keep_features is not None:
        await keep_features(features)
    found = EvaluationResult(
        given=given,
        schema=schema,
        typed_by_model=tuple(feature.name for feature in typed),
        prompts=prompt_files(),
        rulings=sources.rulings,
        pieces=pieces,
        likeness=likeness,
        rejected=in_order([*refused, *unevaluable(judged, features)]),
        execution=execution,
        features=features,
        answers=answers,
        unanswered=log.unanswered,
    )
    found = await hold_tournament(found, plan, sources, log, listener)
    behind, by_default = giving_way(found), is_by_default(found.rulings)
    placed = place(found.ranking, found.rejected, behind if by_default else (), by_default=by_default)
    found = replace(found, placed=placed, behind_by_default=behind)
    return replace(found, flags=round_flags(found))
