"""The document chain: what is written is read back, and any changed byte is refused by name."""

from __future__ import annotations

import json
import subprocess
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import sha256_hex
from clara_eval.evaluation.trace import Approval, Notes, Restart, TraceFile, TraceWriter, read_entries, render

BODIES = [("header", {"a": 1}), ("solution/0x1", {"text": "x < y & \u2028 z"}), ("ranking", [1.5, None, True])]


def document(bodies: list[tuple[str, object]], *notes: str) -> str:
    writer = TraceWriter()
    lines = [writer.line(key, body) for key, body in bodies]
    approvals = [Approval(writer.digest, 1_700_000_000 + number, "Ada", note) for number, note in enumerate(notes)]
    return "".join(render(lines, writer.digest, Notes(approvals)))


def test_a_document_is_json_and_reads_back() -> None:
    """A trace is one valid JSON document whose entries come back as written."""
    text = document(BODIES)
    assert [e["entry"]["key"] for e in json.loads(text)["entries"]] == [key for key, _ in BODIES]
    assert [(e.key, e.body) for e in read_entries(text.splitlines(keepends=True))] == BODIES


@given(position=st.integers(0), replacement=st.characters(codec="ascii"))
def test_any_changed_character_is_refused(position: int, replacement: str) -> None:
    """Whichever character is changed, reading fails."""
    text = document(BODIES)
    position %= len(text) - 1
    if text[position] == replacement:
        return
    changed = text[:position] + replacement + text[position + 1 :]
    with pytest.raises(BadTrace):
        list(read_entries(changed.splitlines(keepends=True)))


@given(position=st.integers(0), replacement=st.characters(codec="ascii"))
def test_any_changed_character_of_an_approval_is_refused(position: int, replacement: str) -> None:
    """The last line is chained like the others, from the digest on."""
    text = document(BODIES, "looked at \u2028 it", "and again")
    start = text.rindex("\n", 0, -1) + 1
    position = start + position % (len(text) - 1 - start)
    if text[position] == replacement:
        return
    changed = text[:position] + replacement + text[position + 1 :]
    with pytest.raises(BadTrace):
        list(read_entries(changed.splitlines(keepends=True)))


def test_approvals_stand_after_the_digest_that_they_name() -> None:
    """They come back as written and leave the digest as it was; one of another result is refused, however it is hashed."""
    plain, approved = document(BODIES), document(BODIES, "looked at it", "and again")
    found = Notes()
    entries = list(read_entries(approved.splitlines(keepends=True), found))
    digest = entries[-1].hash
    assert [(one.of, one.note) for one in found.approvals] == [(digest, "looked at it"), (digest, "and again")]
    assert json.loads(plain)["digest"] == json.loads(approved)["digest"] == digest
    assert [e.key for e in read_entries(plain.splitlines(keepends=True), found)] == [key for key, _ in BODIES]
    assert found == Notes()
    *lines, _ = plain.splitlines(keepends=True)
    of_another = "".join(render([], digest, Notes([Approval("0x" + "11" * 32, 1, "Ada", "")]))).splitlines(
        keepends=True
    )[-1]
    with pytest.raises(BadTrace, match="An approval names the result 0x11"):
        list(read_entries([*lines, of_another]))


def test_restarts_are_noted_after_the_digest() -> None:
    """They come back as written beside approvals; with another form or unknown keys they are refused."""
    *lines, _ = document(BODIES).splitlines(keepends=True)
    digest = list(read_entries(document(BODIES).splitlines(keepends=True)))[-1].hash
    notes, found = Notes([Approval(digest, 7, "Ada", "")], [Restart(5, "1", "2", 3), Restart(5, "2", "1", 4)]), Notes()
    ending = list(render([], digest, notes))[-1]
    list(read_entries([*lines, ending], found))
    assert found == notes
    for change in (('"at":5', '"at":5.0'), ('"at"', '"about":1,"at"'), ('"answers":3,', ""), ("[{", "[[],{")):
        with pytest.raises(BadTrace, match="The digest line"):
            list(read_entries([*lines, ending.replace(*change)]))


