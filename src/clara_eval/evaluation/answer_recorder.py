"""Keep every answer that a run used, and every request that stayed unanswered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import Temporary
from clara_eval.evaluation.sources import ModelSource
from clara_eval.judge.attestation import KeyReport
from clara_eval.judge.outages import GoneWithout
from clara_eval.judge.port import Asker, PaidAnswer, Prompt, request_hash

_PAID = JsonCodec(PaidAnswer)


class KeptAnswers(Mapping[str, PaidAnswer]):
    """Answers by request, read one at a time from a file; memory holds where each lies."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def keep(self, paid: PaidAnswer) -> None:
        """One request has one answer, however often it is asked."""
        if paid.request in self._places:
            return
        self._file.seek(self._end)
        length = self._file.write(_PAID.text(paid).encode())
        self._places[paid.request] = self._end, length
        self._end += length

    def __getitem__(self, request: str) -> PaidAnswer:
        begin, length = self._places[request]
        self._file.seek(begin)
        return _PAID.read_text(self._file.read(length).decode())

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(slots=True)
class AnswerRecorder:
    closed: Mapping[str, str]
    """What a finished run left unanswered: asked again, it would give another result from the same evidence."""
    answers: KeptAnswers = field(default_factory=KeptAnswers)
    unanswered: dict[str, str] = field(default_factory=dict)

    def over(self, asker: Asker) -> Asker:
        return _Recorded(self, asker)

    async def key_reports(self, models: ModelSource) -> tuple[KeyReport, ...]:
        """The attestation of every key that signed an answer, in order of judge and key."""
        signers = {(paid.llm, paid.answer.signed.key) for paid in self.answers.values() if paid.answer.signed}
        return tuple([await models.key_report(judge, key) for judge, key in sorted(signers)])


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
        self.recorder.answers.keep(paid)
        return paid

    def _check_open(self, prompt: Prompt, attempt: int) -> None:
        closed = self.recorder.closed
        if closed and (said := closed.get(request_hash(self.name, prompt, attempt))) is not None:
            raise GoneWithout(said)
