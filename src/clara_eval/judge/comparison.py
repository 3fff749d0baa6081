"""Compare two typed vectors: every prompt matches one anchored grammar, so nothing a submitter wrote is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol

from typing_extensions import TypeVar

from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.core.hashing import plain_json
from clara_eval.judge.port import Prompt
from clara_eval.judge.prompt_view import escaped, prompt_view
from clara_eval.judge.structured_llm import AskOutcome, StructuredLlm, again_grammar
from clara_eval.judge.templates import template, template_hash
from clara_eval.judge.vector import JudgeVector
from clara_eval.judge.verdict import VERDICT_SCHEMA, Verdict, read_verdict

MAX_TOKENS = 400
PAIR = ("first", "second")
MOST_PREPARED = 10_000
"""Prompts kept from the look-up to the question: some ten megabytes."""
V = TypeVar("V", default=Verdict)
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"


@dataclass(frozen=True, slots=True)
class Decision(Generic[V]):
    """A verdict, or None with the reason: not a loss, not a tie. `requests` are the hashes of what was asked."""

    verdict: V | None
    reason: str
    requests: tuple[str, ...]
    outage: bool = False
    """No verdict because of an outage: later there may be one."""
    pause_seconds: float | None = None
    """How long a judge that did not answer asks to be left alone."""

    @classmethod
    def of(cls, asked: AskOutcome[V]) -> Decision[V]:
        pause = asked.outage.retry_after_seconds if asked.outage else None
        return cls(asked.value, asked.reason, asked.requests, asked.outage is not None, pause)


EQUAL = Decision(Verdict("tie", 1.0, "The facts are equal: a tie, and nobody was asked."), "", ())


class Judge(Protocol):
    """Compares two vectors; `first` is shown as A."""

    @property
    def name(self) -> str: ...

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        """Prepare for these pairs, for example look all of them up at once."""
        ...

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision: ...


@dataclass(frozen=True, slots=True)
class VectorPrompts:
    """Prompts of one challenge. `system` is constant, so providers can cache it."""

    name: str
    """Of the prompt files: `NAME.system` and `NAME.user`, which has a hole for each vector."""
    holes: tuple[str, ...]
    system: str
    grammar: re.Pattern[str]
    schema_json: str
    template: str
    prepared: dict[tuple[JudgeVector, ...], Prompt] = field(default_factory=dict, compare=False)
    """Prompts that were made to be looked up and are asked next; each is handed out once."""

    @classmethod
    def of(
        cls, name: str, holes: tuple[str, ...], answer: Mapping[str, object], criteria: str, schema: FeatureSchema
    ) -> VectorPrompts:
        system = template(f"{name}.system").fill(
            criteria=escaped(prompt_view(criteria).text),
            features="\n".join(describe(feature) for feature in schema.judged),
        )
        hashed = template_hash(f"{name}.system", f"{name}.user")
        return cls(name, holes, system, user_grammar(name, holes, schema), plain_json(answer), hashed)

    def prompt(self, vectors: Sequence[JudgeVector]) -> Prompt:
        prompt = self.prepared.pop(tuple(vectors), None) or self._made(vectors)
        if not self.prepared:
            self.prepared.clear()  # its table, too: it has room for the largest batch
        return prompt

    def _made(self, vectors: Sequence[JudgeVector]) -> Prompt:
        texts = (vector.to_json() for vector in vectors)
        user = template(f"{self.name}.user").fill(**dict(zip(self.holes, texts, strict=True)))
        if not self.grammar.fullmatch(user):
            raise AssertionError("A prompt about vectors does not match its grammar: it must not be asked.")
        return Prompt("comparison", self.system, user, self.schema_json, MAX_TOKENS, self.template)

    async def prefetch(self, llm: StructuredLlm, questions: Sequence[Sequence[JudgeVector]]) -> None:
        if not questions:
            return
        made = {tuple(vectors): self._made(vectors) for vectors in questions}
        self.prepared.clear()
        self.prepared.update(islice(made.items(), MOST_PREPARED))
        await llm.prefetch(list(dict.fromkeys(made.values())))


def comparison_prompts(criteria: str, schema: FeatureSchema) -> VectorPrompts:
    return VectorPrompts.of("compare", PAIR, VERDICT_SCHEMA, criteria, schema)


def comparison_prompt(criteria: str, schema: FeatureSchema, first: JudgeVector, second: JudgeVector) -> Prompt:
    return comparison_prompts(criteria, schema).prompt((first, second))


def comparison_grammar(schema: FeatureSchema) -> re.Pattern[str]:
    """Return the only shape that the user part of a comparison can have."""
    return user_grammar("compare", PAIR, schema)


def user_grammar(name: str, holes: tuple[str, ...], schema: FeatureSchema) -> re.Pattern[str]:
    """Return a pattern of the prompt file's words with typed facts between them."""
    asked = template(f"{name}.user").pattern(**dict.fromkeys(holes, vector_grammar(schema)))
    return re.compile(rf"\A{asked}{again_grammar()}\Z", re.ASCII)


def vector_grammar(schema: FeatureSchema) -> str:
    """Return a pattern of one vector: the judged features in order, each with a value of its type."""
    fields = ",".join(
        f'"{re.escape(feature.name)}":{_values(feature)}' for feature in sorted(schema.judged, key=lambda f: f.name)
    )
    return r"\{" + fields + r"\}"


def _values(feature: Feature) -> str:
    if feature.type == "boolean":
        return "(?:true|false|null)"
    if feature.type == "enum":
        return "(?:" + "|".join([f'"{re.escape(value)}"' for value in feature.values] + ["null"]) + ")"
    return f"(?:{_NUMBER}|null)"


def describe(feature: Feature) -> str:
    """Describe a feature in one line."""
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
    """A language model as judge of one challenge."""

    def __init__(self, llm: StructuredLlm, criteria: str, schema: FeatureSchema) -> None:
        self._llm = llm
        self._prompts = comparison_prompts(criteria, schema)

    @property
    def name(self) -> str:
        return self._llm.name

    async def prefetch(self, pairs: Sequence[tuple[JudgeVector, JudgeVector]]) -> None:
        await self._prompts.prefetch(self._llm, [pair for pair in pairs if pair[0] != pair[1]])

    async def compare(self, first: JudgeVector, second: JudgeVector) -> Decision:
        if first == second:
            return EQUAL
        prompt = self._prompts.prompt((first, second))
        return Decision.of(await self._llm.ask(prompt, read_verdict))