def test_the_changed_entry_is_named() -> None:
    """A change inside one entry is reported with that entry's number and key."""
    with pytest.raises(BadTrace) as caught:
        list(read_entries(document(BODIES).replace("x < y", "x > y").splitlines(keepends=True)))
    assert caught.value.entry == "#1 solution/0x1"


def test_a_cut_or_reordered_document_is_refused() -> None:
    """Missing or swapped lines are refused."""
    lines = document(BODIES).splitlines(keepends=True)
    with pytest.raises(BadTrace, match="ends before"):
        list(read_entries(lines[:-1]))
    with pytest.raises(BadTrace, match="follow"):
        list(read_entries([lines[0], lines[2], lines[1], *lines[3:]]))


def test_a_comma_after_the_last_entry_is_refused() -> None:
    """A document that is no JSON any more is not called whole."""
    with pytest.raises(BadTrace, match="comma") as caught:
        list(read_entries(document(BODIES).replace("}\n]", "},\n]").splitlines(keepends=True)))
    assert caught.value.entry == "#2"


def test_a_stranger_can_check_a_line_with_sha256sum() -> None:
    """The hash of a line is that of its entry bytes, by a tool that knows nothing of us."""
    line = document(BODIES).splitlines()[2].removesuffix(",")
    entry = line[line.index('"entry":') + 8 : -1]
    digest = subprocess.run(["sha256sum"], input=entry.encode(), capture_output=True, check=True).stdout.split()[0]
    assert line[9:75] == "0x" + digest.decode()


def trace_lines(content: bytes) -> TraceFile:
    return TraceFile(BytesIO(content))


def test_only_a_line_feed_ends_a_line() -> None:
    """Line endings that other programs would take for the same are changes, and converted ones are called that."""
    content = document(BODIES).encode()
    assert [entry.key for entry in read_entries(trace_lines(content))] == [key for key, _ in BODIES]
    for ending in (b"\r", b"\x0b", b"\x0c", b"\xe2\x80\xa8"):
        with pytest.raises(BadTrace):
            list(read_entries(trace_lines(content.replace(b",\n", b"," + ending, 1))))
    with pytest.raises(BadTrace, match="CRLF"):
        list(read_entries(trace_lines(content.replace(b"\n", b"\r\n"))))


def test_a_byte_that_is_no_text_names_its_entry() -> None:
    """A byte that breaks UTF-8 is reported with the number of the entry it stands in."""
    content = document(BODIES).encode().replace(b"x < y", b"x \xff y")
    with pytest.raises(BadTrace, match="Line 3 is not UTF-8") as caught:
        list(trace_lines(content))
    assert caught.value.entry == "#1"


def test_a_trace_of_an_older_format_is_told_from_no_trace() -> None:
    """A file in the first format is named with the version that wrote it; a stranger's file is not called a trace."""
    first = document([("header", {"software": "clara-eval 0.1.0", "rules": 1})]).replace("trace/2", "trace/1")
    with pytest.raises(BadTrace, match=r"trace/1 and was written by 'clara-eval 0\.1\.0' under rules 1.*Nothing was"):
        list(read_entries(trace_lines(first.encode())))
    headless = first.splitlines(keepends=True)[:1]
    with pytest.raises(BadTrace, match="its header does not name") as caught:
        list(read_entries(headless))
    assert caught.value.remedy == "Check it with the version that wrote it."
    with pytest.raises(BadTrace) as caught:
        list(read_entries(['{"format":"other"}\n']))
    assert caught.value.remedy == "Is this a trace file?"


@pytest.mark.parametrize("text", ["null", "[]", "{}", "1", "not json", '{"seq":0}', "[" * 5000, '{"key":1,"seq":0}'])
def test_a_right_hash_over_something_else_is_refused(text: str) -> None:
    """Whoever forges an entry can hash it too; what is no entry is refused all the same."""
    digest = sha256_hex(text.encode())
    lines = "".join(render([f'{{"hash":"{digest}","entry":{text}}}'], digest))
    with pytest.raises(BadTrace) as caught:
        list(read_entries(trace_lines(lines.encode())))
    assert caught.value.entry.startswith("#0")
