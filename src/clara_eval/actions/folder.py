"""Read entries from folders and files, write the judged result, and open such a result for pages."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from clara_eval.actions.published import ResultReader
from clara_eval.actions.rank import MAX_TEXT_BYTES, read_rows
from clara_eval.challenges.public_documents import leaderboard_rows, public_keys, result_document
from clara_eval.core.address import ZERO_ADDRESS
from clara_eval.core.errors import BadInput, BadSubmission, NotFound
from clara_eval.core.hashing import plain_json
from clara_eval.core.untrusted import escaped
from clara_eval.documents.results import EvalStatus, Summary, Token
from clara_eval.documents.store_keys import index_key, scores_key, status_key
from clara_eval.evaluation.folder import CheckedFolder, FolderVenue, NamedContent, check_folder
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.evaluation.trace import TraceFile
from clara_eval.store.open import opened_store
from clara_eval.store.trace_archive import save_trace
from clara_eval.submissions.files import pack_folder, read_archive

MAX_ENTRIES = 10_000
MAX_ID_CHARS = 120
_FORM = "Each entry has an id, and content or path; submittedAt is optional."
_REMEDY = "Give an id, and exactly one of content and path; begin a CSV file with id,content or id,path."
_TOO_LARGE = OSError(f"it has more than {MAX_TEXT_BYTES:,} bytes")
_ACCOUNT = re.compile("0x[0-9a-f]{40}(?![0-9a-f])")
_COLUMNS = ("rank", "id", "winner", "score", "elo", "low", "high", "wins", "losses", "ties", "status", "reason")
_FORMULA = re.compile(r"(?!-?\d+\.?\d*$)[=+@\t\r-]")  # start of a cell that a spreadsheet would run as a formula
NO_CHAIN = 0  # chain id in documents about a folder


def read_entries(source: str) -> list[NamedContent]:
    """Read every entry of a folder, a JSON Lines or CSV file, or standard input (`-`)."""
    path = Path(source)
    if source == "-" or not path.is_dir():
        if source != "-" and path.is_file() and path.stat().st_size > MAX_TEXT_BYTES:
            raise _unreadable(path, _TOO_LARGE, " (the entries)")
        return check_entries(list(_read_listed(source)), source)
    try:
        visible = sorted(one for one in path.iterdir() if not one.name.startswith("."))
    except OSError as bad:
        raise _unreadable(path, bad) from None
    return check_entries([_read_entry(one, one.name) for one in visible], source)


def sample_entries(files: Sequence[Path]) -> list[NamedContent]:
    """Read each file or folder as an entry whose id is its path."""
    return check_entries([_read_entry(one, str(one)[-MAX_ID_CHARS:]) for one in files], "--sample", least=0)


def check_entries(found: list[NamedContent], source: str, least: int = 2) -> list[NamedContent]:
    """Return the entries; BadInput if they are too few, too many, or share an id."""
    if len(found) < least:
        number = "There are no entries" if not found else f"There is one entry, {_quoted(found[0].id)},"
        raise BadInput(
            f"{number} in {_quoted(source)}: at least two are compared.",
            value=source,
            remedy="Put one file or folder for each entry into it, or name a JSON Lines or CSV file.",
        )
    if len(found) > MAX_ENTRIES:
        raise BadInput(f"{_quoted(source)} has {len(found):,} entries; at most {MAX_ENTRIES:,} are judged.")
    twice = [name for name, count in Counter(one.id for one in found).items() if count > 1]
    if twice:
        raise BadInput(
            f"{_quoted(source)} has the id {_quoted(twice[0])} {'twice' if len(twice) == 1 else 'and others twice'}.",
            value=twice[0],
            remedy="Give every entry an id of its own.",
        )
    return found


def entries_of(contents: Mapping[str, str | bytes]) -> list[NamedContent]:
    found = [
        NamedContent(_check_id(name, "entries"), text.encode() if isinstance(text, str) else text)
        for name, text in contents.items()
    ]
    return check_entries(found, "entries")


def _read_entry(path: Path, name: str, submitted_at: int = 0) -> NamedContent:
    entry_id, what, is_folder = _check_id(name, str(path)), f" (the entry {_quoted(name)})", path.is_dir()
    try:
        if is_folder:
            content = pack_folder(path)
        else:
            with path.open("rb") as file:
                content = file.read(MAX_TEXT_BYTES + 1)
    except OSError as bad:
        raise _unreadable(path, bad, what) from None
    if len(content) > MAX_TEXT_BYTES:
        raise _unreadable(path, _TOO_LARGE, what)
    if not is_folder:
        return NamedContent(entry_id, content, path.name, submitted_at)
    try:
        read_archive(content)
    except BadSubmission as bad:
        if bad.code == "empty":  # any other fault makes it an entry that is not ranked, as on chain
            remedy = "Remove it, or fill it."
            raise BadInput(f"The entry {_quoted(name)} is a folder without files.", value=name, remedy=remedy) from None
    return NamedContent(entry_id, content, submitted_at=submitted_at, media_type="application/gzip")


def _read_listed(source: str) -> Iterator[NamedContent]:
    source, rows = read_rows(source)
    for line, row in rows:
        where = f"Line {line} of {_quoted(source)}"
        name, content, path = row.get("id"), row.get("content"), row.get("path")
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not isinstance(content or path, str) or bool(content) == bool(path):
            named = ", ".join(_quoted(key) for key in row)[:200]
            raise BadInput(f"{where} is not an entry. {_FORM} It has {named}.", path=where, remedy=_REMEDY)
        submitted_at = _parse_moment(row.get("submittedat"), where)
        if isinstance(content, str) and content:
            yield NamedContent(_check_id(name, where), content.encode(), submitted_at=submitted_at)
        else:
            yield _read_entry(Path(source).parent / str(path), name, submitted_at)


def _parse_moment(value: object, where: str) -> int:
    """Return Unix seconds from a number or an ISO 8601 date, which is UTC by default; 0 if missing."""
    if value in {None, ""}:
        return 0
    try:
        text = str(value)
        date = None if text.isdigit() else datetime.fromisoformat(text)
        moment = int(text) if date is None else int(date.replace(tzinfo=date.tzinfo or UTC).timestamp())
    except ValueError:
        moment = -1
    if not 0 <= moment < 2**53:
        raise BadInput(
            f"{where} has the submittedAt {_quoted(str(value))}, which is not a moment.",
            path=where,
            remedy="Write unix seconds, or 2026-05-01T12:00:00Z.",
        )
    return moment


def _check_id(name: str, where: str) -> str:
    if not name.strip() or len(name) > MAX_ID_CHARS or not name.isprintable():
        raise BadInput(
            f"{_quoted(where)}: the id {_quoted(name)} is not usable.",
            value=name,
            remedy=f"Use 1 to {MAX_ID_CHARS} printable characters.",
        )
    return name


def _unreadable(path: Path, bad: OSError, what: str = "") -> BadInput:
    remedy = "Make it readable, or take it out; then run it again."
    message = f"{_quoted(str(path))}{what} cannot be read: {bad.strerror or bad}."
    return BadInput(message, value=str(path), remedy=remedy)


def _quoted(text: str) -> str:
    return repr(escaped(text[:200].encode("utf-8", errors="backslashreplace").decode()))


@dataclass(frozen=True, slots=True)
class JudgedEntry:
    """One place of the ranking, or an entry that is not ranked, with its reason."""

    id: str
    rank: int
    score: int
    winner: bool
    features: Mapping[str, object]
    reason: str  # the judge's reason against the next entry, or why this one is not ranked
    elo: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of `judge`: every entry, best first."""

    ranking: tuple[JudgedEntry, ...]
    digest: str
    document: Mapping[str, Any]  # what `scores.json` holds
    cost_usd: float
    result: EvaluationResult = field(repr=False)


