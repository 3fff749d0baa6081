"""The trace as a document: one JSON file, one entry a line, each line chained to the one before.

Invariant: of a trace that is read, its evidence or the answers for it, one entry is in memory at a time.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Self

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.core.strict_json import is_encodable
from clara_eval.judge.port import PaidAnswer

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
    entry = _entry(text, seq)
    if entry["prev"] != previous or entry["seq"] != seq:
        raise _bad(text, seq, "does not follow the entry before it.")
    return TraceEntry(seq, str(entry["key"]), entry["body"], actual)


def _entry(text: str, seq: int) -> dict[str, object]:
    """A right hash is easily computed, so it says nothing about what was hashed."""
    try:
        entry = _DECODER.decode(text)
        is_plain = plain_json(entry) == text and is_encodable(entry)
    except (ValueError, RecursionError) as bad:
        raise _bad(text, seq, f"is not JSON ({type(bad).__name__}).") from None
    if not is_plain:
        why = "a key twice or out of order, white space, or another escape or form of a number than ours"
        raise _bad(text, seq, f"is not in the plain JSON form: {why}.")
    if not isinstance(entry, dict) or entry.keys() != _FIELDS or not isinstance(entry["key"], str):
        raise _bad(text, seq, f"has not the fields {', '.join(sorted(_FIELDS))}.")
    return entry


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
    if line != _ending(digest, notes) or not is_encodable(RESTARTS.body(notes.restarts)):
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
        with ExitStack() as closing:
            file = closing.enter_context(TemporaryFile())
            async for piece in pieces:
                file.write(piece.encode() if isinstance(piece, str) else piece)
            if not file.tell():
                return None
            closing.pop_all()
        return cls(file)

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


class Evidence(Mapping[str, object]):
    """The body of each entry by its key; of several with one key the last, as in any JSON object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises BadTrace for the first line that is not as it was written."""
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
        self._ends = array("Q", [0])
        self._seq_of: dict[str, int] = {}
        self._single: dict[str, object] = {}
        """Of those asked for: what concerns the whole round and is asked for again and again."""
        self.notes = Notes()
        self.digest = ""
        for entry in read_entries(self._kept(lines), self.notes):
            self._seq_of[entry.key] = entry.seq
            self.digest = entry.hash

    @property
    def count(self) -> int:
        """Of the entries; there may be fewer keys."""
        return max(0, len(self._ends) - 3)  # the file's first and last lines are no entries

    def at(self, seq: int) -> tuple[str, object]:
        begin, end = self._ends[seq + 1], self._ends[seq + 2]
        self._file.seek(begin)
        line = self._file.read(end - begin).decode()
        entry = json.loads(line.rstrip(",\n"))["entry"]
        return entry["key"], entry["body"]

    def __getitem__(self, key: str) -> object:
        if key in self._single:
            return self._single[key]
        body = self.at(self._seq_of[key])[1]
        if "/" not in key:
            self._single[key] = body
        return body

    def __iter__(self) -> Iterator[str]:
        return iter(self._seq_of)

    def __len__(self) -> int:
        return len(self._seq_of)

    def _kept(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            written = self._file.write(line.encode())
            self._ends.append(self._ends[-1] + written)
            yield line


_PAID = JsonCodec(PaidAnswer)


class KeptAnswers(Mapping[str, PaidAnswer]):
    """Answers by request, read one at a time from a file; memory holds where each lies."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - it is closed when this is forgotten
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0

    def keep(self, paid: PaidAnswer) -> None:
        """One request has one answer, however often it is asked."""
        if paid.request in self._places:
            return
        self._file.seek(self._end)
        length = self._file.write(_PAID.text(paid).encode())
        self._places[paid.request] = self._end, length
        self._end += length

    def __getitem__(self, request: str) -> PaidAnswer:
        begin, length = self._places[request]
        self._file.seek(begin)
        return _PAID.read_text(self._file.read(length).decode())

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
