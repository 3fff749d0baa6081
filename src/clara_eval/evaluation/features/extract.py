"""Extract the typed facts of one submission: measured by tools, or claimed by a model that reads every part.

Invariant: an unusable answer makes this entry's claims unknown and touches no other; an outage is passed on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clara_eval.code import wanted_names
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import ConfigError, OutOfBudget, Temporary
from clara_eval.core.flags import Flag
from clara_eval.evaluation.features.features import (
    MANY_CLAIMS,
    SecondView,
    SubmissionFacts,
    choose_values,
    executed_flags,
    executed_values,
    merge_parts,
    merge_views,
)
from clara_eval.evaluation.features.measured import is_quick, known_language, measure, neutral_view
from clara_eval.harness import Executed, Harness
from clara_eval.judge.comparison import Value
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
from clara_eval.judge.port import AnswerCut, GoneWithout, Prompt
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.judge.templates import PromptView, prompt_view
from clara_eval.submissions.model import Solution

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
    gives_up: bool = False
    """No time is left to wait for a model: what it did not tell is unknown."""
    statement: str = ""
    """The poster's problem statement: what the work is meant to do."""
    harness: Harness | None = None
    """The poster's program that runs the work: names in it keep their names."""

    @property
    def wanted(self) -> frozenset[str]:
        source, language = (self.harness.source, self.harness.language) if self.harness else ("", "")
        return wanted_names(self.statement, source, language)


@dataclass(frozen=True, slots=True)
class _Read:
    claims: Claims
    flags: tuple[Flag, ...]
    requests: tuple[str, ...]
    second_view: SecondView = "none"
    unsupported: tuple[str, ...] = ()


async def extract_features(
    llm: StructuredLlm | None,
    schema: FeatureSchema,
    solution: Solution,
    reading: ReadingContext,
    executed: Executed | None = None,
) -> SubmissionFacts:
    """Return the facts about one submission. Raises Temporary if the model cannot be reached."""
    text, language = solution.code, reading.language or solution.language
    # Hostile text may take a second: a thread measures what is not short and parsed already.
    quick = is_quick(text, language)
    measured = measure(text, language) if quick else await asyncio.to_thread(measure, text, language)
    kept: dict[str, Value] = {one.name: measured[one.name] for one in schema.features if one.name in measured}
    kept |= executed_values(schema, executed)
    read = _Read(Claims({}, {}), (), ())
    if asked := asked_features(schema):
        if llm is None:
            names = ", ".join(feature.name for feature in asked)
            raise ConfigError(
                f"The features {names} need a language model, and CLARA_JUDGES names none.",
                remedy="Set CLARA_JUDGES to a model, or use features with source measured.",
            )
        read = await _read(llm, schema, solution, reading)
    vector, flags = choose_values(schema, kept, read.claims.values)
    return SubmissionFacts(
        vector=vector,
        text=read.claims.texts,
        measured=kept,
        claimed=read.claims.values,
        flags=(*executed_flags(executed), *read.flags, *flags, *_too_good(schema, read.claims)),
        requests=read.requests,
        second_view=read.second_view,
        unsupported=read.unsupported,
    )


def questions_for(
    schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> dict[str, tuple[Question, ...]]:
    return _questions(schema, solution, reading)[1]


def _questions(
    schema: FeatureSchema, solution: Solution, reading: ReadingContext
) -> tuple[SecondView, dict[str, tuple[Question, ...]]]:
    asked, language = FeatureQuestion.of(reading.statement, reading.language), reading.language or solution.language
    full = prompt_view(solution.text).text
    texts = {"full": full}
    neutral = neutral_view(solution.code, language, reading.wanted)
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


def prompts_for(schema: FeatureSchema, solutions: Sequence[Solution], reading: ReadingContext) -> list[Prompt]:
    """Return everything that is asked about these submissions the first time."""
    if not asked_features(schema):
        return []
    return [
        question.prompt
        for solution in solutions
        for questions in questions_for(schema, solution, reading).values()
        for question in questions
    ]


async def _read(llm: StructuredLlm, schema: FeatureSchema, solution: Solution, reading: ReadingContext) -> _Read:
    view = prompt_view(solution.text)
    flags = [*_invisible(view), *speaks_to_judge(view.text)]
    requests: list[str] = []
    views: dict[str, Claims] = {}
    second, asked_by_view = await asyncio.to_thread(_questions, schema, solution, reading)
    for name, questions in asked_by_view.items():
        parts: list[Claims] = []
        for question in questions:
            claims, flag, asked = await _ask(llm, schema, question, gives_up=reading.gives_up)
            requests += asked
            if claims is None or flag is not None:
                unknown = {feature.name: None for feature in asked_features(schema) if feature.type != "text"}
                return _Read(Claims(dict(unknown), {}), (*flags, *([flag] if flag else [])), tuple(requests))
            parts.append(claims)
        views[name] = merge_parts(schema, parts)
    full, bare = views["full"], views.get("neutral")
    if bare is None:
        return _Read(full, tuple(flags), tuple(requests), second, _without_support(full.values, full.shown))
    values, disagreements = merge_views(schema, full.values, bare.values)
    borne_out = frozenset(name for name in bare.shown if bare.values.get(name) is not None)
    return _Read(
        Claims(values, full.texts),
        (*flags, *disagreements),
        tuple(requests),
        second,
        _without_support(values, borne_out),
    )


def _without_support(values: Mapping[str, Value], shown: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name, value in values.items() if value is not None and name not in shown))


async def _ask(
    llm: StructuredLlm, schema: FeatureSchema, question: Question, *, gives_up: bool
) -> tuple[Claims | None, Flag | None, tuple[str, ...]]:
    wrong_canary = False

    def read(text: str) -> Claims:
        nonlocal wrong_canary
        wrong_canary = False
        try:
            return read_claims(text, schema, question.canary)
        except BadCanary:
            wrong_canary = True
            raise

    asked = await llm.ask(question.prompt, read)
    if asked.outage is not None:
        if not (gives_up or _is_final(asked.outage)):
            raise asked.outage
        return None, Flag(UNREAD, "review", f"It could not be read. {asked.reason}"), asked.requests
    if asked.value is not None:
        return asked.value, None, asked.requests
    code = CANARY if wrong_canary else UNEVALUABLE
    sentence = f"What only a model can tell about it is unknown. {asked.reason}"
    return None, Flag(code, "review", sentence), asked.requests


def _is_final(outage: Temporary) -> bool:
    """Return whether asking later cannot help, so that the others do not wait for this entry."""
    if isinstance(outage, OutOfBudget):
        return not outage.is_lost
    return isinstance(outage, (AnswerCut, GoneWithout))


def _invisible(view: PromptView) -> list[Flag]:
    if not view.removed:
        return []
    found = ", ".join(f"{count} {kind}" for kind, count in view.removed)
    sentence = f"Characters that nobody sees were left out for the model: {found}."
    return [Flag("invisible_characters", "warn", sentence, evidence=dict(view.removed))]


def _too_good(schema: FeatureSchema, claims: Claims) -> list[Flag]:
    directed = [feature for feature in asked_features(schema) if feature.better and feature.type != "text"]
    if len(directed) < MANY_CLAIMS or not all(_is_best(one, claims.values.get(one.name)) for one in directed):
        return []
    sentence = f"All {len(directed)} claimed features have their best value."
    return [Flag("all_best", "review", sentence, evidence={"features": len(directed)})]


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