def write_atomically(path: Path, pieces: Iterable[str]) -> None:
    """Replace the file atomically: a killed run leaves the earlier one."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        file.writelines(pieces)
    part.replace(path)


def write_results(found: Judged, out: Path, title: str) -> None:
    write_atomically(out / "scores.json", [json.dumps(found.document, indent=2, ensure_ascii=False), "\n"])
    write_atomically(out / "leaderboard.csv", [_leaderboard_csv(found)])
    write_atomically(out / "leaderboard.md", [_leaderboard_markdown(found, title)])


def build_result(venue: FolderVenue, result: EvaluationResult, digest: str, cost: float) -> Judged:
    rows = leaderboard_rows(result, {one.account: "1" for one in result.placed[: venue.folder.winner_count]}, {})
    reasons = _reasons(result, [row.address for row in rows if row.is_ranked])
    facts = {str(account): found for account, found in result.features.items()}
    rankings = [
        {
            "id": row.address,
            **row.model_dump(exclude={"address", "agentId", "prizeAmount"}),
            "winner": row.is_paid and row.is_ranked,
            "reason": row.reason or reasons.get(row.address, ""),
            "features": facts[row.address].to_json()["features"] if row.address in facts else {},
        }
        for row in rows
    ]
    more = {"rankings": rankings, "winnerCount": venue.folder.winner_count, "costUsd": round(cost, 6)}

    def with_id(found: re.Match[str]) -> str:
        return json.dumps(venue.ids[found[0]])[1:-1] if found[0] in venue.ids else found[0]

    # Replace accounts by entry ids, also inside sentences.
    document = json.loads(_ACCOUNT.sub(with_id, json.dumps(result_document(result, digest, rows) | more)))
    ranking = tuple(JudgedEntry(**{name: row[name] for name in JudgedEntry.__slots__}) for row in document["rankings"])
    return Judged(ranking, digest, document, cost, result)


def _reasons(result: EvaluationResult, order: Sequence[str]) -> dict[str, str]:
    """Return, by account, the reason of the comparison with the next entry; for the last, the one above."""
    neighbours, reasons = set(map(frozenset, pairwise(order))), dict[frozenset[str], str]()
    for game in result.comparisons:
        pair = frozenset((game.first, game.second))
        if pair in neighbours and pair not in reasons and game.winner is not None:
            one, other = (game.second, game.first) if game.winner == "second" else (game.first, game.second)
            head = f"{one} and {other} are equal" if game.winner == "tie" else f"{one} before {other}"
            reasons[pair] = f"{head}: {game.reason}"
    pairs = [*pairwise(order), *([(order[-1], order[-2])] if len(order) > 1 else [])]
    return {one: reasons.get(frozenset((one, other)), "") for one, other in pairs}


def _leaderboard_csv(found: Judged) -> str:
    lines = StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(_COLUMNS)
    for row in found.document["rankings"]:
        cells = ["" if row.get(name) is None else str(row[name]) for name in _COLUMNS]
        table.writerow(f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells)
    return lines.getvalue()


def _leaderboard_markdown(found: Judged, title: str) -> str:
    lines = [
        f"# {_escape(title or 'Leaderboard')}",
        "",
        "| # | entry | Elo | 90 % range | why |",
        "|---|---|---|---|---|",
    ]
    for row in found.ranking:
        elo = "not ranked" if row.elo is None else f"{row.elo:.0f}"
        ends = "" if row.low is None or row.high is None else f"{row.low:.0f} to {row.high:.0f}"
        name = f"**{_escape(row.id)}**" if row.winner else _escape(row.id)
        lines.append(f"| {row.rank} | {name} | {elo} | {ends} | {_escape(row.reason)} |")
    margin = found.document.get("margin")
    sure = [_escape(margin["sentence"]), ""] if margin else []
    flags = [f"- {_escape(flag['sentence'])}" for flag in found.document["flags"] if flag["severity"] != "info"]
    ending = f"Winners are bold. Trace {found.digest}: `clara-eval verify trace.json` checks it."
    return "\n".join([*lines, "", *sure, *flags, *([""] if flags else []), ending, ""])


def _escape(text: str) -> str:
    """Escape untrusted text for a Markdown table: no markup, no line breaks."""
    return re.sub(r"([\\`*_{}\[\]<>|!#])", r"\\\1", escaped(text))


@asynccontextmanager
async def viewed_folder(folder: Path) -> AsyncIterator[tuple[ResultReader, CheckedFolder]]:
    """Check the trace in a folder of results and open a reader of it; the folder is not changed."""
    try:
        lines = TraceFile.at(folder / "trace.json")
    except OSError as bad:
        raise NotFound(
            f"{str(folder)!r} holds no trace.json: {bad.strerror}.",
            remedy="Name the --out folder of `clara-eval judge`.",
        ) from None
    with lines, TemporaryDirectory(prefix="clara-view-") as place:
        checked = await check_folder(lines)
        async with opened_store(f"sqlite:///{place}/view.db") as store:
            await save_trace(store, NO_CHAIN, checked.venue.given.name, lines, checked.digest)
            await store.put_many(NO_CHAIN, _documents(checked))
            yield ResultReader(store, NO_CHAIN, "after_post"), checked


def _documents(checked: CheckedFolder) -> list[tuple[str, str]]:
    venue, result = checked.venue, checked.result
    name, count = venue.given.name, venue.folder.winner_count
    winners = {one.account: "1" for one in result.placed[:count]}
    summary = Summary(
        address=name,
        chainId=NO_CHAIN,
        title=venue.given.metadata.title,
        problemStatement="",
        poster=ZERO_ADDRESS,
        evaluator=ZERO_ADDRESS,
        token=Token(address=ZERO_ADDRESS, symbol="", decimals=0, isKnown=True),
        prizePool=str(count),
        winnerCount=count,
        payoutBps=list(venue.folder.payout_bps),
        deadline=0,
        scoringDeadline=0,
        submissionCount=venue.submission_count,
        chainStatus="finalized",
        postedBy=None,
        block=0,
    )
    scores = result_document(result, checked.digest, leaderboard_rows(result, winners, {})) | {"postedBy": "evaluator"}
    return [
        (index_key(name), summary.model_dump_json()),
        (scores_key(name), plain_json(scores)),
        (status_key(name), EvalStatus(status="complete", progress=100).model_dump_json()),
        *public_keys(name, 0, result),
    ]
