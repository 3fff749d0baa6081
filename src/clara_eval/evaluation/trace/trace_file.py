"""The lines of a trace, its entries and the answers for it, kept in files: one in memory at a time."""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Self

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadTrace
from clara_eval.evaluation.trace.document import Notes, read_entries
from clara_eval.judge.port import PaidAnswer


class TraceFile:
    """Used in a `with`, which closes the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def at(cls, path: Path) -> TraceFile:
        """Open the file of this name; one that can be read only once, as a pipe, is copied first."""
        file = path.open("rb")
        if file.seekable():
            return cls(file)
        with file:
            kept = TemporaryFile()  # noqa: SIM115 - whoever gets it closes it
            copyfileobj(file, kept)
        return cls(kept)

    @classmethod
    async def of(cls, pieces: AsyncIterable[str | bytes]) -> TraceFile | None:
        """Keep what arrives in pieces, cut anywhere; None if nothing arrives."""
        file = TemporaryFile()  # noqa: SIM115 - whoever gets it closes it
        try:
            async for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
            is_empty = not file.tell()
        except BaseException:
            file.close()
            raise
        if is_empty:
            file.close()
            return None
        return cls(file)

    def __iter__(self) -> Iterator[str]:
        """Every line, from the first; BadTrace for one that is not UTF-8."""
        number = place = 0
        while True:
            self._file.seek(place)  # two may read at the same time
            line = self._file.readline()
            if not line:
                return
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as bad:
                raise BadTrace(
                    f"Line {number + 1} is not UTF-8 (byte {place + bad.start} of the file).",
                    entry=f"#{number - 1}" if number else "format",
                ) from None
            number, place = number + 1, place + len(line)
            yield text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


class Evidence(Mapping[str, object]):
    """The body of each entry by its key; of several with one key the last, as in any JSON object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises BadTrace for the first line that is not as it was written."""
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
        self._ends = array("Q", [0])
        self._seq_of: dict[str, int] = {}
        self._single: dict[str, object] = {}
        """Of those asked for: what concerns the whole round and is asked for again and again."""
        self.notes = Notes()
        self.digest = ""
        for entry in read_entries(self._kept(lines), self.notes):
            self._seq_of[entry.key] = entry.seq
            self.digest = entry.hash

    @property
    def count(self) -> int:
        """Of the entries; there may be fewer keys."""
        return max(0, len(self._ends) - 3)  # the file's first and last lines are no entries

    def at(self, seq: int) -> tuple[str, object]:
        begin, end = self._ends[seq + 1], self._ends[seq + 2]
        self._file.seek(begin)
        line = self._file.read(end - begin).decode()
        entry = json.loads(line.rstrip(",\n"))["entry"]
        return entry["key"], entry["body"]

    def __getitem__(self, key: str) -> object:
        if key in self._single:
            return self._single[key]
        body = self.at(self._seq_of[key])[1]
        if "/" not in key:
            self._single[key] = body
        return body

    def __iter__(self) -> Iterator[str]:
        return iter(self._seq_of)

    def __len__(self) -> int:
        return len(self._seq_of)

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            written = self._file.write(line.encode())
            self._ends.append(self._ends[-1] + written)
            yield line


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
