"""Traces, which are JSON files with one hash-chained entry per line, and the journal of a run.

Invariant: only one entry or answer of a trace is in memory at a time.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Self, TypeVar

from clara_eval.core.codec import JsonCodec, to_camel_json
from clara_eval.core.errors import BadTrace, Disagrees
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.core.strict_json import is_encodable
from clara_eval.judge.port import JournalEntries, PaidAnswer

T = TypeVar("T")
FORMAT = "clara-eval-trace/2"
OPENING = '{"format":"' + FORMAT + '","entries":['
START = "0x" + "0" * 64
_FIELDS = {"body", "key", "prev", "seq"}
_LARGEST_INTEGER = 2**53
_MAX_DIGITS = 17  # of an integer with its sign; converting very long ones would take too long
_OTHER_FORMAT = re.compile(r'\{"format":"(clara-eval-trace/\d{1,9})","entries":\[\n?')
_BEFORE_HASH = '{"hash":"'
_BEFORE_ENTRY = '","entry":'


@dataclass(frozen=True, slots=True)
class TraceEntry:
    seq: int
    key: str
    body: object
    hash: str


class TraceWriter:
    """Writes entries as hash-chained lines; `digest` is the hash of the last one."""

    def __init__(self) -> None:
        self.digest = START
        self._seq = 0

    def line(self, key: str, body: object) -> str:
        entry = plain_json({"seq": self._seq, "key": key, "body": body, "prev": self.digest})
        self.digest = sha256_hex(entry.encode())
        self._seq += 1
        return f"{_BEFORE_HASH}{self.digest}{_BEFORE_ENTRY}{entry}}}"


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's approval that exactly this result may be posted."""

    of: str  # digest of the reviewed trace
    at: int
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart of the round by another version of the program."""

    at: int  # chain time
    begun_by: str
    finished_by: str
    answers: int  # paid before and reused


@dataclass(slots=True)
class Notes:
    """Notes about the result that its digest does not cover."""

    approvals: list[Approval] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)


_APPROVALS = JsonCodec(list[Approval])
RESTARTS = JsonCodec(list[Restart])


def render(lines: Iterable[str], digest: str, notes: Notes | None = None) -> Iterator[str]:
    yield OPENING + "\n"
    previous: str | None = None
    for line in lines:
        if previous is not None:
            yield previous + ",\n"
        previous = line
    if previous is not None:
        yield previous + "\n"
    yield _render_ending(digest, notes or Notes()) + "\n"


def _render_ending(digest: str, notes: Notes) -> str:
    previous, links = digest, []
    for seq, approval in enumerate(notes.approvals):
        text = plain_json({**asdict(approval), "prev": previous, "seq": seq})
        previous = sha256_hex(text.encode())
        links.append(f'{_BEFORE_HASH}{previous}","approval":{text}}}')
    rendered = f',"approvals":[{",".join(links)}]' if links else ""
    if notes.restarts:
        rendered += f',"restarts":{RESTARTS.text(notes.restarts)}'
    return f'],"digest":"{digest}"{rendered}}}'


def read_entries(lines: Iterable[str], notes: Notes | None = None) -> Iterator[TraceEntry]:
    """Check and yield every entry; BadTrace names the first one that was changed.

    The notes after the digest are checked too, and stored in `notes`.
    """
    rest = iter(lines)
    opening = next(rest, "")
    if opening == OPENING + "\r\n":
        remedy = "Fetch the file again, as binary."
        raise BadTrace("The line endings were converted to CRLF.", entry="format", remedy=remedy)
    if opening != OPENING + "\n":
        raise _other_format(opening, next(rest, ""))
    previous, seq, open_ended = START, 0, True
    for raw in rest:
        line = raw.removesuffix("\n")
        if line == raw:
            problem = f"Line {seq + 2} does not end with a line feed."
            raise BadTrace(problem, entry=f"#{seq}", remedy="It was cut: fetch it again.")
        if line.startswith("]"):
            if open_ended and seq:
                raise BadTrace("A comma follows the last entry.", entry=f"#{seq - 1}")
            found = _read_ending(line, previous)
            if notes is not None:
                notes.approvals, notes.restarts = found.approvals, found.restarts
            if next(rest, None) is not None:
                raise BadTrace("Something follows the digest.", entry="digest")
            return
        if not open_ended:
            raise BadTrace(f"Line {seq + 2} follows an entry without a comma.", entry=f"#{seq}")
        open_ended = line.endswith(",")
        entry = _read_line(line.removesuffix(","), seq, previous)
        previous, seq = entry.hash, seq + 1
        yield entry
    raise BadTrace("The file ends before its digest.", entry=f"#{seq}", remedy="It was cut: fetch it again.")


def _other_format(opening: str, header: str) -> BadTrace:
    """Return the error for another format; for our older ones it names the version that wrote the file."""
    ours = _OTHER_FORMAT.fullmatch(opening)
    if ours is None:
        return BadTrace(f"The file does not begin as {FORMAT}.", entry="format", remedy="Is this a trace file?")
    try:
        body = json.loads(header.rstrip(",\n"))["entry"]["body"]
        writer = f"{str(body['software'])[:60]!r} under rules {str(body['rules'])[:20]}"
    except (ValueError, LookupError, TypeError, RecursionError):
        writer = "a version that its header does not name"
    return BadTrace(
        f"The trace has the format {ours[1]} and was written by {writer}; this version reads {FORMAT}. "
        "Nothing was checked.",
        entry="format",
        remedy="Check it with the version that wrote it.",
    )


def _read_line(line: str, seq: int, previous: str) -> TraceEntry:
    head = len(_BEFORE_HASH) + 66 + len(_BEFORE_ENTRY)
    claimed = line[len(_BEFORE_HASH) : len(_BEFORE_HASH) + 66]
    text = line[head:-1]
    framed = line.startswith(_BEFORE_HASH) and line[head - len(_BEFORE_ENTRY) : head] == _BEFORE_ENTRY
    if not framed or not line.endswith("}"):
        raise _bad_entry(text, seq, "is not framed as an entry.")
    actual = sha256_hex(text.encode())
    if actual != claimed:
        raise _bad_entry(text, seq, f"was changed: its bytes hash to {actual}, the line says {claimed}.")
    try:  # a forger can compute a valid hash, so check the content too
        entry = _DECODER.decode(text)
        is_plain = plain_json(entry) == text and is_encodable(entry)
    except (ValueError, RecursionError) as bad:
        raise _bad_entry(text, seq, f"is not JSON ({type(bad).__name__}).") from None
    if not is_plain:
        why = "a key twice or out of order, white space, or another escape or form of a number than ours"
        raise _bad_entry(text, seq, f"is not in the plain JSON form: {why}.")
    if not isinstance(entry, dict) or entry.keys() != _FIELDS or not isinstance(entry["key"], str):
        raise _bad_entry(text, seq, f"has not the fields {', '.join(sorted(_FIELDS))}.")
    if entry["prev"] != previous or entry["seq"] != seq:
        raise _bad_entry(text, seq, "does not follow the entry before it.")
    return TraceEntry(seq, entry["key"], entry["body"], actual)


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or abs(int(digits)) > _LARGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits is above 2^53")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_parse_integer)


def _bad_entry(text: str, seq: int, problem: str) -> BadTrace:
    """Return the error for an entry, named by its number and, if readable, its key."""
    try:
        name = f"#{seq} {str(_DECODER.decode(text)['key'])[:120]}"
    except (ValueError, KeyError, TypeError, RecursionError):
        name = f"#{seq}"
    return BadTrace(f"Entry {name} {problem}", entry=name)


def _read_ending(line: str, digest: str) -> Notes:
    """Read the notes in the last line, which must be exactly as `_render_ending` writes it."""
    try:
        ending = _DECODER.decode("{" + line.removeprefix("],"))
        links = [link["approval"] for link in ending.get("approvals", [])]
        approvals = [{name: link[name] for name in link.keys() - {"prev", "seq"}} for link in links]
        notes = Notes(_APPROVALS.read(approvals), RESTARTS.read(ending.get("restarts", [])))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        notes = Notes()  # the comparison below fails
    for approval in notes.approvals:
        if approval.at < 0 or approval.of != digest or not is_encodable([approval.by, approval.note]):
            problem = f"An approval names the result {approval.of[:80]}; this one is {digest}."
            raise BadTrace(problem, entry="approvals")
    if line != _render_ending(digest, notes) or not is_encodable(to_camel_json(notes.restarts)):
        raise BadTrace(f"The digest line is not that of the entries, which is {digest}.", entry="digest")
    return notes


class TraceFile:
    """An open trace file; a context manager that closes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def at(cls, path: Path) -> TraceFile:
        """Open the file; one that is not seekable, such as a pipe, is copied first."""
        file = path.open("rb")
        if file.seekable():
            return cls(file)
        with file:
            copy = TemporaryFile()  # noqa: SIM115 - `close` closes it
            copyfileobj(file, copy)
        return cls(copy)

    @classmethod
    async def of(cls, pieces: AsyncIterable[str | bytes]) -> TraceFile | None:
        """Collect a stream of pieces in a temporary file; None if it is empty."""
        file = TemporaryFile()  # noqa: SIM115 - `close` closes it
        async for piece in pieces:
            file.write(piece.encode() if isinstance(piece, str) else piece)
        return cls(file) if file.tell() else None

    def __iter__(self) -> Iterator[str]:
        """Yield every line from the first; BadTrace if one is not UTF-8."""
        number = place = 0
        while True:
            self._file.seek(place)  # other iterators may have moved it
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


