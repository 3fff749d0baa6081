"""Extract the typed facts of one submission: measured by tools, or claimed by a model that reads every part.

A measured value beats a claimed one, and several readings are merged to the worst; without a direction: the mean of
numbers, true if any part says so, the first known enum value. A gap between claim and measurement is a flag.
Invariant: an unusable answer makes this entry's claims unknown and touches no other; an outage is passed on.
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
"""Of the code in neutral words: it was read; it is the whole text; it could not be made; prose has none."""
MANY_CLAIMS = 3  # from this many claims on, all of them at or near their best is unlikely to be honest


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    vector: JudgeVector
    text: dict[str, str]  # `text` features, as a model wrote them: for people only
    measured: dict[str, Value]
    claimed: dict[str, Value]
    flags: tuple[Flag, ...] = ()
    requests: tuple[str, ...] = ()  # hashes of the requests whose answers these facts come from
    second_view: SecondView = "none"
    unsupported: tuple[str, ...] = ()
    """Claimed features with a value for which no line was shown, or none that the second view bears out."""

    def to_json(self) -> dict[str, object]:
        told = to_camel_json(self)
        del told["vector"]
        return {"features": self.vector.as_dict(), **told}


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
            by_tool = None  # the poster's feature of this name cannot hold it
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
    # Counting is hard for models: a tenth, or one, is not a lie.
    return abs(by_tool - by_model) > max(0.1 * abs(by_tool), 1.0 if feature.type == "integer" else 0.0)


TOLERANCE = 0.1
_HUGE = 1e300  # far outside every range; a mean of larger claims would not be a number any more
DISAGREE = "views_disagree"
LEVELS = 10  # an integer with at most this many values may differ by one: neighbouring levels are a matter of reading
SHORT = 3  # an ordered enum with more words than this may differ by one, for the same reason


def merge_parts(schema: FeatureSchema, parts: Sequence[Claims]) -> Claims:
    values = {
        feature.name: merge_values(feature, [part.values.get(feature.name) for part in parts])
        for feature in schema.judged
        if feature.source == "llm"
    }
    texts = {name: text for part in reversed(parts) for name, text in part.texts.items()}  # the first counts
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
    """Return what the neutral view confirms, with a flag if both differ."""
    merged: dict[str, Value] = {}
    flags: list[Flag] = []
    for name, whole in full.items():
        bare, feature = neutral.get(name), schema.feature(name)
        merged[name] = merge_values(feature, [bare, whole]) if feature.better else whole if bare is None else bare
        if bare is not None and whole is not None and differs(feature, whole, bare):
            sentence = (
                f"{name} is {whole} by the full text and {bare} by what the code does without its names and words;"
            )
            counts = "the worse counts" if feature.better else "the latter counts"
            evidence = {"feature": name, "full": whole, "neutral": bare}
            flags.append(Flag(DISAGREE, "review", f"{sentence} {counts}.", evidence=evidence))
    return merged, tuple(flags)


def differs(feature: Feature, one: Value, other: Value) -> bool:
    """Return whether two values are further apart than readings of one text may be."""
    if isinstance(one, str) and isinstance(other, str) and feature.better and len(feature.values) > SHORT:
        return abs(feature.values.index(one) - feature.values.index(other)) > 1
    if isinstance(one, (bool, str)) or isinstance(other, (bool, str)) or one is None or other is None:
        return one != other
    if feature.min is None or feature.max is None:
        return abs(one - other) > TOLERANCE * max(abs(one), abs(other))
    span = feature.max - feature.min
    room = 1 if feature.type == "integer" and span < LEVELS else TOLERANCE * span
    return abs(one - other) > room


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
    words = executed.outcome.value.replace("_", " ")
    return (
        Flag("does_not_run", "info", f"Run under the limits of the round it ended as: {words}.", evidence=evidence),
    )


UNREAD, UNEVALUABLE, CANARY = "unread", "unevaluable", "canary"
"""Flags for unknown claims: no answer came, none could be used, none could be trusted."""
_SIGNS = {
    "an end of the data": r"<\s{0,3}/\s{0,3}submission",
    "marks of a chat": r"<\|(?:im_start|im_end|system|assistant|user|endoftext|eot_id|start_header_id)\|>|\[/?INST\]"
    r"|<</?SYS>>|<system-reminder>|\n\n(?:Human|Assistant): ",
    "a demand to ignore the task": r"\b(?:ignore|disregard|forget)\s{1,3}(?:(?:all|of|the|your|any)\s{1,3}){0,3}"
    r"(?:previous|prior|above|earlier|preceding)\s{1,3}(?:instructions?|prompts?|rules|directions)",
    "a verdict": r"[\"']winner[\"']\s{0,3}:\s{0,3}[\"'](?:A|B)[\"']",
    "an address to the evaluator": r"\b(?:note|attention|message|instructions?)\s{1,3}(?:to|for)\s{1,3}(?:the\s{1,3})?"
    r"(?:ai\s{1,3}|llm\s{1,3})?(?:judge|grader|evaluator|extractor|reviewer model)\b",
}
_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _SIGNS.items()}


@dataclass(frozen=True, slots=True)
class ReadingContext:
    """What a reading is about; the nonces follow from it."""

    challenge: str
    block_hash: str
    language: str | None
    gives_up: bool = False  # no time is left to wait for a model: what it did not tell is unknown
    statement: str = ""  # the poster's problem statement: what the work is meant to do
    harness: Harness | None = None  # the poster's program that runs the work: names in it keep their names


async def extract_features(
    llm: StructuredLlm | None,
    schema: FeatureSchema,
    solution: Solution,
    reading: ReadingContext,
    executed: Executed | None = None,
) -> SubmissionFacts:
    """Return the facts about one submission. Raises Temporary if the model cannot be reached."""
    text, language = solution.code, reading.language or solution.language
    measured = await asyncio.to_thread(measure, text, language)  # hostile text may take a second
    kept: dict[str, Value] = {one.name: measured[one.name] for one in schema.features if one.name in measured}
    kept |= executed_values(schema, executed)
    read = SubmissionFacts(JudgeVector(()), {}, {}, {})
    if asked := asked_features(schema):
        if llm is None:
            names = ", ".join(feature.name for feature in asked)
            said = f"The features {names} need a language model, and CLARA_JUDGES names none."
            raise ConfigError(said, remedy="Set CLARA_JUDGES to a model, or use features with source measured.")
        read = await _read(llm, schema, solution, reading)
    vector, flags = choose_values(schema, kept, read.claimed)
    directed, too_good = [one for one in asked if one.better and one.type != "text"], []
    if len(directed) >= MANY_CLAIMS and all(_is_best(one, read.claimed.get(one.name)) for one in directed):
        sentence = f"All {len(directed)} claimed features have their best value."
        too_good.append(Flag("all_best", "review", sentence, evidence={"features": len(directed)}))
    told = (*executed_flags(executed), *read.flags, *flags, *too_good)
    return replace(read, vector=vector, measured=kept, flags=told)


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
    """Return everything that is asked about a submission the first time."""
    views = questions_for(schema, solution, reading) if asked_features(schema) else {}
    return [question.prompt for questions in views.values() for question in questions]


async def _read(
    llm: StructuredLlm, schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> SubmissionFacts:
    """Return what a model claims; the vector and what is measured are left out."""
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
            claims, asked = await _ask(llm, schema, question, gives_up=reading.gives_up)
            requests += asked
            if isinstance(claims, Flag):
                unknown: dict[str, Value] = {one.name: None for one in asked_features(schema) if one.type != "text"}
                return SubmissionFacts(JudgeVector(()), {}, {}, unknown, (*flags, claims), tuple(requests))
            parts.append(claims)
        views[name] = merge_parts(schema, parts)
    full, bare = views["full"], views.get("neutral")
    values, shown = full.values, full.shown  # those that a line of the submission bears out
    if bare is not None:
        values, disagreements = merge_views(schema, full.values, bare.values)
        flags += disagreements
        shown = frozenset(name for name in bare.shown if bare.values.get(name) is not None)
    unsupported = tuple(sorted(name for name, value in values.items() if value is not None and name not in shown))
    told = (tuple(flags), tuple(requests), second, unsupported)
    return SubmissionFacts(JudgeVector(()), full.texts, {}, values, *told)


async def _ask(
    llm: StructuredLlm, schema: FeatureSchema, question: Question, *, gives_up: bool
) -> tuple[Claims | Flag, tuple[str, ...]]:
    """Return the claims, or the flag of an entry whose claims stay unknown; also what was asked."""
    refused: list[BadAnswer] = []

    def read(text: str) -> Claims:
        try:
            return read_claims(text, schema, question.canary)
        except BadAnswer as bad:
            refused.append(bad)
            raise

    asked = await llm.ask(question.prompt, read)
    if asked.outage is not None:
        # A bound that is reached, a cut answer: asking later cannot help, and the others do not wait for this entry.
        is_broke = isinstance(asked.outage, OutOfBudget) and not asked.outage.is_lost
        if not (gives_up or is_broke or isinstance(asked.outage, (AnswerCut, GoneWithout))):
            raise asked.outage
        return Flag(UNREAD, "review", f"It could not be read. {asked.reason}"), asked.requests
    if asked.value is not None:
        return asked.value, asked.requests
    code = CANARY if refused and isinstance(refused[-1], BadCanary) else UNEVALUABLE
    return Flag(code, "review", f"What only a model can tell about it is unknown. {asked.reason}"), asked.requests


def _is_best(feature: Feature, value: Value) -> bool:
    higher = feature.better == "higher"
    if isinstance(value, bool):
        return value is higher
    if isinstance(value, str):
        return value == feature.values[-1 if higher else 0]
    return value is not None and (value >= feature.high if higher else value <= feature.low)


def speaks_to_judge(text: str) -> list[Flag]:
    """Flag words that speak to a judge: a reason for a person to look, never a verdict. Linear in the length."""
    found = [name for name, pattern in _COMPILED.items() if pattern.search(text)]
    if not found:
        return []
    return [Flag("speaks_to_judge", "review", f"The text contains {', '.join(found)}.")]


def unevaluable(solutions: Sequence[Solution], features: Mapping[Address, SubmissionFacts]) -> tuple[Rejected, ...]:
    """Reject entries of which no judged feature is known. Raises if nothing is known about any."""
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
