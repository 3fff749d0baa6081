"""Typed feature vectors, and judges (models, or rules without a model) that compare two or order four.

Invariant: every prompt matches one anchored grammar, so it holds no text of a submitter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Literal, Protocol, TypeGuard

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.errors import BadAnswer, BadInput, ConfigError
from clara_eval.core.hashing import plain_json
from clara_eval.core.model import LARGEST_NUMBER
from clara_eval.judge.port import AnswerCut, Prompt
from clara_eval.judge.reading import escaped, object_schema, prompt_view, read_object, shown, template, template_hash
from clara_eval.judge.structured_llm import AGAIN_GRAMMAR, AskOutcome, StructuredLlm

Value = int | float | bool | str | None
STEPS = 1000
"""Steps to which a number with a range is rounded; without a range it keeps three significant digits.

Integers keep every unit if a tool measured them or if their range is at most this wide, else three digits.
Numbers that a tool measured on a wider range keep four digits, because steps would make neighbours equal.
"""


@dataclass(frozen=True, slots=True)
class JudgeVector:
    """Values in the order of the schema; only `make_vector` builds one."""

    values: tuple[tuple[str, Value], ...]

    def as_dict(self) -> dict[str, Value]:
        return dict(self.values)


@lru_cache(maxsize=4096)
def _vector_json(vector: JudgeVector) -> str:
    return plain_json(vector.as_dict())


def make_vector(schema: FeatureSchema, values: Mapping[str, Value]) -> JudgeVector:
    """Build a vector of these values, with None for missing ones. Raises BadInput for a wrong type."""
    return JudgeVector(tuple((f.name, checked(f, values.get(f.name))) for f in schema.judged))


def checked(feature: Feature, value: Value) -> Value:
    """Return the value, quantised for a prompt. Raises BadInput if it is not of the feature's type."""
    if not is_of_type(value, feature):
        raise BadInput(
            f"{value!r} is not a value of the {feature.type} feature {feature.name}.",
            path=feature.name,
            value=value,
            remedy="Only numbers, booleans and the listed enum values reach the judge.",
        )
    return value if value is None or isinstance(value, (bool, str)) else quantise(feature, value)


def is_of_type(value: object, feature: Feature) -> TypeGuard[Value]:
    """Return whether the value is None or of the feature's type; a `text` feature has no values."""
    if value is None or isinstance(value, bool):
        return value is None or feature.type == "boolean"
    if isinstance(value, str):
        return feature.type == "enum" and value in feature.values
    return isinstance(value, (int, float)) and feature.type in ("number", "integer")


def quantise(feature: Feature, value: float) -> int | float:
    if not math.isfinite(value):
        raise BadInput(f"{value} is not a finite number.", path=feature.name, value=str(value))
    clamped = min(max(value, feature.low), feature.high)
    if feature.type == "integer":
        exact = feature.source == "measured" or feature.high - feature.low <= STEPS
        return round(clamped if exact else float(f"{clamped:.3g}"))
    if feature.source == "measured" and feature.high - feature.low > STEPS:
        return float(f"{clamped:.4g}") + 0.0
    if feature.min is not None and feature.max is not None and feature.max > feature.min:
        step = (feature.max - feature.min) / STEPS
        clamped = feature.min + round((clamped - feature.min) / step) * step
        return float(f"{clamped:.6g}") + 0.0
    return float(f"{clamped:.3g}") + 0.0  # adding zero turns -0.0 into 0.0: equal values, equal bytes


