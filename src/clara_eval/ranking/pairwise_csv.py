"""Pairwise results from a CSV file: columns `left`, `right`, `winner`; others are ignored, `judge` is used if present.

In comes text that strangers wrote; out go items in canonical order (by name), results in file order and a seed made
from the sorted content, so that any order of rows ranks the same. A bad row is refused with file, line, value and
remedy.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clara_eval.errors import BadInput
from clara_eval.tournament.results import Result, Winner

VERDICTS: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
COLUMNS = ("left", "right", "winner")


@dataclass(frozen=True, slots=True)
class Pairwise:
    """What a file holds."""

    items: tuple[str, ...]
    results: tuple[Result, ...]
    seed: bytes


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
    return Pairwise(items, results, content_seed(results))


def content_seed(results: Sequence[Result]) -> bytes:
    """SHA-256 over the sorted rows: the same for every order of rows."""
    rows = sorted(f"{r.first}\x1f{r.second}\x1f{r.winner}\x1f{r.judge}" for r in results)
    return hashlib.sha256("\x1e".join(rows).encode()).digest()


def _results(name: str, lines: Iterable[str]) -> Iterator[Result]:
    rows = csv.reader(lines)
    try:
        left, right, winner, judge = _header(name, next(rows, []))
        need = max(left, right, winner)
        names: dict[str, str] = {}
        for row in rows:
            if not row:
                continue
            where = f"{name}:{rows.line_num}"
            if len(row) <= need:
                raise _bad(where, ",".join(row), "has too few columns", "Give left, right and winner in every row.")
            a, b = (names.setdefault(cell, cell) for cell in (row[left].strip(), row[right].strip()))
            yield Result(a, b, _verdict(where, a, b, row[winner]), row[judge].strip() if 0 <= judge < len(row) else "")
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
    verdict = VERDICTS.get(text) or VERDICTS.get(text.strip().lower())
    if verdict is None:
        raise _bad(where, text, "is no winner", "Write left, right or tie.")
    if not left or not right:
        raise _bad(where, left or right, "stands alone: one name is empty", "Name both sides.")
    if left == right:
        raise _bad(where, left, "is compared with itself", "Remove the row or correct a name.")
    return verdict


def _bad(where: str, value: str, reason: str, remedy: str) -> BadInput:
    shown = value if len(value) <= 80 else value[:80] + "…"
    return BadInput(f"{where}: {shown!r} {reason}.", path=where, value=value, remedy=remedy)
