"""The calls that an evaluation will make, from the prompts that it would send: for its quote."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import EvalConfig, Feature, FeatureSchema, compile_schema
from clara_eval.judge.comparison import comparison_prompt
from clara_eval.judge.costs.prices import estimated_tokens
from clara_eval.judge.costs.quote import ExpectedCalls, Size
from clara_eval.judge.extraction import FeatureQuestion, Subject, asked_features, extraction_questions
from clara_eval.judge.feature_types import typing_prompt
from clara_eval.judge.limits import TokenLimits
from clara_eval.judge.port import Prompt, Purpose
from clara_eval.judge.vector import Value, make_vector

VERDICT_TOKENS = 90
TOKENS_PER_VALUE = 14
TOKENS_PER_TEXT = 120
TOKENS_PER_TYPE = 60
THINKING_TOKENS = 1_024
"""Of one answer of a model that thinks, at low effort."""
STATEMENT_CHARS = 1_500
"""A problem statement of ordinary length; every reading shows it."""


@dataclass(frozen=True, slots=True)
class Jury:
    """The models that are asked; the first also reads."""

    models: Sequence[str]
    batching: Collection[str] = ()
    """Those that answer in batches."""
    thinking: Collection[str] = ()
    """Those that think before they answer."""
    limits: TokenLimits | None = None

    def asked(
        self, purpose: Purpose, judge: str, items: int, prompts: Sequence[Prompt], answer: int, *, batch: bool = False
    ) -> ExpectedCalls:
        needed = prompts[0].max_tokens if prompts else 0
        limits = self.limits.all(needed) if self.limits else (needed,)
        thinking = THINKING_TOKENS if judge in self.thinking else 0
        is_batch = batch and judge in self.batching
        return ExpectedCalls(purpose, judge, items, _tokens(prompts), answer + thinking, is_batch, limits)


def expected_calls(config: EvalConfig, size: Size, jury: Jury) -> list[ExpectedCalls]:
    """Return the calls of each stage and model."""
    schema, untyped = compile_schema(config)
    expected: list[ExpectedCalls] = []
    for reader in jury.models[:1]:
        if untyped:
            typing = (typing_prompt(config, untyped),)
            expected.append(jury.asked("schema", reader, 1, typing, TOKENS_PER_TYPE * len(untyped)))
        if asked := asked_features(schema):
            reading = _reading_prompts(config, schema, size.submission_bytes)
            answer = 40 + sum(TOKENS_PER_TEXT if f.type == "text" else TOKENS_PER_VALUE for f in asked)
            expected.append(jury.asked("features", reader, size.submissions, reading, answer, batch=size.batch))
    comparing = (_comparison_prompt(config, schema),)
    expected.extend(
        jury.asked("comparison", model, size.looks, comparing, VERDICT_TOKENS, batch=size.batch)
        for model in (() if config.judge == "rules" else jury.models)
    )
    return expected


def needs_model(config: EvalConfig) -> bool:
    """Return whether something has to be read, typed or weighed by a model."""
    schema, untyped = compile_schema(config)
    is_silent = config.judge != "rules" and any(feature.better is None for feature in schema.judged)
    return bool(untyped) or bool(asked_features(schema)) or is_silent


def _tokens(prompts: Sequence[Prompt]) -> tuple[int, ...]:
    return tuple(estimated_tokens(prompt.system + prompt.user + prompt.schema_json) for prompt in prompts)


def _reading_prompts(config: EvalConfig, schema: FeatureSchema, size: int) -> list[Prompt]:
    """Make the prompts about a typical entry; code is read a second time in neutral words."""
    text = ("x = 1  # text\n" * (size // 14 + 1))[:size]
    views = ("full", "neutral") if config.submission_format == "code" or config.language else ("full",)
    asked = FeatureQuestion.of("x" * STATEMENT_CHARS, config.language)
    questions = [extraction_questions(schema, text, Subject("0x", "0x", "0x", view), asked) for view in views]
    return [question.prompt for asked in questions for question in asked]


def _comparison_prompt(config: EvalConfig, schema: FeatureSchema) -> Prompt:
    vector = make_vector(schema, {feature.name: _typical(feature) for feature in schema.judged})
    return comparison_prompt(config.criteria, schema, vector, vector)


def _typical(feature: Feature) -> Value:
    if feature.type == "enum":
        return max(feature.values, key=len)
    if feature.type == "boolean":
        return False
    return math.floor(feature.high) if feature.max is not None else 12_345