Side = Literal["A", "B", "tie"]
REASON_LENGTH = 300
_REASON = {"type": "string", "description": "One brief sentence."}
VERDICT_SCHEMA = object_schema(
    winner={"type": "string", "enum": ["A", "B", "tie"]},
    confidence={"type": "number", "description": "From 0.0 to 1.0."},
    reason=_REASON,
)
"""Only what the providers' strict modes accept; `read_verdict` checks the range of `confidence`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    winner: Side
    confidence: float
    reason: str  # for people only: it never goes into another prompt


def read_verdict(text: str) -> Verdict:
    answer = read_object(text, ("winner", "confidence", "reason"))
    winner, confidence = answer["winner"], answer["confidence"]
    if winner not in ("A", "B", "tie"):
        raise BadAnswer("The winner is not A, B or tie.")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 <= confidence <= 1:
        raise BadAnswer("The confidence is not a number from 0 to 1.")
    return Verdict(winner, float(confidence), _read_reason(answer["reason"]))


def _read_reason(value: object) -> str:
    if not isinstance(value, str):
        raise BadAnswer("The reason is not a text.")
    return shown(value, REASON_LENGTH)


MAX_TOKENS = 400
_PLACEHOLDERS = {"compare": ("first", "second"), "order": ("first", "second", "third", "fourth")}
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"


Decision = AskOutcome[Verdict]  # without a verdict it is neither a loss nor a tie
EQUAL = AskOutcome(Verdict("tie", 1.0, "The facts are equal: a tie, and nobody was asked."), "", ())


class Judge(Protocol):
    """Compares two vectors; `first` is shown as A."""

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None: ...
    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision: ...


MOST_PREPARED = 10_000  # prompts kept between prefetch and question, about 10 MB


class VectorPrompts:
    """Prompts of one challenge, from the files `NAME.system` and `NAME.user` (a placeholder per vector)."""

    def __init__(self, name: str, criteria: str, schema: FeatureSchema) -> None:
        self._system = template(f"{name}.system").fill(  # constant, so that providers can cache it
            criteria=escaped(prompt_view(criteria).text),
            features="\n".join(describe(feature) for feature in schema.judged),
        )
        self._name, self.grammar = name, comparison_grammar(schema, name)
        self._schema_json = plain_json(VERDICT_SCHEMA if name == "compare" else ORDER_SCHEMA)
        self._files = template_hash(f"{name}.system", f"{name}.user")
        self._prepared: dict[tuple[JudgeVector, ...], Prompt] = {}  # made by `prefetch`, each used once

    def prompt(self, vectors: Sequence[JudgeVector]) -> Prompt:
        return self._prepared.pop(tuple(vectors), None) or self._make_prompt(vectors)

    def _make_prompt(self, vectors: Sequence[JudgeVector]) -> Prompt:
        texts = (_vector_json(vector) for vector in vectors)
        user = template(f"{self._name}.user").fill(**dict(zip(_PLACEHOLDERS[self._name], texts, strict=True)))
        if not self.grammar.fullmatch(user):
            raise AssertionError("A prompt about vectors does not match its grammar: it must not be asked.")
        return Prompt("comparison", self._system, user, self._schema_json, MAX_TOKENS, self._files)

    async def prefetch(self, llm: StructuredLlm, questions: Sequence[Sequence[JudgeVector]]) -> None:
        made = {tuple(vectors): self._make_prompt(vectors) for vectors in questions if not are_equal(vectors)}
        self._prepared = dict(islice(made.items(), MOST_PREPARED))
        await llm.prefetch(list(made.values()))


def comparison_prompt(criteria: str, schema: FeatureSchema, first: JudgeVector, second: JudgeVector) -> Prompt:
    return VectorPrompts("compare", criteria, schema).prompt((first, second))


def comparison_grammar(schema: FeatureSchema, name: str = "compare") -> re.Pattern[str]:
    """Return the pattern of a user prompt: the template's text with typed vectors of judged features."""
    judged = sorted(schema.judged, key=lambda f: f.name)
    vector = r"\{" + ",".join(f'"{re.escape(feature.name)}":{_value_pattern(feature)}' for feature in judged) + r"\}"
    asked = template(f"{name}.user").pattern(**dict.fromkeys(_PLACEHOLDERS[name], vector))
    return re.compile(rf"\A{asked}{AGAIN_GRAMMAR}\Z", re.ASCII)


def _value_pattern(feature: Feature) -> str:
    if feature.type == "boolean":
        return "(?:true|false|null)"
    if feature.type == "enum":
        return "(?:" + "|".join([f'"{re.escape(value)}"' for value in feature.values] + ["null"]) + ")"
    return f"(?:{_NUMBER}|null)"


def describe(feature: Feature) -> str:
    words = escaped(prompt_view(feature.description).text.replace("\n", " "))
    kind = {"enum": f"one of {', '.join(feature.values)}", "boolean": "true or false", "text": "a short text"}.get(
        feature.type, feature.type
    )
    span = f" from {feature.min:g} to {feature.max:g}" if feature.min is not None and feature.max is not None else ""
    better = f"; {feature.better} is better" if feature.better else ""
    weight = f"; weight {feature.weight:g}" if feature.weight != 1 else ""
    anchors = "".join(
        f"\n    {int(feature.low) + step}: {escaped(prompt_view(anchor).text)}"
        for step, anchor in enumerate(feature.anchors)
    )
    return f"- {feature.name} ({kind}{span}{better}{weight}): {words}{anchors}"


class ModelJudge:
    def __init__(self, llm: StructuredLlm, criteria: str, schema: FeatureSchema) -> None:
        self._llm, self.name = llm, llm.name
        self._prompts = VectorPrompts("compare", criteria, schema)

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        await self._prompts.prefetch(self._llm, pairs)

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision:
        if first == second:
            return EQUAL
        return await self._llm.ask(self._prompts.prompt((first, second)), read_verdict)


LETTERS = ("A", "B", "C", "D")
ORDER_SCHEMA = object_schema(
    order={
        "type": "array",
        "items": {"type": "string", "enum": list(LETTERS)},
        "description": "Every letter once, best first.",
    },
    reason=_REASON,
)
"""Only what the providers' strict modes accept; `read_order` checks that every letter occurs once."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Positions as shown, best first; the reason is for people only and never goes into another prompt."""

    best_first: tuple[int, ...]
    reason: str


