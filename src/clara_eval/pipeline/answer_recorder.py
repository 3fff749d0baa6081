"""The one frame around a walk's questions: keeps every answer it used and every request that stayed unanswered.

Changes nothing that an asker says. What a finished walk left unanswered (`closed`) is not asked again, or another
result would come out of the same evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clara_eval.errors import Temporary
from clara_eval.judge.port import Asker, PaidAnswer, Prompt, request_hash


@dataclass(slots=True)
class AnswerRecorder:
    closed: Mapping[str, str]
    answers: dict[str, PaidAnswer] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)

    def over(self, asker: Asker) -> Asker:
        return _Recorded(self, asker)


@dataclass(frozen=True, slots=True)
class _Recorded:
    recorder: AnswerRecorder
    asker: Asker

    @property
    def name(self) -> str:
        return self.asker.name

    async def foresee(self, prompts: Sequence[Prompt]) -> None:
        closed = self.recorder.closed
        await self.asker.foresee([p for p in prompts if not closed or request_hash(self.name, p) not in closed])

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:
        try:
            self._check_open(prompt, attempt)
            paid = await self.asker.ask(prompt, attempt)
        except Temporary as outage:
            self.recorder.unanswered[request_hash(self.name, prompt, attempt)] = outage.message
            raise
        self.recorder.answers[paid.request] = paid
        return paid

    def _check_open(self, prompt: Prompt, attempt: int) -> None:
        closed = self.recorder.closed
        if closed and (said := closed.get(request_hash(self.name, prompt, attempt))) is not None:
            raise Temporary(said)