class _FileMapping(Mapping[str, T]):
    """A mapping whose values are texts in a temporary file; memory holds only their offsets."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - closed by the garbage collector
        self._ends = array("Q", [0])
        self._number_of: dict[str, int] = {}

    def _add(self, text: str) -> None:
        self._ends.append(self._ends[-1] + self._file.write(text.encode()))

    def _text(self, number: int) -> str:
        begin, end = self._ends[number], self._ends[number + 1]
        self._file.seek(begin)
        text = self._file.read(end - begin).decode()
        self._file.seek(self._ends[-1])
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self._number_of)

    def __len__(self) -> int:
        return len(self._number_of)


class Evidence(_FileMapping[object]):
    """The body of each entry by its key; if a key repeats, the last one, as in any JSON object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raise BadTrace for the first line that was changed."""
        super().__init__()
        self._cache: dict[str, object] = {}  # entries about the whole round, which are read often
        self.notes = Notes()
        self.digest = ""
        for entry in read_entries(self._store_lines(lines), self.notes):
            self._number_of[entry.key] = entry.seq
            self.digest = entry.hash

    @property
    def count(self) -> int:
        """Number of entries; there may be fewer keys."""
        return max(0, len(self._ends) - 3)  # the first and last lines are no entries

    def at(self, seq: int) -> tuple[str, object]:
        entry = json.loads(self._text(seq + 1).rstrip(",\n"))["entry"]
        return entry["key"], entry["body"]

    def __getitem__(self, key: str) -> object:
        if key in self._cache:
            return self._cache[key]
        body = self.at(self._number_of[key])[1]
        if "/" not in key:
            self._cache[key] = body
        return body

    def _store_lines(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self._add(line)
            yield line


_PAID = JsonCodec(PaidAnswer)


class KeptAnswers(_FileMapping[PaidAnswer]):
    """Paid answers by request, kept in a temporary file."""

    def keep(self, paid: PaidAnswer) -> None:
        """Add an answer, unless its request already has one."""
        if paid.request not in self._number_of:
            self._number_of[paid.request] = len(self._number_of)
            self._add(_PAID.text(paid))

    def __getitem__(self, request: str) -> PaidAnswer:
        return _PAID.read_text(self._text(self._number_of[request]))


_RESTART = (
    "The code or its data changed while this evaluation was running: use the version that began it, or start the "
    "evaluation again with `evaluate --restart`."
)


class Journal:
    """The journal of one run. The first write of a key wins, so a second run continues the first."""

    def __init__(self, entries: JournalEntries, run: str) -> None:
        self._entries = entries
        self.run = run

    async def saved(self, key: str, form: JsonCodec[T]) -> T | None:
        text = await self._entries.entry(self.run, key)
        return None if text is None else self._read(key, form, text)

    async def has(self, prefix: str) -> bool:
        return bool(await self._entries.entries(self.run, prefix))

    async def all(self, prefix: str, form: JsonCodec[T]) -> tuple[T, ...]:
        return tuple(self._read(key, form, text) for key, text in await self._entries.entries(self.run, prefix))

    async def keep(self, key: str, form: JsonCodec[T], value: T) -> T:
        """Save the value unless the key has one; return the saved one."""
        return self._read(key, form, await self._entries.add_entry(self.run, key, form.text(value)))

    async def once(self, key: str, form: JsonCodec[T], make: Callable[[], Awaitable[T]]) -> T:
        """Return the saved value, or make and save it."""
        saved = await self.saved(key, form)
        return await self.keep(key, form, await make()) if saved is None else saved

    def _read(self, key: str, form: JsonCodec[T], text: str) -> T:
        try:
            return form.read_text(text)
        except ValueError as bad:
            problem = f"The step {key!r} of run {self.run} was recorded in another form than this version reads."
            raise Disagrees(problem, remedy=_RESTART) from bad

    async def note(self, key: str, value: object) -> None:
        """Save a deterministic result as JSON; Disagrees if an earlier run saved another one."""
        text = plain_json(value)
        if await self._entries.add_entry(self.run, key, text) != text:
            raise Disagrees(f"The step {key!r} of run {self.run} gives another result than before.", remedy=_RESTART)

    async def drop(self, *keys: str, prefix: str | None = None) -> None:
        found = await self._entries.entries(self.run, prefix) if prefix else []
        for key in (*keys, *(key for key, _ in found)):
            await self._entries.forget_entry(self.run, key)

    async def drop_unreadable(self, key: str, form: JsonCodec[T]) -> None:
        """Drop the entry if this version cannot read it."""
        try:
            await self.saved(key, form)
        except Disagrees:
            await self.drop(key)

    async def forget(self) -> None:
        """Delete the journal of this run; paid answers are stored elsewhere and stay."""
        await self._entries.forget_run(self.run)
