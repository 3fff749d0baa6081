"""Pairwise results from a CSV file: columns `left`, `right`, `winner`; others are ignored, `judge` is used if present.

In comes text that strangers wrote; out go items in canonical order (by name) and results in file order. A bad row is
refused with file, line, value and remedy. A plain file (ASCII without quotes and blanks, the same columns in every
row, no judges) is read as columns of bytes, ten times as fast; anything else, and everything bad, row by row. Both ways
give the same.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from sys import intern

import numpy as np
import numpy.typing as npt

from clara_eval.core.errors import BadInput
from clara_eval.ranking.results import Result, Winner
from clara_eval.ranking.tally import HALF_POINTS, Ints, Tally, tally

VERDICTS: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
WINNERS: dict[int, Winner] = {points: winner for winner, points in HALF_POINTS.items()}
COLUMNS = ("left", "right", "winner")
UNUSUAL = (b'"', b"\x7f", *(bytes([code]) for code in range(33) if code not in b"\r\n"))
WORD, WIDEST = 8, 64  # bytes
KEPT = np.frombuffer(b"".join(bytes(k * [255] + (WORD - k) * [0]) for k in range(WORD + 1)), dtype=np.uint64)
MIX = np.uint64(0x9E3779B97F4A7C15)
SAMPLE = 50_000  # rows that are enough to have met nearly every name


@dataclass(frozen=True, slots=True)
class PairwiseTable:
    """What a file holds."""

    table: Tally
    """In file order."""

    @property
    def items(self) -> tuple[str, ...]:
        return self.table.items

    @property
    def results(self) -> tuple[Result, ...]:
        """Row by row."""
        names, judges, table = self.items, self.table.judges, self.table
        columns = (table.first.tolist(), table.second.tolist(), table.half_points.tolist(), table.judge.tolist())
        return tuple(Result(names[a], names[b], WINNERS[h], judges[g]) for a, b, h, g in zip(*columns, strict=True))


def read_pairwise(path: Path) -> PairwiseTable:
    """The whole file, checked row by row."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror}.", path=str(path), remedy="Check the name.") from bad
    except UnicodeDecodeError as bad:
        raise BadInput(
            f"{path} is not UTF-8 text (byte {bad.start}).", path=str(path), remedy="Save it as UTF-8."
        ) from bad
    plain = _plain(str(path), content)
    if plain is not None:
        return PairwiseTable(plain)
    results = tuple(_results(str(path), StringIO(text, newline="")))
    if not results:
        raise BadInput(f"{path} has no results.", path=str(path), remedy="Add rows under the header left,right,winner.")
    items = tuple(sorted({result.first for result in results} | {result.second for result in results}))
    return PairwiseTable(tally(items, results, in_given_order=True))


