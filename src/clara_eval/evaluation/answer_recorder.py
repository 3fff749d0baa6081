"""Answers of a round, kept in a file until the trace is written: signed ones are too large for memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from tempfile import TemporaryFile

from clara_eval.core.codec import JsonCodec
from clara_eval.judge.port import PaidAnswer

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
