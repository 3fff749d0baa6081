"""The trace, one JSON file with an entry a line, each chained to the one before; and the journal of a run.

Invariant: of a trace that is read, its evidence or the answers for it, one entry is in memory at a time.
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
_MOST_DIGITS = 17  # of an integer with its sign: more are not converted, which would take long
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
    """Turns (key, body) into chained lines; `digest` is the hash of the last one."""

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
    """A person's word that exactly this result may be posted."""

    of: str  # the digest of the trace that the person looked at
    at: int
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Another version of the program began the round; `finished_by` started it again."""

    at: int  # by the chain's clock
    begun_by: str
    finished_by: str
    answers: int  # paid before, and used again


@dataclass(slots=True)
class Notes:
    """Said beside the result: the digest does not cover it."""

    approvals: list[Approval] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)


_APPROVALS = JsonCodec(list[Approval])
RESTARTS = JsonCodec(list[Restart])


def render(lines: Iterable[str], digest: str, notes: Notes | None = None) -> Iterator[str]:
    yield OPENING + "\n"
    waiting: str | None = None
    for line in lines:
        if waiting is not None:
            yield waiting + ",\n"
        waiting = line
    if waiting is not None:
        yield waiting + "\n"
    yield _ending(digest, notes or Notes()) + "\n"


def _ending(digest: str, notes: Notes) -> str:
    previous, links = digest, []
    for seq, approval in enumerate(notes.approvals):
        text = plain_json({**asdict(approval), "prev": previous, "seq": seq})
        previous = sha256_hex(text.encode())
        links.append(f'{_BEFORE_HASH}{previous}","approval":{text}}}')
    told = f',"approvals":[{",".join(links)}]' if links else ""
    if notes.restarts:
        told += f',"restarts":{RESTARTS.text(notes.restarts)}'
    return f'],"digest":"{digest}"{told}}}'


def read_entries(lines: Iterable[str], notes: Notes | None = None) -> Iterator[TraceEntry]:
    """Check and yield every entry; the first byte that is not as written is named with its entry.

    What is noted after the digest has its form, too, and is written into `notes`.
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
    """The error about a file in another format; of ours it names the version that wrote it."""
    ours = _OTHER_FORMAT.fullmatch(opening)
    if ours is None:
        return BadTrace(f"The file does not begin as {FORMAT}.", entry="format", remedy="Is this a trace file?")
    try:
        told = json.loads(header.rstrip(",\n"))["entry"]["body"]
        writer = f"{str(told['software'])[:60]!r} under rules {str(told['rules'])[:20]}"
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
        raise _bad(text, seq, "is not framed as an entry.")
    actual = sha256_hex(text.encode())
    if actual != claimed:
        raise _bad(text, seq, f"was changed: its bytes hash to {actual}, the line says {claimed}.")
    try:  # a right hash is easily computed, so it says nothing about what was hashed
        entry = _DECODER.decode(text)
        is_plain = plain_json(entry) == text and is_encodable(entry)
    except (ValueError, RecursionError) as bad:
        raise _bad(text, seq, f"is not JSON ({type(bad).__name__}).") from None
    if not is_plain:
        why = "a key twice or out of order, white space, or another escape or form of a number than ours"
        raise _bad(text, seq, f"is not in the plain JSON form: {why}.")
    if not isinstance(entry, dict) or entry.keys() != _FIELDS or not isinstance(entry["key"], str):
        raise _bad(text, seq, f"has not the fields {', '.join(sorted(_FIELDS))}.")
    if entry["prev"] != previous or entry["seq"] != seq:
        raise _bad(text, seq, "does not follow the entry before it.")
    return TraceEntry(seq, entry["key"], entry["body"], actual)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or abs(int(digits)) > _LARGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits is above 2^53")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def _bad(text: str, seq: int, problem: str) -> BadTrace:
    """The error about an entry, named by its number and its key if that can still be read."""
    try:
        name = f"#{seq} {str(_DECODER.decode(text)['key'])[:120]}"
    except (ValueError, KeyError, TypeError, RecursionError):
        name = f"#{seq}"
    return BadTrace(f"Entry {name} {problem}", entry=name)


def _read_ending(line: str, digest: str) -> Notes:
    """What is noted in the last line, which must be exactly what that and the entries give."""
    try:
        told = _DECODER.decode("{" + line.removeprefix("],"))
        links = [link["approval"] for link in told.get("approvals", [])]
        said = [{name: link[name] for name in link.keys() - {"prev", "seq"}} for link in links]
        notes = Notes(_APPROVALS.read(said), RESTARTS.read(told.get("restarts", [])))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        notes = Notes()  # the comparison below shows that the line is not readable
    for approval in notes.approvals:
        if approval.at < 0 or approval.of != digest or not is_encodable([approval.by, approval.note]):
            told = f"An approval names the result {approval.of[:80]}; this one is {digest}."
            raise BadTrace(told, entry="approvals")
    if line != _ending(digest, notes) or not is_encodable(to_camel_json(notes.restarts)):
        raise BadTrace(f"The digest line is not that of the entries, which is {digest}.", entry="digest")
    return notes


