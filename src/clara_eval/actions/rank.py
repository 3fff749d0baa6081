"""Rank pairwise results, given as triples or as rows of CSV or JSON lines."""

from __future__ import annotations

import csv
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from sys import intern

from clara_eval.challenges.plots import ratings_svg, win_matrix_svg
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.model import Flag, Winner
from clara_eval.core.strict_json import json_rows
from clara_eval.evaluation.review_rules import ranking_flags
from clara_eval.ranking import Ranking, Result, Standing, rank, tally

__all__ = ["Ranking", "Standing"]
VERDICTS: dict[str, Winner] = {"left": "first", "right": "second"}
VERDICTS |= {"tie": "tie", "draw": "tie", "tie (bothbad)": "tie"}
COLUMNS = (("left", "right", "winner"), ("model_a", "model_b", "winner"), ("a", "b", "winner"))
"""Known column names, tried in this order."""
DEFAULT_TOP = 3
MAX_TEXT_BYTES = 16 * 1024 * 1024  # bytes of one cell of a table, or of one entry before it is checked
CSV_FIELDS = ("rank", "item", "elo", "low", "high", "pTop", "wins", "losses", "ties")
_FITTED = frozenset(("theta", "thetaLow", "thetaHigh", "pRank"))  # fields of a standing that `strength` summarises


def rank_comparisons(
    games: Iterable[tuple[str, str, str]], top: int | None, payout_bps: Sequence[int] | None = None
) -> Ranking:
    """Rank items by (left, right, winner) triples; the winner is left, right, tie or a name."""
    results = []
    for number, game in enumerate(games):
        where = f"games[{number}]"
        if not isinstance(game, Sequence) or len(game) != 3 or not all(isinstance(part, str) for part in game):
            raise _bad_row(where, str(game), "is not a comparison", "Give two names and the winner, as three texts.")
        results.append(_parse_result(where, *game, "", VERDICTS))
    return rank_results(results, top, payout_bps=payout_bps)


def rank_results(
    results: list[Result], top: int | None, *, payout_bps: Sequence[int] | None = None, literal: bool = False
) -> Ranking:
    """Rank the items of these results; `top` is by default the paid places, else 3 or fewer."""
    items = sorted({item for result in results for item in (result.first, result.second)})
    if top is None:
        top = len(payout_bps) if payout_bps else min(DEFAULT_TOP, max(1, len(items) - 1))
    table = tally(items, results, in_given_order=literal)
    return rank(table, seed=None, winner_count=top, payout_bps=payout_bps, literal=literal)


def plots(ranking: Ranking, results: list[Result]) -> dict[str, str]:
    """Draw the ratings and who beat whom, as SVG by file name."""
    table = tally(sorted(standing.item for standing in ranking.standings), results)
    return {"ratings.svg": ratings_svg(ranking), "matrix.svg": win_matrix_svg(ranking, table)}


def ranking_document(ranking: Ranking) -> dict[str, object]:
    rows = []
    for standing in ranking.standings:
        fields = {name: value for name, value in to_camel_json(standing).items() if name not in _FITTED}
        rows.append({**fields, "strength": standing.strength, "tiedWith": ranking.tied_with(standing.item)})
    return {
        "ranking": rows,
        "top": ranking.winner_count,
        "margin": {**to_camel_json(ranking.margin), "sentence": margin_sentence(ranking)},
        "positionBias": ranking.position_bias,
        **to_camel_json(ranking.consistency),
        "flags": to_camel_json(other_flags(ranking)),
        "results": ranking.results,
        "method": "elo, single pass" if ranking.literal else "elo, mean of 100 permutations",
        "orderedBy": ranking.ordered_by,
    }


