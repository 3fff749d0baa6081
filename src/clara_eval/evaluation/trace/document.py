"""The trace as a document: one JSON file, one entry a line, each line chained to the one before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.core.strict_json import is_encodable

FORMAT = "clara-eval-trace/2"
OPENING = '{"format":"' + FORMAT + '","entries":['
START = "0x" + "0" * 64
_FIELDS = {"body", "key", "prev", "seq"}
_APPROVED = ("of", "at", "by", "note")
_LARGEST_INTEGER = 2**53
_MOST_DIGITS = 17
"""Of an integer with its sign: more are not converted, which would take long."""
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

    of: str
    """The digest of the trace that the person looked at."""
    at: int
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Another version of the program began the round; `finished_by` started it again."""

    at: int
    """By the chain's clock."""
    begun_by: str
    finished_by: str
    answers: int
    """Paid before, and used again."""


@dataclass(slots=True)
class Notes:
    """Said beside the result: the digest does not cover it."""

    approvals: list[Approval] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)


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
    numbered = iter(enumerate(lines))
    _, opening = next(numbered, (0, ""))
    if opening == OPENING + "\r\n":
        raise BadTrace(
            "The line endings were converted to CRLF.", entry="format", remedy="Fetch the file again, as binary."
        )
    if opening != OPENING + "\n":
        raise _other_format(opening, next(numbered, (1, ""))[1])
    previous, seq, open_ended = START, 0, True
    for number, raw in numbered:
        line = raw.removesuffix("\n")
        if line == raw:
            problem = f"Line {number + 1} does not end with a line feed."
            raise BadTrace(problem, entry=f"#{seq}", remedy="It was cut: fetch it again.")
        if line.startswith("]"):
            if open_ended and seq:
                raise BadTrace("A comma follows the last entry.", entry=f"#{seq - 1}")
            found = _read_ending(line, previous)
            if notes is not None:
                notes.approvals, notes.restarts = found.approvals, found.restarts
            if next(numbered, None) is not None:
                raise BadTrace("Something follows the digest.", entry="digest")
            return
        if not open_ended:
            raise BadTrace(f"Line {number + 1} follows an entry without a comma.", entry=f"#{seq}")
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
    notes = Notes()
    try:
        told = _DECODER.decode("{" + line.removeprefix("],"))
        links = [link["approval"] for link in told.get("approvals", [])]
        notes.approvals += [Approval(**{name: link[name] for name in _APPROVED}) for link in links]
        notes.restarts += RESTARTS.read(told.get("restarts", []))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        notes = Notes()  # the comparison below shows that the line is not readable
    for approval in notes.approvals:
        typed = (
            type(approval.at) is int
            and approval.at >= 0
            and isinstance(approval.by, str)
            and isinstance(approval.note, str)
        )
        if not typed or approval.of != digest or not is_encodable([approval.by, approval.note]):
            raise BadTrace(
                f"An approval names the result {str(approval.of)[:80]}; this one is {digest}.", entry="approvals"
            )
    if line != _ending(digest, notes) or not is_encodable(RESTARTS.body(notes.restarts)):
        raise BadTrace(f"The digest line is not that of the entries, which is {digest}.", entry="digest")
    return notes
