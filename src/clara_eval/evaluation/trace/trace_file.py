"""The lines of a trace that lies in a file: one at a time, as often as they are asked for.

In: a file that somebody named, or what arrives in pieces, which waits in a file of its own. Out: the lines with their
endings. Must hold: only a line feed ends a line, as it was written; memory holds one line, never the text.
"""

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
        """The file of this name; what can be read only once, as a pipe can, waits in a file of its own."""
        file = path.open("rb")
        if file.seekable():
            return cls(file)
        with file:
            kept = TemporaryFile()  # noqa: SIM115 - whoever gets it closes it
            copyfileobj(file, kept)
        return cls(kept)

    @classmethod
    async def of(cls, pieces: AsyncIterable[str | bytes]) -> TraceFile | None:
        """What arrives in pieces, cut anywhere; None where nothing arrives."""
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
