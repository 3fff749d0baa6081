"""Keeps every answer a walk used, and every request that stayed unanswered, for the trace.

Wraps askers without changing what they say. With several askers the first that answers counts: the next one takes over
when a model is out of reach, and the answer is kept under the model that really gave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clara_eval.errors import Temporary
from clara_eval.judge.port import Asker, PaidAnswer, Prompt, request_hash


@dataclass(slots=True)
class Keeping:
    answers: dict[str, PaidAnswer] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)

    def over(self, askers: Sequence[Asker]) -> Asker:
        return _Kept(self, tuple(askers))


@dataclass(frozen=True, slots=True)
class _Kept:
    keeping: Keeping
    askers: tuple[Asker, ...]

    @property
    def name(self) -> str:
        return self.askers[0].name

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        """The first answer there is; with none, the outage of the last asker goes on."""
        for position, asker in enumerate(self.askers):
            try:
                paid = await asker.ask(prompt, attempt)
            except Temporary as outage:
                if position == len(self.askers) - 1:
                    self.keeping.unanswered[request_hash(self.name, prompt, attempt)] = outage.message
                    raise
                continue
            self.keeping.answers[paid.request] = paid
            return paid
        raise AssertionError("there is always an asker")
