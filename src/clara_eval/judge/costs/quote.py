"""Quote the expected and the highest cost of an evaluation, from the prompts that it would send."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import EvalConfig, Feature, FeatureSchema, compile_schema
from clara_eval.core.codec import to_camel_json
from clara_eval.core.model import usd
from clara_eval.judge.comparison import Value, comparison_prompt, make_vector
from clara_eval.judge.costs.budgets import Caps, PriceCard, estimated_tokens
from clara_eval.judge.extraction import FeatureQuestion, Subject, asked_features, extraction_questions, typing_prompt
from clara_eval.judge.port import Prompt, Purpose
from clara_eval.judge.reading import TokenLimits

GAS_MICRO_USD = 10_000  # to post the scores on Base, from the specification's cost model
TYPICAL_BYTES = 4_000
MARGIN = 1.3  # for retries, and for submissions larger than the quote's
READING_SHARE = 0.5  # of a challenge's cap: costly entries cannot use up the money for comparisons
LEAST_RESERVE = 500_000  # millionths of a dollar; a call reserves its worst case, which is far above its quote


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an evaluation."""

    submissions: int
    looks: int  # ordered pairs shown to each judge
    submission_bytes: int = TYPICAL_BYTES
    batch: bool = False
    further_looks: int | None = None  # per judge after the first, if judges are asked in turn; None: `looks`


@dataclass(frozen=True, slots=True)
class QuoteLine:
    purpose: str
    judge: str
    calls: int
    input_tokens: int
    output_tokens: int
    micro_usd: int | None  # None: this judge has no known price
    most_micro_usd: int | None = None
    most_tokens: int = 0  # the largest limit of one answer, thinking included


@dataclass(frozen=True, slots=True)
class Quote:
    size: Size
    lines: tuple[QuoteLine, ...]

    @property
    def most_tokens(self) -> int:
        return max((line.most_tokens for line in self.lines), default=0)

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(sorted({line.judge for line in self.lines if line.micro_usd is None}))

    @property
    def models_micro_usd(self) -> int | None:
        return None if self.unpriced else sum(line.micro_usd or 0 for line in self.lines)

    @property
    def total_micro_usd(self) -> int | None:
        return None if self.models_micro_usd is None else self.models_micro_usd + GAS_MICRO_USD

    @property
    def most_micro_usd(self) -> int | None:
        """Return the cost if every answer is cut at every limit; None if a price is unknown."""
        return None if self.unpriced else sum(line.most_micro_usd or 0 for line in self.lines)

    @property
    def comparing_micro_usd(self) -> int:
        return sum(line.micro_usd or 0 for line in self.lines if line.purpose == "comparison")

    @property
    def most_for_reading(self) -> int:
        return sum(line.most_micro_usd or 0 for line in self.lines if line.purpose != "comparison")

    def affordable_looks(self, cap: int | None) -> int | None:
        """Return how many looks a cap pays for besides reading, with a margin; None if it does not limit."""
        if cap is None or self.unpriced or not self.comparing_micro_usd:
            return None
        affordable = int((cap - self.for_reading(cap)) / (self.comparing_micro_usd * MARGIN) * self.size.looks)
        return max(1, min(self.size.looks, affordable))

    def for_reading(self, cap: int) -> int:
        """Return what reading may cost: its share of the cap, or more if entries of usual size need it."""
        usual = int(((self.models_micro_usd or 0) - self.comparing_micro_usd) * MARGIN)
        return max(usual, int(cap * READING_SHARE)) if usual else 0

    def kept_for_comparing(self, cap: int | None) -> int:
        return 0 if cap is None else max(0, min(int(self.comparing_micro_usd * MARGIN), cap - self.for_reading(cap)))

    def most_to_spend(self, caps: Caps, spent: int) -> int | None:
        """Return the amount a run reserves at first; None if there is no cap of any kind."""
        if caps.tightest is None:
            return None
        if self.models_micro_usd is None:
            return caps.tightest if caps.per_challenge is None else caps.per_challenge
        needed = max(spent, 2 * self.models_micro_usd) + LEAST_RESERVE
        return needed if caps.per_challenge is None else min(caps.per_challenge, needed)


