"""What an evaluation will cost, before it is paid for.

A config, a number of submissions and the judges with their prices come in; a `Quote` goes out, one line for each stage
and judge, made from the very prompts that would be sent. A judge with no known price has a line without an amount, and
then there is no total: nothing unknown is counted as zero. The specification's own cost table stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clara_eval.eval_config import EvalConfig, Feature, FeatureSchema, compile_schema
from clara_eval.judge.comparison import ComparisonPrompts
from clara_eval.judge.extraction import Subject, asked_features, extraction_questions
from clara_eval.judge.jury import JudgeName
from clara_eval.judge.port import Answer, Prompt, Purpose
from clara_eval.judge.prices import PriceCard, estimated_tokens
from clara_eval.judge.typing import typing_prompt
from clara_eval.judge.vector import Value, make_vector

GAS_MICRO_USD = 10_000
"""Posting the scores on Base, as the specification counts it."""
VERDICT_TOKENS = 90
TOKENS_PER_VALUE = 14
TOKENS_PER_TEXT = 120
TYPICAL_BYTES = 4_000
"""Size of a submission where the caller names none."""


@dataclass(frozen=True, slots=True)
class Size:
    """How big the evaluation will be. `looks` is the number of ordered pairs shown to each judge."""

    submissions: int
    looks: int
    submission_bytes: int = TYPICAL_BYTES
    batch: bool = False


@dataclass(frozen=True, slots=True)
class QuoteLine:
    purpose: Purpose
    judge: str
    calls: int
    input_tokens: int
    output_tokens: int
    micro_usd: int | None
    """None: this judge has no known price."""


@dataclass(frozen=True, slots=True)
class Quote:
    size: Size
    lines: tuple[QuoteLine, ...]

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(sorted({line.judge for line in self.lines if line.micro_usd is None}))

    @property
    def models_micro_usd(self) -> int | None:
        """All calls; None if one of them has no known price."""
        return None if self.unpriced else sum(line.micro_usd or 0 for line in self.lines)

    @property
    def total_micro_usd(self) -> int | None:
        return None if self.models_micro_usd is None else self.models_micro_usd + GAS_MICRO_USD


def quote(config: EvalConfig, size: Size, jury: Sequence[JudgeName], cards: Mapping[str, PriceCard | None]) -> Quote:
    """One line for each stage and each judge that is asked in it; the first model reads, every model compares."""
    schema, untyped = compile_schema(config)
    models = [] if config.judge == "rules" else [judge for judge in jury if judge.provider != "rules"]
    readers = models[:1] or [judge for judge in jury if judge.provider != "rules"][:1]
    lines: list[QuoteLine] = []
    for judge in readers:
        card = cards[judge.text]
        if untyped:
            lines.append(_line(judge, card, (typing_prompt(config, untyped),), 1, 60 * len(untyped), batch=False))
        if asked_features(schema):
            prompts = _reading_prompts(config, schema, size.submission_bytes)
            answer = sum(TOKENS_PER_TEXT if f.type == "text" else TOKENS_PER_VALUE for f in asked_features(schema))
            lines.append(_line(judge, card, prompts, size.submissions, 40 + answer, batch=size.batch))
    comparing = _comparison_prompt(config, schema)
    lines.extend(
        _line(judge, cards[judge.text], (comparing,), size.looks, VERDICT_TOKENS, batch=size.batch) for judge in models
    )
    return Quote(size, tuple(lines))


def _line(
    judge: JudgeName, card: PriceCard | None, prompts: Sequence[Prompt], times: int, answer_tokens: int, *, batch: bool
) -> QuoteLine:
    """`prompts` is what one item needs; `times` is the number of items."""
    tokens = [estimated_tokens(prompt.system + prompt.user + prompt.schema_json) for prompt in prompts]
    cost = None
    if card is not None:
        discount = batch and judge.provider == "anthropic"
        cost = times * sum(
            card.cost(Answer("", judge.model, "end", count, answer_tokens), batch=discount) for count in tokens
        )
    calls = times * len(prompts)
    return QuoteLine(prompts[0].purpose, judge.text, calls, times * sum(tokens), calls * answer_tokens, cost)


def _reading_prompts(config: EvalConfig, schema: FeatureSchema, size: int) -> list[Prompt]:
    """Code is read twice: as it is, and without comments and strings."""
    text = ("x = 1  # text\n" * (size // 14 + 1))[:size]
    views = ("full", "stripped") if config.submission_format == "code" or config.language else ("full",)
    questions = [extraction_questions(schema, text, Subject("0x", "0x", "0x", view)) for view in views]
    return [question.prompt for asked in questions for question in asked]


def _comparison_prompt(config: EvalConfig, schema: FeatureSchema) -> Prompt:
    vector = make_vector(schema, {feature.name: _typical(feature) for feature in schema.judged})
    return ComparisonPrompts.of(config.criteria, schema).prompt(vector, vector)


def _typical(feature: Feature) -> Value:
    if feature.type == "enum":
        return max(feature.values, key=len)
    if feature.type == "boolean":
        return False
    return math.floor(feature.high) if feature.max is not None else 12_345


def specification_table(submissions: int) -> dict[str, int]:
    """The specification's cost model, in millionths of a dollar: 2 cents a submission, 1 cent a pair, 1 cent of gas."""
    table = {
        "features": 20_000 * submissions,
        "comparison": 10_000 * math.comb(submissions, 2),
        "posting": GAS_MICRO_USD,
    }
    return {**table, "total": sum(table.values())}


def to_json(found: Quote) -> dict[str, Any]:
    """The document of `config quote --json`: dollars as decimal strings, null where nobody knows."""
    return {
        "submissions": found.size.submissions,
        "looks": found.size.looks,
        "submissionBytes": found.size.submission_bytes,
        "batch": found.size.batch,
        "stages": [
            {
                "stage": line.purpose,
                "judge": line.judge,
                "calls": line.calls,
                "inputTokens": line.input_tokens,
                "outputTokens": line.output_tokens,
                "usd": usd(line.micro_usd),
            }
            for line in found.lines
        ],
        "postingUsd": usd(GAS_MICRO_USD),
        "totalUsd": usd(found.total_micro_usd),
        "noKnownPrice": list(found.unpriced),
        "specification": {name: usd(amount) for name, amount in specification_table(found.size.submissions).items()},
    }


def usd(micro_usd: int | None) -> str | None:
    return None if micro_usd is None else f"{micro_usd // 1_000_000}.{micro_usd % 1_000_000:06d}"
