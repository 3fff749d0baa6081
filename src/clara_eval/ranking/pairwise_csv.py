"""Pairwise results from a CSV file: columns `left`, `right`, `winner`; others are ignored, `judge` is used if present.

In comes text that strangers wrote; out go items in canonical order (by name) and results in file order. A bad row is
refused with file, line, value and remedy.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern

from clara_eval.errors import BadInput
from clara_eval.tournament.results import Result, Winner

VERDICTS: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
COLUMNS = ("left", "right", "winner")


@dataclass(frozen=True, slots=True)
class Pairwise:
    """What a file holds."""

    items: tuple[str, ...]
    results: tuple[Result, ...]


def read_pairwise(path: Path) -> Pairwise:
    """The whole file, checked row by row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            results = tuple(_results(str(path), file))
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror}.", path=str(path), remedy="Check the name.") from bad
    except UnicodeDecodeError as bad:
        raise BadInput(
            f"{path} is not UTF-8 text (byte {bad.start}).", path=str(path), remedy="Save it as UTF-8."
        ) from bad
    if not results:
        raise BadInput(f"{path} has no results.", path=str(path), remedy="Add rows under the header left,right,winner.")
    items = tuple(sorted({result.first for result in results} | {result.second for result in results}))
    return Pairwise(items, results)


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
