"""Stage 2, asked about four at once: typed vectors before a judge, a full order as the answer.

The wall is that of a comparison: the poster's committed criteria, the meaning of the features, and four vectors in
canonical form, each of which holds numbers, booleans and members of closed enums only; the user part must match one
anchored grammar, or it is not asked. An answer is an order that names every letter exactly once, or there is none: no
tie is guessed, no letter filled in. Used only by schedules that ask for it; the specification's pair is the default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from clara_eval.errors import BadAnswer
from clara_eval.eval_config import FeatureSchema
from clara_eval.hashing import plain_json
from clara_eval.judge.asking import TRIES, again_grammar, ask_until
from clara_eval.judge.comparison import describe, vector_grammar
from clara_eval.judge.port import Asker, Prompt
from clara_eval.judge.prompt_view import escaped, prompt_view
from clara_eval.judge.reading import read_object, shown
from clara_eval.judge.templates import template, template_hash
from clara_eval.judge.vector import JudgeVector
from clara_eval.judge.verdict import REASON_LENGTH

LETTERS = ("A", "B", "C", "D")
MAX_TOKENS = 400
_HOLES = ("first", "second", "third", "fourth")
ORDER_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "order": {
            "type": "array",
            "items": {"type": "string", "enum": list(LETTERS)},
            "description": "Every letter once, best first.",
        },
        "reason": {"type": "string", "description": "One brief sentence."},
    },
    "required": ["order", "reason"],
    "additionalProperties": False,
}
"""Within what strict modes of the providers accept; that every letter occurs once is checked here."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Positions as shown, best first; the reason is for people only and never goes into another prompt."""

    best_first: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class OrderDecision:
    """An order, or None with the reason why there is none. `requests` are the hashes of what was asked."""

    order: Ordered | None
    reason: str
    requests: tuple[str, ...]
    outage: bool = False
    pause_seconds: float | None = None
    """How long a judge that did not answer asks to be left alone."""


@dataclass(frozen=True, slots=True)
class OrderingPrompts:
    """Builds the prompts of one challenge; `system` is the same for all of them, so providers can cache it."""

    system: str
    grammar: re.Pattern[str]
    schema_json: str = field(default_factory=lambda: plain_json(ORDER_SCHEMA))
    template: str = field(default_factory=lambda: template_hash("order.system", "order.user"))

    @classmethod
    def of(cls, criteria: str, schema: FeatureSchema) -> OrderingPrompts:
        system = template("order.system").fill(
            criteria=escaped(prompt_view(criteria).text),
            features="\n".join(describe(feature) for feature in schema.judged),
        )
        vector = vector_grammar(schema)
        asked = template("order.user").pattern(**dict.fromkeys(_HOLES, vector))
        return cls(system, re.compile(rf"\A{asked}{again_grammar()}\Z", re.ASCII))

    def prompt(self, vectors: Sequence[JudgeVector]) -> Prompt:
        texts = [vector.to_json() for vector in vectors]
        user = template("order.user").fill(**dict(zip(_HOLES, texts, strict=True)))
        if not self.grammar.fullmatch(user):
            raise AssertionError("An ordering prompt does not match its grammar: it must not be asked.")
        return Prompt("comparison", self.system, user, self.schema_json, MAX_TOKENS, self.template)


class OrderingJudge:
    """A language model that puts four in order."""

    def __init__(self, asker: Asker, criteria: str, schema: FeatureSchema, tries: int = TRIES) -> None:
        self._asker, self._tries = asker, tries
        self._prompts = OrderingPrompts.of(criteria, schema)

    async def foresee(self, groups: Sequence[Sequence[JudgeVector]]) -> None:
        """Let the asker know what these questions will be; equal ones once, in a fixed order."""
        await self._asker.foresee(list(dict.fromkeys(self._prompts.prompt(group) for group in groups)))

    async def order(self, vectors: Sequence[JudgeVector]) -> OrderDecision:
        """The vectors in the order in which they are shown."""
        asked = await ask_until(self._asker, self._prompts.prompt(vectors), read_order, self._tries)
        pause = asked.outage.retry_after_seconds if asked.outage else None
        return OrderDecision(asked.value, asked.reason, asked.requests, asked.outage is not None, pause)


def read_order(text: str) -> Ordered:
    """The order in a model's answer."""
    answer = read_object(text, ("order", "reason"))
    order, reason = answer["order"], answer["reason"]
    if not isinstance(order, list) or not all(isinstance(letter, str) for letter in order):
        raise BadAnswer("The order is not a list of letters.")
    if sorted(order) != list(LETTERS):
        raise BadAnswer("The order does not name each of A, B, C, D exactly once.")
    if not isinstance(reason, str):
        raise BadAnswer("The reason is not a text.")
    return Ordered(tuple(LETTERS.index(letter) for letter in order), shown(reason, REASON_LENGTH))
