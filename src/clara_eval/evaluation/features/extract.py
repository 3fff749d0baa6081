"""Extract the typed facts of one submission: measured by tools, or claimed by a model.

A measured value beats a claimed one; a gap between both is a flag. Readings of several parts merge to the worst value;
for features without a direction to the mean, to true if any part says so, or to the first known enum value.
Invariant: an unusable answer makes only the claims of this entry unknown; an outage is raised.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clara_eval.code.neutral import wanted_names
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.address import Address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadAnswer, BadInput, CannotPublish, ConfigError, OutOfBudget
from clara_eval.core.model import Flag
from clara_eval.evaluation.features.measured import known_language, measure, neutral_view
from clara_eval.harness import Executed, Harness, RunOutcome
from clara_eval.judge.comparison import JudgeVector, Value, checked, make_vector
from clara_eval.judge.extraction import (
    BadCanary,
    Claims,
    FeatureQuestion,
    Question,
    Subject,
    asked_features,
    extraction_questions,
    read_claims,
)
from clara_eval.judge.port import AnswerCut, GoneWithout, NothingJudged, Prompt
from clara_eval.judge.reading import prompt_view
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.submissions.model import Rejected, Solution

SecondView = Literal["read", "same", "missing", "none"]
"""The code in neutral words: it was read, equals the full text, could not be made, or is prose."""
MANY_CLAIMS = 3  # from this number on, claims that are all at or near their best are suspicious


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    vector: JudgeVector
    text: dict[str, str]  # `text` features, written by a model for people
    measured: dict[str, Value]
    claimed: dict[str, Value]
    flags: tuple[Flag, ...] = ()
    requests: tuple[str, ...] = ()  # hashes of the requests that gave these facts
    second_view: SecondView = "none"
    unsupported: tuple[str, ...] = ()
    """Claimed features without a supporting line, or with none that the second view confirms."""

    def to_json(self) -> dict[str, object]:
        fields = to_camel_json(self)
        del fields["vector"]
        return {"features": self.vector.as_dict(), **fields}


def choose_values(
    schema: FeatureSchema, measured: Mapping[str, Value], claimed: Mapping[str, Value]
) -> tuple[JudgeVector, tuple[Flag, ...]]:
    """Return one value for each judged feature: measured, else claimed, else None."""
    values: dict[str, Value] = {}
    flags: list[Flag] = []
    for feature in schema.judged:
        by_tool, by_model = measured.get(feature.name), claimed.get(feature.name)
        try:
            checked(feature, by_tool)
        except BadInput:
            by_tool = None  # the config's feature of this name has another type
        chosen = by_tool if feature.source == "measured" or by_tool is not None else by_model
        if by_tool is not None and by_model is not None and _is_gap(feature, by_tool, by_model):
            sentence = f"{feature.name} is claimed as {by_model} and measured as {by_tool}."
            evidence = {"feature": feature.name, "claimed": by_model, "measured": by_tool}
            flags.append(Flag("claim_gap", "review", sentence, evidence=evidence))
        values[feature.name] = chosen
        if isinstance(chosen, (bool, str)) or chosen is None:
            continue
        if not feature.low <= chosen <= feature.high:
            sentence = f"{feature.name} was {chosen:g}, outside {feature.low:g}…{feature.high:g}; the bound counts."
            flags.append(Flag("out_of_range", "warn", sentence, evidence={"feature": feature.name, "value": chosen}))
    return make_vector(schema, values), tuple(flags)


def _is_gap(feature: Feature, by_tool: Value, by_model: Value) -> bool:
    if isinstance(by_tool, (bool, str)) or isinstance(by_model, (bool, str)) or by_tool is None or by_model is None:
        return by_tool != by_model
    # Models count badly, so an error of 10 % or of one is not a gap.
    return abs(by_tool - by_model) > max(0.1 * abs(by_tool), 1.0 if feature.type == "integer" else 0.0)


TOLERANCE = 0.1  # of the range, or of the larger value
_HUGE = 1e300  # far outside every range; the sum of larger claims would overflow
VIEWS_DISAGREE = "views_disagree"
LEVELS = 10  # integers with at most this many values may differ by one: honest readings do
SHORT = 3  # ordered enums with more values than this may differ by one, too


def merge_parts(schema: FeatureSchema, parts: Sequence[Claims]) -> Claims:
    values = {
        feature.name: merge_values(feature, [part.values.get(feature.name) for part in parts])
        for feature in schema.judged
        if feature.source == "llm"
    }
    texts = {name: text for part in reversed(parts) for name, text in part.texts.items()}  # the first part wins
    return Claims(values, texts, frozenset().union(*(part.shown for part in parts)))


def merge_values(feature: Feature, values: Sequence[Value]) -> Value:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if feature.better is not None:
        return worst(feature, known)
    if feature.type == "boolean":
        return any(known)
    if feature.type == "enum":
        return known[0]
    mean = math.fsum(min(max(float(value), -_HUGE), _HUGE) for value in known) / len(known)
    return round(mean) if feature.type == "integer" else mean


def worst(feature: Feature, known: Sequence[Value]) -> Value:
    def order(value: Value) -> float:
        return feature.values.index(value) if isinstance(value, str) else float(value or 0)

    return (min if feature.better == "higher" else max)(known, key=order)


def merge_views(
    schema: FeatureSchema, full: Mapping[str, Value], neutral: Mapping[str, Value]
) -> tuple[dict[str, Value], tuple[Flag, ...]]:
    """Merge the claims of both views, with a flag for each one that differs."""
    merged: dict[str, Value] = {}
    flags: list[Flag] = []
    for name, whole in full.items():
        bare, feature = neutral.get(name), schema.feature(name)
        merged[name] = merge_values(feature, [bare, whole]) if feature.better else whole if bare is None else bare
        if bare is not None and whole is not None and differs(feature, whole, bare):
            text = f"{name} is {whole} by the full text and {bare} by what the code does without its names and words;"
            counts = "the worse counts" if feature.better else "the latter counts"
            evidence = {"feature": name, "full": whole, "neutral": bare}
            flags.append(Flag(VIEWS_DISAGREE, "review", f"{text} {counts}.", evidence=evidence))
    return merged, tuple(flags)


def differs(feature: Feature, one: Value, other: Value) -> bool:
    """Return whether two values differ by more than honest readings of one text do."""
    if isinstance(one, str) and isinstance(other, str) and feature.better and len(feature.values) > SHORT:
        return abs(feature.values.index(one) - feature.values.index(other)) > 1
    if isinstance(one, (bool, str)) or isinstance(other, (bool, str)) or one is None or other is None:
        return one != other
    if feature.min is None or feature.max is None:
        return abs(one - other) > TOLERANCE * max(abs(one), abs(other))
    span = feature.max - feature.min
    allowed = 1 if feature.type == "integer" and span < LEVELS else TOLERANCE * span
    return abs(one - other) > allowed


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
    text = f"Run under the limits of the round it ended as: {executed.outcome.value.replace('_', ' ')}."
    return (Flag("does_not_run", "info", text, evidence=evidence),)


UNREAD, UNEVALUABLE, CANARY = "unread", "unevaluable", "canary"
"""Flags of unknown claims: no answer, no usable answer, no trusted answer."""
_JUDGE_PATTERNS = {  # each is linear in the length of the text
    "an end of the data": r"<\s{0,3}/\s{0,3}submission",
    "marks of a chat": r"<\|(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id)\|>|\[/?INST\]"
    r"|<</?SYS>>|<system-reminder>|\n\n(?:Human|Assistant): ",
    "a demand to ignore the task": r"\b(?:ignore|disregard|forget)\s{1,3}(?:(?:all|of|the|your|any)\s{1,3}){0,3}"
    r"(?:previous|prior|above|earlier|preceding)\s{1,3}(?:instructions?|prompts?|rules|directions)",
    "a verdict": r"[\"']winner[\"']\s{0,3}:\s{0,3}[\"'](?:A|B)[\"']",
    "an address to the evaluator": r"\b(?:note|attention|message|instructions?)\s{1,3}(?:to|for)\s{1,3}(?:the\s{1,3})?"
    r"(?:ai\s{1,3}|llm\s{1,3})?(?:judge|grader|evaluator|extractor|reviewer model)\b",
}


@dataclass(frozen=True, slots=True)
class ReadingContext:
    """What all readings of a round share; the nonces in prompts derive from it."""

    challenge: str
    block_hash: str
    language: str | None
    gives_up: bool = False  # no time is left to wait for a model: unanswered claims are unknown
    statement: str = ""  # the poster's problem statement
    harness: Harness | None = None  # its names are not neutralised


async def extract_features(
    llm: StructuredLlm | None,
    schema: FeatureSchema,
    solution: Solution,
    reading: ReadingContext,
    executed: Executed | None = None,
) -> SubmissionFacts:
    """Extract the facts of one submission; raises Temporary if the model cannot be reached."""
    text, language = solution.code, reading.language or solution.language
    measured = await asyncio.to_thread(measure, text, language)  # hostile text may take a second
    values: dict[str, Value] = {one.name: measured[one.name] for one in schema.features if one.name in measured}
    values |= executed_values(schema, executed)
    read = SubmissionFacts(JudgeVector(()), {}, {}, {})
    if asked := asked_features(schema):
        if llm is None:
            names = ", ".join(feature.name for feature in asked)
            problem = f"The features {names} need a language model, and CLARA_JUDGES names none."
            raise ConfigError(problem, remedy="Set CLARA_JUDGES to a model, or use features with source measured.")
        read = await _read_claims(llm, schema, solution, reading)
    vector, flags = choose_values(schema, values, read.claimed)
    directed, too_good = [one for one in asked if one.better and one.type != "text"], []
    if len(directed) >= MANY_CLAIMS and all(_is_best(one, read.claimed.get(one.name)) for one in directed):
        sentence = f"All {len(directed)} claimed features have their best value."
        too_good.append(Flag("all_best", "review", sentence, evidence={"features": len(directed)}))
    flags = (*executed_flags(executed), *read.flags, *flags, *too_good)
    return replace(read, vector=vector, measured=values, flags=flags)


def questions_for(
    schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> dict[str, tuple[Question, ...]]:
    return _questions(schema, solution, reading)[1]


def _questions(
    schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> tuple[SecondView, dict[str, tuple[Question, ...]]]:
    asked, language = FeatureQuestion.of(reading.statement, reading.language), reading.language or solution.language
    full, ran = prompt_view(solution.text).text, reading.harness
    texts = {"full": full}
    wanted = wanted_names(reading.statement, ran.source if ran else "", ran.language if ran else "")
    neutral = neutral_view(solution.code, language, wanted)
    kind: SecondView = "none" if known_language(language) is None else "missing"
    if neutral is not None:
        shown = prompt_view(neutral).text
        kind = "same" if shown.split() == full.split() else "read"
        texts |= {"neutral": shown} if kind == "read" else {}
    return kind, {
        view: extraction_questions(
            schema, text, Subject(reading.block_hash, reading.challenge, solution.content_sha256, view), asked
        )
        for view, text in texts.items()
    }


def prompts_for(schema: FeatureSchema, solution: Solution, reading: ReadingContext) -> list[Prompt]:
    """Return the first prompts about a submission, without retries."""
    views = questions_for(schema, solution, reading) if asked_features(schema) else {}
    return [question.prompt for questions in views.values() for question in questions]


async def _read_claims(
    llm: StructuredLlm, schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> SubmissionFacts:
    """Ask the model about all parts and views; return its claims, without vector and measured values."""
    view = prompt_view(solution.text)
    flags = speaks_to_judge(view.text)
    if view.removed:
        left_out = ", ".join(f"{count} {kind}" for kind, count in view.removed)
        sentence = f"Characters that nobody sees were left out for the model: {left_out}."
        flags.insert(0, Flag("invisible_characters", "warn", sentence, evidence=dict(view.removed)))
    requests: list[str] = []
    views: dict[str, Claims] = {}
    second, asked_by_view = await asyncio.to_thread(_questions, schema, solution, reading)
    for name, questions in asked_by_view.items():
        parts: list[Claims] = []
        for question in questions:
            claims, asked = await _ask_question(llm, schema, question, gives_up=reading.gives_up)
            requests += asked
            if isinstance(claims, Flag):
                unknown: dict[str, Value] = {one.name: None for one in asked_features(schema) if one.type != "text"}
                return SubmissionFacts(JudgeVector(()), {}, {}, unknown, (*flags, claims), tuple(requests))
            parts.append(claims)
        views[name] = merge_parts(schema, parts)
    full, bare = views["full"], views.get("neutral")
    values, shown = full.values, full.shown  # `shown`: claims with a supporting line
    if bare is not None:
        values, disagreements = merge_views(schema, full.values, bare.values)
        flags += disagreements
        shown = frozenset(name for name in bare.shown if bare.values.get(name) is not None)
    unsupported = tuple(sorted(name for name, value in values.items() if value is not None and name not in shown))
    found = (tuple(flags), tuple(requests), second, unsupported)
    return SubmissionFacts(JudgeVector(()), full.texts, {}, values, *found)


async def _ask_question(
    llm: StructuredLlm, schema: FeatureSchema, question: Question, *, gives_up: bool
) -> tuple[Claims | Flag, tuple[str, ...]]:
    """Ask one question; return the claims or the flag that they stay unknown, and the requests."""
    bad_answers: list[BadAnswer] = []

    def read(text: str) -> Claims:
        try:
            return read_claims(text, schema, question.canary)
        except BadAnswer as bad:
            bad_answers.append(bad)
            raise

    asked = await llm.ask(question.prompt, read)
    if asked.outage is not None:
        # Asking later cannot help if the budget is spent or the answer was cut, so the round does not wait.
        is_budget_spent = isinstance(asked.outage, OutOfBudget) and not asked.outage.is_lost
        if not (gives_up or is_budget_spent or isinstance(asked.outage, (AnswerCut, GoneWithout))):
            raise asked.outage
        return Flag(UNREAD, "review", f"It could not be read. {asked.reason}"), asked.requests
    if asked.value is not None:
        return asked.value, asked.requests
    code = CANARY if bad_answers and isinstance(bad_answers[-1], BadCanary) else UNEVALUABLE
    return Flag(code, "review", f"What only a model can tell about it is unknown. {asked.reason}"), asked.requests


def _is_best(feature: Feature, value: Value) -> bool:
    higher = feature.better == "higher"
    if isinstance(value, bool):
        return value is higher
    if isinstance(value, str):
        return value == feature.values[-1 if higher else 0]
    return value is not None and (value >= feature.high if higher else value <= feature.low)


def speaks_to_judge(text: str) -> list[Flag]:
    """Flag text that addresses the judge: a reason for a review, never a verdict."""
    found = [name for name, pattern in _JUDGE_PATTERNS.items() if re.search(pattern, text, re.IGNORECASE)]
    if not found:
        return []
    return [Flag("speaks_to_judge", "review", f"The text contains {', '.join(found)}.")]


def unevaluable(solutions: Sequence[Solution], features: Mapping[Address, SubmissionFacts]) -> tuple[Rejected, ...]:
    """Reject entries without a known judged feature; NothingJudged or CannotPublish if none is left."""
    found, rejected, asked, failed = 0, list[Rejected](), list[str](), list[Flag]()
    for solution in solutions:
        facts = features[solution.submission.submitter]
        failure = next((flag for flag in facts.flags if flag.code in {UNREAD, UNEVALUABLE, CANARY}), None)
        is_empty = all(value is None for _, value in facts.vector.values)
        if is_empty:
            reason = failure.sentence if failure else "Every judged feature is unknown."
            is_outage = failure is not None and failure.code == UNREAD
            rejected.append(Rejected(solution.submission, UNEVALUABLE, reason, is_outage))
        found += not is_empty and failure is None
        failed += [failure] if failure else []
        asked += facts.requests
    if solutions and not found and failed:
        raise NothingJudged(f"No submission could be read. The first: {failed[0].sentence}", asked)
    if solutions and not found:
        raise CannotPublish(
            f"Reading the {len(solutions)} submissions gave no facts to compare, so nobody is ranked: every judged "
            "feature is unknown for every submission.",
            remedy="Evaluate it anew with another model (`evaluate --restart`), or let the poster post scores.",
        )
    return tuple(rejected)
