"""The result of judging entries: each with its place and reason, and the files that hold them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from clara_eval.challenges.public_documents import leaderboard_rows, result_document
from clara_eval.core.untrusted import escaped
from clara_eval.evaluation.features.extract import SubmissionFacts
from clara_eval.evaluation.folder import FolderVenue
from clara_eval.evaluation.result import EvaluationResult

_ACCOUNT = re.compile("0x[0-9a-f]{40}(?![0-9a-f])")
_COLUMNS = ("rank", "id", "winner", "score", "elo", "low", "high", "wins", "losses", "ties", "status", "reason")
_FORMULA = re.compile(r"(?!-?\d+\.?\d*$)[=+@\t\r-]")
"""How a cell begins that a spreadsheet would run."""


@dataclass(frozen=True, slots=True)
class JudgedEntry:
    """One place; an entry that is not ranked has the reason in `reason`."""

    id: str
    rank: int
    score: int
    winner: bool
    features: Mapping[str, object]
    reason: str
    """The judge's words on the comparison with the neighbour, or why the entry is not ranked."""
    elo: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of `judge`: every entry, best first."""

    ranking: tuple[JudgedEntry, ...]
    digest: str
    document: Mapping[str, Any]
    """What `scores.json` holds."""
    cost_usd: float
    result: EvaluationResult = field(repr=False)


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Replace the file as a whole: a killed run leaves the earlier one."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        file.writelines(pieces)
    part.replace(path)


def write_results(found: Judged, out: Path, title: str) -> None:
    write_whole(out / "scores.json", [json.dumps(found.document, indent=2, ensure_ascii=False), "\n"])
    write_whole(out / "leaderboard.csv", [_csv(found)])
    write_whole(out / "leaderboard.md", [_markdown(found, title)])


def judged(venue: FolderVenue, result: EvaluationResult, digest: str, cost: float) -> Judged:
    prizes = {one.account: "1" for one in result.placed[: venue.folder.winner_count]}
    rows = leaderboard_rows(result, prizes, {})
    reasons = _reasons(result, [row.address for row in rows if row.is_ranked])
    document: dict[str, object] = result_document(result, digest, rows)
    facts: dict[str, SubmissionFacts] = {str(account): found for account, found in result.features.items()}
    document["rankings"] = [
        {
            "id": row.address,
            **row.model_dump(exclude={"address", "agentId", "prizeAmount"}),
            "winner": row.is_paid and row.is_ranked,
            "reason": row.reason or reasons.get(row.address, ""),
            "features": facts[row.address].to_json()["features"] if row.address in facts else {},
        }
        for row in rows
    ]
    told = _with_ids(document | {"winnerCount": venue.folder.winner_count, "costUsd": round(cost, 6)}, venue.ids)
    fields = JudgedEntry.__slots__
    ranking = tuple(JudgedEntry(**{name: row[name] for name in fields}) for row in told["rankings"])
    return Judged(ranking, digest, told, cost, result)


def _reasons(result: EvaluationResult, order: Sequence[str]) -> dict[str, str]:
    """By account, what was said about it and its neighbour: the next one below, of the last the one above."""
    near = {frozenset((one, other)) for one, other in pairwise(order)}
    said: dict[frozenset[str], str] = {}
    for game in result.comparisons:
        pair = frozenset((game.first, game.second))
        if pair in near and pair not in said and game.winner is not None:
            better = {"first": game.first, "second": game.second}.get(game.winner)
            other = game.second if better == game.first else game.first
            head = f"{better} before {other}" if better else f"{game.first} and {game.second} are equal"
            said[pair] = f"{head}: {game.reason}"
    pairs = [*pairwise(order), *([(order[-1], order[-2])] if len(order) > 1 else [])]
    return {one: said.get(frozenset((one, other)), "") for one, other in pairs}


def _with_ids(document: Mapping[str, object], ids: Mapping[str, str]) -> dict[str, Any]:
    """The document with ids in the place of accounts, also inside sentences."""

    def named(found: re.Match[str]) -> str:
        return json.dumps(ids[found[0]])[1:-1] if found[0] in ids else found[0]

    told: dict[str, Any] = json.loads(_ACCOUNT.sub(named, json.dumps(document)))
    return told


def _csv(found: Judged) -> str:
    lines = StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(_COLUMNS)
    for row in found.document["rankings"]:
        cells = ["" if row.get(name) is None else str(row[name]) for name in _COLUMNS]
        table.writerow(f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells)
    return lines.getvalue()


def _markdown(found: Judged, title: str) -> str:
    lines = [
        f"# {_plain(title or 'Leaderboard')}",
        "",
        "| # | entry | Elo | 90 % range | why |",
        "|---|---|---|---|---|",
    ]
    for row in found.ranking:
        elo = "not ranked" if row.elo is None else f"{row.elo:.0f}"
        ends = "" if row.low is None or row.high is None else f"{row.low:.0f} to {row.high:.0f}"
        name = f"**{_plain(row.id)}**" if row.winner else _plain(row.id)
        lines.append(f"| {row.rank} | {name} | {elo} | {ends} | {_plain(row.reason)} |")
    margin = found.document.get("margin")
    sure = [_plain(margin["sentence"]), ""] if margin else []
    flags = [f"- {_plain(flag['sentence'])}" for flag in found.document["flags"] if flag["severity"] != "info"]
    ending = f"Winners are bold. Trace {found.digest}: `clara-eval verify trace.json` checks it."
    return "\n".join([*lines, "", *sure, *flags, *([""] if flags else []), ending, ""])


def _plain(text: str) -> str:
    """Text of strangers in a table of Markdown: no markup, no line ends."""
    return re.sub(r"([\\`*_{}\[\]<>|!#])", r"\\\1", escaped(text))