def _plain(name: str, content: bytes) -> Tally | None:
    """The file as columns, or None if it has to be read row by row."""
    head, line_end, body = content.partition(b"\n")
    end = b"\r\n" if head.endswith(b"\r") else b"\n"
    returns = body.count(b"\n") if end == b"\r\n" else 0
    if not line_end or not body or (body.count(b"\r\n"), body.count(b"\r")) != (returns, returns):
        return None
    if not content.isascii() or any(mark in content for mark in UNUSUAL):
        return None
    columns = head.decode().strip().split(",")
    left, right, winner, judge = _header(name, columns)
    cells = _Bytes.of(body if body.endswith(end) else body + end, len(columns), len(end))
    if cells is None or judge >= 0:
        return None
    half_points = cells.verdicts(winner)
    named = cells.names(left, right)
    if half_points is None or named is None:
        return None
    items, first, second = named
    if np.any(first == second):
        return None
    return Tally(items, ("",), first, second, np.zeros_like(first), half_points)


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A file as bytes, and where each cell of it begins and ends: one row each."""

    data: npt.NDArray[np.uint8]
    begins: Ints
    ends: Ints

    @classmethod
    def of(cls, body: bytes, columns: int, line_end: int) -> _Bytes | None:
        """None unless every row has so many cells."""
        data = np.frombuffer(body + bytes(WIDEST), dtype=np.uint8)
        stops = np.flatnonzero((data == ord(",")) | (data == ord("\n")))
        if len(stops) % columns or np.any(data[stops[columns - 1 :: columns]] != ord("\n")):
            return None
        if np.count_nonzero(data == ord("\n")) * columns != len(stops):
            return None
        begins = np.concatenate(([0], stops[:-1] + 1)).reshape(-1, columns)
        ends = stops.reshape(-1, columns).copy()
        ends[:, -1] -= line_end - 1
        return cls(data, begins, ends)

    def words(self, column: int) -> npt.NDArray[np.uint64] | None:
        """Each cell of a column as whole words, filled up with zeros; None if one is empty or too wide."""
        begin, length = self.begins[:, column], self.ends[:, column] - self.begins[:, column]
        width = int(length.max())
        if width > WIDEST or int(length.min()) < 1:
            return None
        # Every eight bytes of the file as a word, whatever they begin with; then what lies behind the cell is cut off.
        every = np.ndarray(len(self.data) - WORD + 1, np.uint64, self.data.data, strides=(1,))
        found = np.empty((len(begin), -(-width // WORD)), dtype=np.uint64)
        for word in range(found.shape[1]):
            rest = np.clip(length - word * WORD, 0, WORD)
            found[:, word] = every[begin + word * WORD] & KEPT[rest]
        return found

    def verdicts(self, column: int) -> Ints | None:
        """Half points of the left one; None if one is written in another way."""
        words = self.words(column)
        if words is None or words.shape[1] != 1:
            return None
        found = np.full(len(words), -1, dtype=np.int64)
        for text, verdict in VERDICTS.items():
            found[words[:, 0] == _word(text)] = HALF_POINTS[verdict]
        return None if np.any(found < 0) else found

    def names(self, left: int, right: int) -> tuple[tuple[str, ...], Ints, Ints] | None:
        """Sorted names, and the number of the left and the right one in each row."""
        sides = [self.words(column) for column in (left, right)]
        if any(side is None for side in sides):
            return None
        width = max(side.shape[1] for side in sides if side is not None)
        both = np.zeros((2 * len(self.begins), width), dtype=np.uint64)
        for start, side in zip((0, len(self.begins)), sides, strict=True):
            if side is not None:
                both[start : start + len(side), : side.shape[1]] = side
        mixed = both[:, 0].copy()
        for k in range(1, width):
            mixed = mixed * MIX + both[:, k]
        marks, number = _numbered(mixed)
        sample = np.empty(len(marks), dtype=np.int64)
        sample[number] = np.arange(len(number))
        if width > 1 and not np.array_equal(both, both[sample[number]]):  # two names with one mark
            return None
        names = [bytes(both[row].tobytes()).rstrip(b"\0").decode() for row in sample.tolist()]
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(names), dtype=np.int64)
        place[order] = np.arange(len(names))
        found = place[number]
        return tuple(names[k] for k in order), found[: len(self.begins)], found[len(self.begins) :]


def _numbered(mixed: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Ints]:
    """Each mark once, in order, and the place of each among them: by a sample, then with those it did not hold."""
    marks = np.unique(mixed[:: max(1, len(mixed) // SAMPLE)])
    number = np.searchsorted(marks, mixed)
    strange = marks[np.minimum(number, len(marks) - 1)] != mixed
    if strange.any():
        marks = np.union1d(marks, mixed[strange])
        number = np.searchsorted(marks, mixed)
    return marks, number


def _word(text: str) -> int:
    return int(np.frombuffer(text.encode().ljust(WORD, b"\0"), dtype=np.uint64)[0])


def _results(name: str, lines: Iterable[str]) -> Iterator[Result]:
    rows = csv.reader(lines)
    try:
        left, right, winner, judge = _header(name, next(rows, []))
        need = max(left, right, winner)
        for row in rows:
            if len(row) > need:
                a, b = intern(row[left].strip()), intern(row[right].strip())
                verdict = VERDICTS.get(row[winner])
                if verdict is None or a == b or not a or not b:
                    verdict = _verdict(f"{name}:{rows.line_num}", a, b, row[winner])
                yield Result(a, b, verdict, row[judge].strip() if 0 <= judge < len(row) else "")
            elif row:
                where = f"{name}:{rows.line_num}"
                raise _bad(where, ",".join(row), "has too few columns", "Give left, right and winner in every row.")
    except csv.Error as bad:
        raise BadInput(f"{name}:{rows.line_num}: {bad}.", path=name, remedy="Save it as plain CSV.") from bad


def _header(name: str, row: Sequence[str]) -> tuple[int, int, int, int]:
    columns = [cell.strip().lower() for cell in row]
    lacking = [column for column in COLUMNS if column not in columns]
    if lacking:
        raise _bad(
            f"{name}:1", ",".join(row), f"has no column {lacking[0]!r}", "Start the file with left,right,winner."
        )
    left, right, winner = (columns.index(column) for column in COLUMNS)
    return left, right, winner, columns.index("judge") if "judge" in columns else -1


def _verdict(where: str, left: str, right: str, text: str) -> Winner:
    verdict = VERDICTS.get(text.strip().lower())
    if verdict is None:
        raise _bad(where, text, "is not a winner", "Write left, right or tie.")
    if not left or not right:
        raise _bad(where, left or right, "stands alone: one name is empty", "Name both sides.")
    if left == right:
        raise _bad(where, left, "is compared with itself", "Remove the row or correct a name.")
    return verdict


def _bad(where: str, value: str, reason: str, remedy: str) -> BadInput:
    shown = value if len(value) <= 80 else value[:80] + "…"
    return BadInput(f"{where}: {shown!r} {reason}.", path=where, value=value, remedy=remedy)