class TraceFile:
    """Used in a `with`, which closes the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def at(cls, path: Path) -> TraceFile:
        """Open the file of this name; one that can be read only once, as a pipe, is copied first."""
        file = path.open("rb")
        if file.seekable():
            return cls(file)
        with file:
            kept = TemporaryFile()  # noqa: SIM115 - whoever gets it closes it
            copyfileobj(file, kept)
        return cls(kept)

    @classmethod
    async def of(cls, pieces: AsyncIterable[str | bytes]) -> TraceFile | None:
        """Keep what arrives in pieces, cut anywhere; None if nothing arrives."""
        file = TemporaryFile()  # noqa: SIM115 - whoever gets it closes it
        async for piece in pieces:
            file.write(piece.encode() if isinstance(piece, str) else piece)
        return cls(file) if file.tell() else None

    def __iter__(self) -> Iterator[str]:
        """Every line, from the first; BadTrace for one that is not UTF-8."""
        number = place = 0
        while True:
            self._file.seek(place)  # two may read at the same time
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


class _FiledTexts(Mapping[str, T]):
    """Values by key, kept as texts in a file; memory holds where each lies."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
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


class Evidence(_FiledTexts[object]):
    """The body of each entry by its key; of several with one key the last, as in any JSON object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises BadTrace for the first line that is not as it was written."""
        super().__init__()
        self._single: dict[str, object] = {}
        """Of those asked for: what concerns the whole round and is asked for again and again."""
        self.notes = Notes()
        self.digest = ""
        for entry in read_entries(self._kept(lines), self.notes):
            self._number_of[entry.key] = entry.seq
            self.digest = entry.hash

    @property
    def count(self) -> int:
        """Of the entries; there may be fewer keys."""
        return max(0, len(self._ends) - 3)  # the file's first and last lines are no entries

    def at(self, seq: int) -> tuple[str, object]:
        entry = json.loads(self._text(seq + 1).rstrip(",\n"))["entry"]
        return entry["key"], entry["body"]

    def __getitem__(self, key: str) -> object:
        if key in self._single:
            return self._single[key]
        body = self.at(self._number_of[key])[1]
        if "/" not in key:
            self._single[key] = body
        return body

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self._add(line)
            yield line


_PAID = JsonCodec(PaidAnswer)


class KeptAnswers(_FiledTexts[PaidAnswer]):
    """Answers by request, read one at a time from a file."""

    def keep(self, paid: PaidAnswer) -> None:
        """One request has one answer, however often it is asked."""
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
    """The journal of one run. The first write of a key counts, so a second run continues the first."""

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
        """Save this result unless there is one already; return the saved one."""
        return self._read(key, form, await self._entries.add_entry(self.run, key, form.text(value)))

    async def once(self, key: str, form: JsonCodec[T], make: Callable[[], Awaitable[T]]) -> T:
        """The saved result, or the one made now and saved."""
        saved = await self.saved(key, form)
        return await self.keep(key, form, await make()) if saved is None else saved

    def _read(self, key: str, form: JsonCodec[T], text: str) -> T:
        try:
            return form.read_text(text)
        except ValueError as bad:
            told = f"The step {key!r} of run {self.run} was recorded in another form than this version reads."
            raise Disagrees(told, remedy=_RESTART) from bad

    async def note(self, key: str, value: object) -> None:
        """Save a pure result as JSON; a second run must give the same."""
        text = plain_json(value)
        if await self._entries.add_entry(self.run, key, text) != text:
            raise Disagrees(f"The step {key!r} of run {self.run} gives another result than before.", remedy=_RESTART)

    async def drop(self, *keys: str, prefix: str | None = None) -> None:
        below = await self._entries.entries(self.run, prefix) if prefix else []
        for key in (*keys, *(key for key, _ in below)):
            await self._entries.forget_entry(self.run, key)

    async def drop_unreadable(self, key: str, form: JsonCodec[T]) -> None:
        """Drop an entry that another version wrote in a form that this one does not read."""
        try:
            await self.saved(key, form)
        except Disagrees:
            await self.drop(key)

    async def forget(self) -> None:
        """Start anew. Paid answers are kept elsewhere and stay."""
        await self._entries.forget_run(self.run)
