"""Stage 2, asked about four at once: typed vectors before a judge, a full order as the answer.

The wall is that of a comparison: the poster's committed criteria, the meaning of the features, and four vectors in
canonical form, each of which holds numbers, booleans and members of closed enums only; the user part must match one
anchored grammar, or it is not asked. An answer is an order that names every letter exactly once, or there is none: no
tie is guessed, no letter filled in. Used only by schedules that ask for it; the specification's pair is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.config.eval_config import FeatureSchema
from clara_eval.core.errors import BadAnswer
from clara_eval.judge.comparison import Decision, VectorPrompts
from clara_eval.judge.reading import read_object, shown
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.judge.vector import JudgeVector
from clara_eval.judge.verdict import REASON_LENGTH

LETTERS = ("A", "B", "C", "D")
EQUAL_FACTS = "Their facts are the same."
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


def ordering_prompts(criteria: str, schema: FeatureSchema) -> VectorPrompts:
    return VectorPrompts.of("order", ("first", "second", "third", "fourth"), ORDER_SCHEMA, criteria, schema)


class OrderingJudge:
    """A language model that puts four in order."""

    def __init__(self, llm: StructuredLlm, criteria: str, schema: FeatureSchema) -> None:
        self._llm = llm
        self._prompts = ordering_prompts(criteria, schema)

    async def prefetch(self, groups: Sequence[Sequence[JudgeVector]]) -> None:
        """Be told a whole batch, as a judge of pairs is; of equal vectors nothing is asked."""
        await self._prompts.prefetch(self._llm, [group for group in groups if not are_equal(group)])

    async def order(self, vectors: Sequence[JudgeVector]) -> Decision[Ordered]:
        """The vectors in the order in which they are shown."""
        if are_equal(vectors):
            return Decision(Ordered(tuple(range(len(vectors))), EQUAL_FACTS), "", ())
        return Decision.of(await self._llm.ask(self._prompts.prompt(vectors), read_order))


def are_equal(vectors: Sequence[JudgeVector]) -> bool:
    return all(vector == vectors[0] for vector in vectors)


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
