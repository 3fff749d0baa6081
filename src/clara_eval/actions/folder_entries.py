"""Read entries from a folder, a JSON Lines or CSV file, or standard input."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path

from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.untrusted import escaped
from clara_eval.evaluation.folder import NamedContent
from clara_eval.submissions.files import pack_folder, read_archive

MOST_ENTRIES = 10_000
MOST_BYTES = 16 * 1024 * 1024
"""Of one entry before it is checked; the evaluation itself reads far less."""
LONGEST_ID = 120
_FORM = "Each entry has an id, and content or path; submittedAt is optional."


def read_entries(source: str) -> list[NamedContent]:
    """Read every entry; BadInput names the first that cannot be read."""
    path = Path(source)
    if source == "-":
        found = list(_listed(_text(sys.stdin.buffer.read(), "standard input"), Path(), "standard input"))
    elif path.is_dir():
        found = [_entry_at(one, one.name) for one in _visible(path)]
    else:
        found = list(_listed(_text(_bytes(path, "the entries"), source), path.parent, source))
    return checked_entries(found, source)


def sample_entries(files: Sequence[Path]) -> list[NamedContent]:
    """Each file or folder as an entry, known by its path."""
    return checked_entries([_entry_at(one, str(one)[-LONGEST_ID:]) for one in files], "--sample", least=0)


def checked_entries(found: list[NamedContent], source: str, least: int = 2) -> list[NamedContent]:
    """Refuse what cannot be compared: no entries, one, too many, or an id twice."""
    if len(found) < least:
        told = "There are no entries" if not found else f"There is one entry, {_shown(found[0].id)},"
        raise BadInput(
            f"{told} in {_shown(source)}: at least two are compared.",
            value=source,
            remedy="Put one file or folder for each entry into it, or name a JSON Lines or CSV file.",
        )
    if len(found) > MOST_ENTRIES:
        raise BadInput(f"{_shown(source)} has {len(found):,} entries; at most {MOST_ENTRIES:,} are judged.")
    twice = [name for name, count in Counter(one.id for one in found).items() if count > 1]
    if twice:
        raise BadInput(
            f"{_shown(source)} has the id {_shown(twice[0])} {'twice' if len(twice) == 1 else 'and others twice'}.",
            value=twice[0],
            remedy="Give every entry an id of its own.",
        )
    return found


def entries_of(contents: Mapping[str, str | bytes]) -> list[NamedContent]:
    """The entries of a mapping from ids to contents."""
    found = [
        NamedContent(_id(name, "entries"), text.encode() if isinstance(text, str) else text)
        for name, text in contents.items()
    ]
    return checked_entries(found, "entries")


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    except OSError as bad:
        raise _unreadable(folder, bad.strerror or str(bad)) from None


def _entry_at(path: Path, name: str, submitted_at: int = 0) -> NamedContent:
    entry_id = _id(name, str(path))
    if not path.is_dir():
        return NamedContent(entry_id, _bytes(path, f"the entry {_shown(name)}"), path.name, submitted_at)
    try:
        content = pack_folder(path)
    except OSError as bad:
        raise _unreadable(path, bad.strerror or str(bad), f"the entry {_shown(name)}") from None
    try:
        read_archive(content)
    except BadSubmission as bad:
        if bad.code == "empty":  # with any other fault it is an entry that is not ranked, as on chain
            remedy = "Remove it, or fill it."
            raise BadInput(f"The entry {_shown(name)} is a folder without files.", value=name, remedy=remedy) from None
    return NamedContent(entry_id, content, submitted_at=submitted_at, media_type="application/gzip")


def _listed(text: str, beside: Path, source: str) -> Iterator[NamedContent]:
    rows = _json_lines(text, source) if text.lstrip()[:1] in {"{", ""} else _csv_rows(text, source)
    for where, row in rows:
        name, content, path = row.get("id"), row.get("content"), row.get("path")
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not isinstance(content or path, str) or bool(content) == bool(path):
            remedy = "Give an id, and exactly one of content and path."
            raise BadInput(f"{where} is not an entry. {_FORM}", path=where, remedy=remedy)
        submitted_at = _moment(row.get("submittedAt"), where)
        if isinstance(content, str) and content:
            yield NamedContent(_id(name, where), content.encode(), submitted_at=submitted_at)
        else:
            yield _entry_at(beside / str(path), name, submitted_at)


def _json_lines(text: str, source: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"Line {number} of {_shown(source)}"
        try:
            row = json.loads(line)
        except ValueError as bad:
            raise BadInput(f"{where} is not JSON: {bad}.", path=where, remedy="Write one JSON object a line.") from None
        if not isinstance(row, dict):
            raise BadInput(f"{where} is not an object. {_FORM}", path=where, remedy="Write one JSON object a line.")
        yield where, row


def _csv_rows(text: str, source: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    csv.field_size_limit(MOST_BYTES)
    table = csv.DictReader(StringIO(text, newline=""))
    columns = set(table.fieldnames or ())
    if "id" not in columns or not columns & {"content", "path"}:
        named = ", ".join(_shown(name) for name in table.fieldnames or ()) or "none"
        raise BadInput(
            f"{_shown(source)} has no columns id and content (or path); its first line names {named[:200]}.",
            value=source,
            remedy="Begin a CSV file with id,content or id,path; else write one JSON object a line.",
        )
    try:
        yield from ((f"Row {number} of {_shown(source)}", row) for number, row in enumerate(table, start=1))
    except csv.Error as bad:
        remedy = "Quote fields that hold line ends or quotes."
        raise BadInput(f"{_shown(source)} cannot be read as CSV: {bad}.", remedy=remedy) from None


def _moment(value: object, where: str) -> int:
    """Unix seconds, or a moment as in ISO 8601 with its zone; 0 if it is not said."""
    if value in {None, ""}:
        return 0
    try:
        text = str(value)
        moment = int(text) if text.isdigit() else int(datetime.fromisoformat(text).astimezone().timestamp())
    except ValueError:
        moment = -1
    if not 0 <= moment < 2**53:
        raise BadInput(
            f"{where} has the submittedAt {_shown(str(value))}, which is not a moment.",
            path=where,
            remedy="Write unix seconds, or 2026-05-01T12:00:00Z.",
        )
    return moment


def _id(name: str, where: str) -> str:
    if not name.strip() or len(name) > LONGEST_ID or not name.isprintable():
        raise BadInput(
            f"{_shown(where)}: the id {_shown(name)} is not usable.",
            value=name,
            remedy=f"Use 1 to {LONGEST_ID} printable characters.",
        )
    return name


def _bytes(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as bad:
        raise _unreadable(path, bad.strerror or str(bad), what) from None
    if len(content) > MOST_BYTES:
        raise _unreadable(path, f"it has more than {MOST_BYTES:,} bytes", what)
    return content


def _unreadable(path: Path, why: str, what: str = "") -> BadInput:
    told = f"{_shown(str(path))} ({what})" if what else _shown(str(path))
    return BadInput(
        f"{told} cannot be read: {why}.", value=str(path), remedy="Make it readable, or take it out; then run it again."
    )


def _text(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        raise BadInput(
            f"{_shown(source)} is not text in UTF-8 (byte {bad.start}).",
            value=source,
            remedy="Name a folder, or a JSON Lines or CSV file in UTF-8.",
        ) from None


def _shown(text: str) -> str:
    return repr(escaped(text[:200].encode("utf-8", errors="backslashreplace").decode()))
