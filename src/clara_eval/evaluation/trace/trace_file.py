"""The lines of a trace in a file: one in memory at a time, ended by a line feed only."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Self

from clara_eval.core.errors import BadTrace


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