def ranking_csv(ranking: Ranking) -> str:
    out = StringIO()
    rows = csv.DictWriter(out, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    rows.writeheader()
    rows.writerows(to_camel_json(standing) for standing in ranking.standings)
    return out.getvalue()


def margin_sentence(ranking: Ranking) -> str:
    """Return a sentence on how certain the last place of the top is."""
    if not ranking.margin.next_item:
        return f"All {len(ranking.standings)} items are in the top {ranking.winner_count}."
    return ranking.margin.sentence


def other_flags(ranking: Ranking) -> list[Flag]:
    """Return all flags but the one on prizes that repeats the margin."""
    return [flag for flag in ranking_flags(ranking, by_arrival=False) if flag.code != "toss_up"]


def read_results(path: Path, columns: str = "") -> list[Result]:
    given = tuple(part.strip().lower() for part in columns.split(",")) if columns else ()
    if columns and len(given) != 3:
        raise BadInput(
            f"--columns {columns!r} does not name three columns.", remedy="Write --columns LEFT,RIGHT,WINNER."
        )
    name, rows = read_rows(str(path))
    gc.disable()  # collecting among a million live rows takes a second
    try:
        results = list(_parse_results(name, rows, [given] if given else list(COLUMNS)))
    finally:
        gc.enable()
    if not results:
        message = "No file given, and no results are piped in." if str(path) == "-" else f"{name} has no results."
        raise BadInput(message, path=name, remedy="Add rows under the header left,right,winner.")
    return results


Rows = Iterator[tuple[int, Mapping[str, object]]]  # line number of each row, and its cells by lower-case column


def read_rows(source: str) -> tuple[str, Rows]:
    """Read CSV or JSON lines from a file, or from standard input for `-`."""
    name = "standard input" if source == "-" else source
    try:
        text = (sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()).decode("utf-8-sig")
    except OSError as bad:
        raise BadInput(f"{name} cannot be read: {bad.strerror}.", path=name, remedy="Check the name.") from bad
    except UnicodeDecodeError as bad:
        remedy = "Save it as JSON Lines or CSV in UTF-8."
        raise BadInput(f"{name} is not text in UTF-8 (byte {bad.start}).", path=name, remedy=remedy) from bad
    if text.lstrip()[:1] != "{":
        return name, _csv_rows(name, text)
    return name, ((line, {key.lower(): cell for key, cell in row.items()}) for line, row in json_rows(name, text))


def _csv_rows(name: str, text: str) -> Rows:
    csv.field_size_limit(MAX_TEXT_BYTES)
    rows = csv.reader(StringIO(text, newline=""))
    try:
        header = [cell.strip().lower() for cell in next(rows, [])]
        for row in rows:
            if row:
                yield rows.line_num, dict(zip(header, row, strict=False))
    except csv.Error as bad:
        raise BadInput(f"{name}:{rows.line_num}: {bad}.", path=name, remedy="Save it as plain CSV.") from bad


def _parse_results(name: str, rows: Rows, known: list[tuple[str, ...]]) -> Iterator[Result]:
    chosen: tuple[str, ...] = ()
    sides: dict[str, Winner] = {}
    for line, row in rows:
        where = f"{name}:{line}"
        chosen = chosen or next((names for names in known if set(names) <= set(row)), ())
        cells = [cell for column in chosen if isinstance(cell := row.get(column), str)]
        if len(cells) < 3:
            lacking = next(column for column in chosen or known[0] if not isinstance(row.get(column), str))
            wanted = " or ".join(",".join(names) for names in known)
            remedy = f"Give the columns {wanted} in every row, or name yours with --columns."
            raise _bad_row(where, ",".join(map(str, row.values())), f"has no column {lacking!r}", remedy)
        sides = sides or {chosen[0]: "first", chosen[1]: "second", **VERDICTS}
        (left, right, winner), judge = cells, row.get("judge")
        yield _parse_result(where, left, right, winner, judge.strip() if isinstance(judge, str) else "", sides)


def _parse_result(where: str, left: str, right: str, winner: str, judge: str, sides: Mapping[str, Winner]) -> Result:
    left, right, winner = intern(left.strip()), intern(right.strip()), winner.strip()
    if not left or not right:
        raise _bad_row(where, left or right, "has only one name", "Name both sides.")
    if left == right:
        raise _bad_row(where, left, "is compared with itself", "Remove the row or correct a name.")
    named: Winner | None = "first" if winner == left else "second" if winner == right else None
    verdict = named or sides.get(winner) or sides.get(winner.lower())
    if verdict is None:
        raise _bad_row(where, winner, "is not a winner", f"Write {', '.join([*sides][:2])}, tie, or the winner's name.")
    return Result(left, right, verdict, judge)


def _bad_row(where: str, value: str, reason: str, remedy: str) -> BadInput:
    shown = value if len(value) <= 80 else value[:80] + "…"
    return BadInput(f"{where}: {shown!r} {reason}.", path=where, remedy=remedy)
