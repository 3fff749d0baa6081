"""Keeps every answer a walk used, and every request that stayed unanswered, for the trace.

Wraps an asker without changing what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clara_eval.errors import Temporary
from clara_eval.judge.port import Asker, Foreseeing, PaidAnswer, Prompt, request_hash


@dataclass(slots=True)
class AnswerRecorder:
    answers: dict[str, PaidAnswer] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)

    def over(self, asker: Asker) -> Asker:
        return _Kept(self, asker)


@dataclass(frozen=True, slots=True)
class _Kept:
    keeping: AnswerRecorder
    asker: Asker

    @property
    def name(self) -> str:
        return self.asker.name

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        if isinstance(self.asker, Foreseeing):
            await self.asker.foresee(prompts)

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        try:
            paid = await self.asker.ask(prompt, attempt)
        except Temporary as outage:
            self.keeping.unanswered[request_hash(self.name, prompt, attempt)] = outage.message
            raise
        self.keeping.answers[paid.request] = paid
        return paid