def to_json(found: Quote) -> dict[str, object]:
    """Return the document of `config quote --json`: dollars as decimal strings, null if unknown."""
    entries = found.size.submissions
    # The specification's cost model: 2 cents per submission, 1 cent per pair, 1 cent of gas.
    table = {"features": 20_000 * entries, "comparison": 10_000 * math.comb(entries, 2), "posting": GAS_MICRO_USD}
    return {
        **to_camel_json(found.size),
        "stages": [
            {
                "stage": line.purpose,
                "judge": line.judge,
                "calls": line.calls,
                "inputTokens": line.input_tokens,
                "outputTokens": line.output_tokens,
                "usd": usd(line.micro_usd),
                "mostUsd": usd(line.most_micro_usd),
            }
            for line in found.lines
        ],
        "postingUsd": usd(GAS_MICRO_USD),
        "totalUsd": usd(found.total_micro_usd),
        "mostAnswerTokens": found.most_tokens,
        "mostUsd": usd(found.most_micro_usd),
        "noKnownPrice": list(found.unpriced),
        "specification": {name: usd(amount) for name, amount in {**table, "total": sum(table.values())}.items()},
    }


VERDICT_TOKENS = 90
TOKENS_PER_VALUE = 14
TOKENS_PER_TEXT = 120
TOKENS_PER_TYPE = 60
THINKING_TOKENS = 1_024  # per answer of a thinking model at low effort
STATEMENT_CHARS = 1_500  # length of a typical problem statement, which is in every reading prompt


@dataclass(frozen=True, slots=True)
class Jury:
    """The models and their prices; the first also reads the submissions."""

    cards: Mapping[str, PriceCard | None]
    batching: Collection[str] = ()
    thinking: Collection[str] = ()
    limits: TokenLimits | None = None

    def line(
        self, purpose: Purpose, judge: str, items: int, prompts: Sequence[Prompt], answer: int, *, batch: bool = False
    ) -> QuoteLine:
        """Quote one judge's calls in one stage: these prompts once per item."""
        card, cost, most = self.cards[judge], None, None
        counts = [estimated_tokens(prompt.system + prompt.user + prompt.schema_json) for prompt in prompts]
        needed = prompts[0].max_tokens if prompts else 0
        limits = self.limits.all(needed) if self.limits else (needed,)
        answer += THINKING_TOKENS if judge in self.thinking else 0
        if card is not None:
            is_batched = batch and judge in self.batching
            cost = items * sum(card.price(count, answer, batch=is_batched) for count in counts)
            most = max(cost, items * sum(card.price(n, limit) for n in counts for limit in limits))
        calls = items * len(prompts)
        return QuoteLine(purpose, judge, calls, items * sum(counts), calls * answer, cost, most, limits[-1])


def quote(config: EvalConfig, size: Size, jury: Jury) -> Quote:
    schema, untyped = compile_schema(config)
    lines: list[QuoteLine] = []
    for reader in list(jury.cards)[:1]:
        if untyped:
            typing = (typing_prompt(config, untyped),)
            lines.append(jury.line("schema", reader, 1, typing, TOKENS_PER_TYPE * len(untyped)))
        if asked := asked_features(schema):
            reading = _reading_prompts(config, schema, size.submission_bytes)
            answer = 40 + sum(TOKENS_PER_TEXT if f.type == "text" else TOKENS_PER_VALUE for f in asked)
            lines.append(jury.line("features", reader, size.submissions, reading, answer, batch=size.batch))
    vector = make_vector(schema, {feature.name: _typical_value(feature) for feature in schema.judged})
    comparing = (comparison_prompt(config.criteria, schema, vector, vector),)
    further = size.looks if size.further_looks is None else size.further_looks
    for number, model in enumerate(() if config.judge == "rules" else jury.cards):
        looks = further if number else size.looks
        lines.append(jury.line("comparison", model, looks, comparing, VERDICT_TOKENS, batch=size.batch))
    return Quote(size, tuple(lines))


def needs_model(config: EvalConfig) -> bool:
    """Return whether the config has features that only a model can type, read or compare."""
    schema, untyped = compile_schema(config)
    is_undirected = config.judge != "rules" and any(feature.better is None for feature in schema.judged)
    return bool(untyped) or bool(asked_features(schema)) or is_undirected


def _reading_prompts(config: EvalConfig, schema: FeatureSchema, size: int) -> list[Prompt]:
    """Make the prompts about a typical entry; code is read a second time with neutral names."""
    text = ("x = 1  # text\n" * (size // 14 + 1))[:size]
    views = ("full", "neutral") if config.submission_format == "code" or config.language else ("full",)
    task = FeatureQuestion.of("x" * STATEMENT_CHARS, config.language)
    by_view = [extraction_questions(schema, text, Subject("0x", "0x", "0x", view), task) for view in views]
    return [question.prompt for questions in by_view for question in questions]


def _typical_value(feature: Feature) -> Value:
    if feature.type == "enum":
        return max(feature.values, key=len)
    if feature.type == "boolean":
        return False
    return math.floor(feature.high) if feature.max is not None else 12_345
