"""Rank pairwise results: from triples, or from a CSV file with the columns left, right, winner and perhaps judge."""

from __future__ import annotations

import csv
import gc
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from sys import intern
from typing import Literal

from clara_eval.challenges.plots import ratings_svg, win_matrix_svg
from clara_eval.core.codec import to_camel_json
from clara_eval.core.constants import Winner
from clara_eval.core.errors import BadInput
from clara_eval.ranking import Ranking, Result, Standing, rank, tally
from clara_eval.ranking.results import checked_payout

__all__ = ["Ranking", "Standing"]
Verdict = Literal["left", "right", "tie"]
VERDICTS: dict[str, Winner] = {"left": "first", "right": "second", "tie": "tie"}
COLUMNS = ("left", "right", "winner")
_NO_FILE_ROWS = "Add rows under the header left,right,winner."
_FITTED = frozenset(("theta", "thetaLow", "thetaHigh", "pRank"))
"""Fields of a standing that `strength` sums up."""


def rank_comparisons(games: Iterable[tuple[str, str, Verdict]], payout_bps: Sequence[int]) -> Ranking:
    """Rank items by (left, right, winner) triples in any order."""
    results = []
    for number, game in enumerate(games):
        if not _is_comparison(game):
            raise BadInput(
                f"Game {number} {str(game)[:200]} is not a comparison of two items.",
                path=f"games[{number}]",
                remedy='Give two different names and "left", "right" or "tie".',
            )
        left, right, winner = game
        results.append(Result(left, right, VERDICTS[winner]))
    items = sorted({item for result in results for item in (result.first, result.second)})
    return rank(tally(items, results), seed=None, winner_count=len(payout_bps), payout_bps=payout_bps)


def _is_comparison(game: object) -> bool:
    """Programs without types call this too."""
    if not isinstance(game, Sequence) or len(game) != 3 or not all(isinstance(part, str) and part for part in game):
        return False
    return game[0] != game[1] and game[2] in VERDICTS


def payout_shares(text: str, winners: int | None) -> tuple[int, ...]:
    """Read `equal`, `top3` or a list of basis points."""
    if text in ("", "equal"):
        return checked_payout(3 if winners is None else winners, None)
    try:
        shares = (6000, 2500, 1500) if text == "top3" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(
            f"--payout {text!r} is not a list of basis points.",
            value=text,
            remedy="Write shares such as 6000,2500,1500 that sum to 10000, or top3, or equal.",
        ) from None
    return checked_payout(len(shares) if winners is None else winners, shares)


def rank_file(
    file: Path, payout: tuple[int, ...], *, literal: bool, with_plots: bool
) -> tuple[Ranking, dict[str, str]]:
    """Rank a CSV file (`left,right,winner`); SVG plots by file name."""
    gc.disable()  # a million rows are no garbage, and collecting among them takes a second
    results = read_results(file)
    items = sorted({result.first for result in results} | {result.second for result in results})
    table = tally(items, results, in_given_order=literal)
    ranking = rank(table, seed=None, winner_count=len(payout), payout_bps=payout, literal=literal)
    plots = {"ratings.svg": ratings_svg(ranking), "matrix.svg": win_matrix_svg(ranking, table)} if with_plots else {}
    return ranking, plots


def ranking_document(ranking: Ranking) -> dict[str, object]:
    rows = []
    for standing in ranking.standings:
        fields = {name: value for name, value in to_camel_json(standing).items() if name not in _FITTED}
        rows.append({**fields, "strength": standing.strength, "tiedWith": ranking.tied_with(standing.item)})
    return {
        "ranking": rows,
        "winnerCount": ranking.winner_count,
        "payoutBps": list(ranking.payout_bps),
        "margin": {**to_camel_json(ranking.margin), "sentence": ranking.margin.sentence},
        "expectedMisallocation": ranking.misallocation,
        "positionBias": ranking.position_bias,
        **to_camel_json(ranking.consistency),
        "flags": to_camel_json(ranking.flags),
        "results": ranking.results,
        "method": "elo, single pass" if ranking.literal else "elo, mean of 100 permutations",
        "orderedBy": ranking.ordered_by,
    }


def read_results(path: Path) -> list[Result]:
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