class OrderingJudge:
    def __init__(self, llm: StructuredLlm, criteria: str, schema: FeatureSchema) -> None:
        self._llm, self._prompts = llm, VectorPrompts("order", criteria, schema)

    async def prefetch(self, groups: Sequence[Sequence[JudgeVector]]) -> None:
        await self._prompts.prefetch(self._llm, groups)

    async def order(self, vectors: Sequence[JudgeVector]) -> AskOutcome[Ordered]:
        if are_equal(vectors):
            return AskOutcome(Ordered(tuple(range(len(vectors))), "Their facts are the same."), "", ())
        asked = await self._llm.ask(self._prompts.prompt(vectors), read_order)
        is_cut = isinstance(asked.outage, AnswerCut)  # no outage: a judge that cannot order is asked for pairs
        return replace(asked, outage=None) if is_cut else asked


def are_equal(vectors: Sequence[JudgeVector]) -> bool:
    return all(vector == vectors[0] for vector in vectors)


def read_order(text: str) -> Ordered:
    answer = read_object(text, ("order", "reason"))
    order = answer["order"]
    if not isinstance(order, list) or not all(isinstance(letter, str) for letter in order):
        raise BadAnswer("The order is not a list of letters.")
    if sorted(order) != list(LETTERS):
        raise BadAnswer("The order does not name each of A, B, C, D exactly once.")
    return Ordered(tuple(LETTERS.index(letter) for letter in order), _read_reason(answer["reason"]))


TIE_BAND = 0.0001  # difference in merit (from 0 to 1) up to which two vectors tie
WORST_KNOWN = 0.05  # goodness of the worst known value; an unknown one has 0
WIDEST_LINEAR = 100  # goodness is linear in features with at most this range, and logarithmic in wider ones


@dataclass(frozen=True, slots=True)
class RulesJudge:
    schema: FeatureSchema
    name: str = "rules"

    def __post_init__(self) -> None:
        if not math.fsum(feature.weight for feature in self.schema.judged) > 0:
            message = "The rules cannot judge this config: no feature that reaches the judge has a weight above 0."
            raise ConfigError(message, remedy="Give at least one number, boolean or enum feature a positive weight.")
        if names := [feature.name for feature in self.schema.judged if feature.better is None]:
            raise ConfigError(
                f"The rules cannot judge this config, because these features have no direction: {', '.join(names)}.",
                remedy='Give each feature "better": "higher" or "lower", or set CLARA_JUDGES to a model.',
            )

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        """Do nothing: rules need no model."""

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision:
        return self.decide(first, second)

    def decide(self, first: JudgeVector, second: JudgeVector) -> Decision:
        return AskOutcome(self.verdict(first, second), "", ())

    def verdict(self, first: JudgeVector, second: JudgeVector) -> Verdict:
        gap = self.merit(first) - self.merit(second)
        if abs(gap) <= TIE_BAND:
            return Verdict("tie", 0.5, "Their merits are the same within a ten-thousandth.")
        winner: Side = "A" if gap > 0 else "B"
        confidence = round(0.5 + 0.5 * min(1.0, abs(gap) / 0.5), 3)
        return Verdict(winner, confidence, self._explain(winner, first, second))

    def merit(self, vector: JudgeVector) -> float:
        values, judged = vector.as_dict(), self.schema.judged
        weights = math.fsum(feature.weight for feature in judged)
        return math.fsum(f.weight * goodness(f, values[f.name]) for f in judged) / weights

    def _explain(self, winner: Side, first: JudgeVector, second: JudgeVector) -> str:
        better, worse = (first.as_dict(), second.as_dict()) if winner == "A" else (second.as_dict(), first.as_dict())
        judged = self.schema.judged
        gains = [(f.weight * (goodness(f, better[f.name]) - goodness(f, worse[f.name])), f.name) for f in judged]
        strongest = [name for gain, name in sorted(gains, key=lambda pair: (-pair[0], pair[1])) if gain > 0][:3]
        return "; ".join(f"{name} {_format(better[name])} against {_format(worse[name])}" for name in strongest)


def goodness(feature: Feature, value: Value) -> float:
    """Map a feature's value to a number: unknown to 0, the worst to `WORST_KNOWN`, the best to 1."""
    if value is None:
        return 0.0
    share = min(1.0, max(0.0, _scale_position(feature, value)))
    return WORST_KNOWN + (1.0 - WORST_KNOWN) * (share if feature.better == "higher" else 1.0 - share)


def _scale_position(feature: Feature, value: Value) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return feature.values.index(value) / max(1, len(feature.values) - 1)
    assert value is not None, "unknown values are handled before"
    if feature.min is None:
        # Without a lower bound each side of zero has half of the scale.
        return 0.5 + math.copysign(_log_position(abs(value), LARGEST_NUMBER), value) / 2
    above, span = value - feature.min, feature.high - feature.min
    return above / span if span <= WIDEST_LINEAR else _log_position(above, span)


def _log_position(above: float, span: float) -> float:
    return math.log1p(max(0.0, above)) / math.log1p(span)


def _format(value: Value) -> str:
    return "unknown" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
