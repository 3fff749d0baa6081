"""Rank pairwise results that are not from a challenge: a CSV file, or triples from a program.

A file has the columns `left`, `right`, `winner` (left, right or tie); `judge` is used if present, others are ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from sys import intern

from clara_eval.challenges.plots import ratings_svg, win_matrix_svg
from clara_eval.core.errors import BadInput
from clara_eval.core.verdict import Winner
from clara_eval.ranking import Ranking, Result, Standing, Tally, rank, tally

__all__ = ["RankedFile", "Ranking", "Standing", "rank_file", "rank_games", "read_results"]

VERDICTS: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
COLUMNS = ("left", "right", "winner")
_NO_FILE_ROWS = "Add rows under the header left,right,winner."


@dataclass(frozen=True, slots=True)
class RankedFile:
    ranking: Ranking
    table: Tally

    def plots(self) -> dict[str, str]:
        """SVG pictures by file name."""
        return {"ratings.svg": ratings_svg(self.ranking), "matrix.svg": win_matrix_svg(self.ranking, self.table)}


def rank_file(path: Path, winner_count: int, payout_bps: Sequence[int] | None, *, literal: bool) -> RankedFile:
    """Rank the results of a file; `literal` is the specification's single pass in file order.

    Raises:
        BadInput: the file cannot be read, or a row is bad; it names the line, the value and a remedy.

    """
    results = read_results(path)
    items = sorted({result.first for result in results} | {result.second for result in results})
    table = tally(items, results)
    given = tally(items, results, in_given_order=True) if literal else None
    ranking = rank(table, seed=None, winner_count=winner_count, payout_bps=payout_bps, in_given_order=given)
    return RankedFile(ranking, table)


def rank_games(games: Iterable[tuple[str, str, str]], payout_bps: Sequence[int]) -> Ranking:
    """Rank (left, right, winner) triples in any order."""
    results = [_result(f"games[{number}]", *game) for number, game in enumerate(games)]
    items = sorted({item for result in results for item in (result.first, result.second)})
    return rank(tally(items, results), seed=None, winner_count=len(payout_bps), payout_bps=payout_bps)


def read_results(path: Path) -> list[Result]:
    """The rows of a file, in file order."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror}.", path=str(path), remedy="Check the name.") from bad
    except UnicodeDecodeError as bad:
        reason = f"{path} is not UTF-8 text (byte {bad.start})."
        raise BadInput(reason, path=str(path), remedy="Save it as UTF-8.") from bad
    results = list(_rows(str(path), StringIO(text, newline="")))
    if not results:
        raise BadInput(f"{path} has no results.", path=str(path), remedy=_NO_FILE_ROWS)
    return results


def _rows(name: str, lines: Iterable[str]) -> Iterator[Result]:
    rows = csv.reader(lines)
    try:
        left, right, winner, judge = _header(name, next(rows, []))
        for row in rows:
            where = f"{name}:{rows.line_num}"
            if row and len(row) <= max(left, right, winner):
                raise _bad(where, ",".join(row), "has too few columns", "Give left, right and winner in every row.")
            if row:
                asked = row[judge].strip() if 0 <= judge < len(row) else ""
                yield _result(where, row[left], row[right], row[winner], asked)
    except csv.Error as bad:
        raise BadInput(f"{name}:{rows.line_num}: {bad}.", path=name, remedy="Save it as plain CSV.") from bad


def _header(name: str, row: Sequence[str]) -> tuple[int, int, int, int]:
    columns = [cell.strip().lower() for cell in row]
    lacking = [column for column in COLUMNS if column not in columns]
    if lacking:
        reason = f"has no column {lacking[0]!r}"
        raise _bad(f"{name}:1", ",".join(row), reason, "Start the file with left,right,winner.")
    left, right, winner = (columns.index(column) for column in COLUMNS)
    return left, right, winner, columns.index("judge") if "judge" in columns else -1


def _result(where: str, left: str, right: str, winner: str, judge: str = "") -> Result:
    left, right = intern(left.strip()), intern(right.strip())
    verdict = VERDICTS.get(winner) or VERDICTS.get(winner.strip().lower())
    if verdict is None:
        raise _bad(where, winner, "is not a winner", "Write left, right or tie.")
    if not left or not right:
        raise _bad(where, left or right, "stands alone: one name is empty", "Name both sides.")
    if left == right:
        raise _bad(where, left, "is compared with itself", "Remove the row or correct a name.")
    return Result(left, right, verdict, judge)


def _bad(where: str, value: str, reason: str, remedy: str) -> BadInput:
    shown = value if len(value) <= 80 else value[:80] + "…"
    return BadInput(f"{where}: {shown!r} {reason}.", path=where, value=value, remedy=remedy)
