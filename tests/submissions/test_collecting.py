"""One submission, one verdict: bytes checked against the chain, read whole, judged or refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.collecting import collect_solution

from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission, Temporary
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.model import Submission
from clara_eval.submissions.files import estimate_tokens
from clara_eval.submissions.model import (
    MAX_BYTES,
    MAX_TOKENS,
    REJECTIONS,
    Fetched,
    Outage,
    Rejected,
    Solution,
)

URI = "https://example.com/solution.py"
CODE = b"def fee(volume):\n    return volume // 1000\n"


@dataclass
class ScriptedFetch:
    """Gives the scripted outcomes one after another; the last one stays."""

    outcomes: list[Fetched | Exception]
    asked: list[str] = field(default_factory=list)

    async def fetch(self, uri: str) -> Fetched:
        self.asked.append(uri)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def submission(solution_hash: str, uri: str = URI) -> Submission:
    return Submission(Address("0x" + "cd" * 20), 7, uri, solution_hash, 100, 1)


def fetched(content: bytes, *, immutable: bool = False) -> Fetched:
    return Fetched(content, "text/plain", immutable, "a note")


async def verdict(content: bytes, language: str | None = None) -> Solution | Rejected:
    found = submission(keccak_hex(content))
    return await collect_solution(ScriptedFetch([fetched(content)]), found, language=language)


async def test_the_solution_carries_what_was_checked() -> None:
    """Bytes, text, both hashes, language and note are those of the content."""
    solution = await verdict(CODE)
    assert solution == Solution(
        submission=submission(keccak_hex(CODE)),
        content=CODE,
        text=CODE.decode(),
        media_type="text/plain",
        content_keccak=keccak_hex(CODE),
        content_sha256=sha256_hex(CODE),
        hash_kind="content",
        pinned=True,
        language="python",
        note="a note",
    )


@pytest.mark.parametrize("immutable", [True, False])
async def test_a_hash_over_the_uri_pins_only_what_the_uri_fixes(*, immutable: bool) -> None:
    """As existing clients do it: accepted, recorded as such, and pinned only behind a content-addressed URI."""
    fetch = ScriptedFetch([fetched(CODE, immutable=immutable)])
    solution = await collect_solution(fetch, submission(keccak_hex(URI.encode()).upper().replace("0X", "0x")))
    assert isinstance(solution, Solution)
    assert (solution.hash_kind, solution.pinned) == ("uri", immutable)


@pytest.mark.parametrize("committed", ["0x" + "00" * 32, keccak_hex(CODE + b" "), sha256_hex(CODE), "", "nonsense"])
async def test_any_other_hash_is_a_wrong_hash(committed: str) -> None:
    """Neither a zero hash nor another hash function nor other bytes pass."""
    rejected = await collect_solution(ScriptedFetch([fetched(CODE)]), submission(committed))
    assert isinstance(rejected, Rejected)
    assert rejected.code == "wrong_hash"


async def test_the_hash_is_over_raw_bytes() -> None:
    """A byte order mark or another line ending is other content, and is kept as it is."""
    for content in (b"\xef\xbb\xbf" + CODE, CODE.replace(b"\n", b"\r\n")):
        solution = await verdict(content)
        assert isinstance(solution, Solution)
        assert solution.text.encode() == content


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b":", "empty"),
        (b"Thought process:", "empty"),
        (b"........................................", "empty"),
        (b"\x00\x01", "binary"),
        (CODE.decode().encode("utf-16"), "binary"),
        (b"%PDF-1.7 text text text text", "binary"),
        (b"a b c d e f g h \x01\x02\x03", "binary"),
        (CODE + b"\xff", "not_utf8"),
        (CODE + b"\xed\xa0\x80", "not_utf8"),
        (CODE + b"\xc0\xaf", "not_utf8"),
    ],
)
async def test_content_that_is_no_text_is_refused_not_repaired(content: bytes, code: str) -> None:
    """Empty, flattering nothings, binary and malformed UTF-8 each get their code."""
    rejected = await verdict(content)
    assert isinstance(rejected, Rejected)
    assert rejected.code == code


async def test_limits_hold_at_the_edge_and_nothing_is_cut() -> None:
    """The last allowed byte is read, one more is a rejection; rare characters count by what they cost."""
    whole = b"abcdefg " * (MAX_BYTES // 8)
    assert isinstance(await verdict(whole), Solution)
    too_long = await verdict(whole + b"x")
    costly = await verdict(f"word word word word {'𒀀' * (MAX_TOKENS // 4)}".encode())
    for rejected in (too_long, costly):
        assert isinstance(rejected, Rejected)
        assert rejected.code == "too_large"
    assert estimate_tokens("abc") == 1
    assert estimate_tokens("𒀀" * 10) == 40


async def test_an_outage_becomes_a_verdict_only_after_the_last_attempt() -> None:
    """Two outages and an answer make a solution; outages to the end make a rejection with the outage's code."""
    patient = (0.0, 0.0)
    fetch = ScriptedFetch([Outage("down"), Temporary("down"), fetched(CODE)])
    assert isinstance(await collect_solution(fetch, submission(keccak_hex(CODE)), patient), Solution)
    assert fetch.asked == [URI] * 3
    for outage, code in ((Outage("slow", code="timeout"), "timeout"), (Temporary("down"), "unreachable")):
        fetch = ScriptedFetch([outage])
        rejected = await collect_solution(fetch, submission(keccak_hex(CODE)), patient)
        assert isinstance(rejected, Rejected)
        assert (rejected.code, rejected.is_outage, len(fetch.asked)) == (code, True, 3)


@pytest.mark.parametrize("page", [b"<html><h1>504 Gateway Time-out</h1></html>", b"", b"\x00\x01\x02\x03"])
async def test_what_a_gateway_could_not_prove_is_no_verdict_about_the_submission(page: bytes) -> None:
    """An error page, nothing or noise under a CID is an outage."""
    uri = "ipfs://QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG"
    asked = submission(uri=uri, solution_hash=keccak_hex(CODE))
    fetch = ScriptedFetch([fetched(page)])
    verdict = await collect_solution(fetch, asked, ())
    assert isinstance(verdict, Rejected)
    assert verdict.is_outage


async def test_a_lasting_verdict_is_not_retried() -> None:
    """A bad submission costs one attempt."""
    fetch = ScriptedFetch([BadSubmission("gone", code="not_found")])
    rejected = await collect_solution(fetch, submission(keccak_hex(CODE)))
    assert rejected == Rejected(submission(keccak_hex(CODE)), "not_found", "gone")
    assert len(fetch.asked) == 1


async def test_an_unencodable_uri_is_a_verdict() -> None:
    """A URI that is no valid text is refused by name and does not crash the hash check."""
    rejected = await collect_solution(ScriptedFetch([fetched(CODE)]), submission("0x00", uri="https://\ud800"))
    assert isinstance(rejected, Rejected)
    assert rejected.code == "bad_uri"


@pytest.mark.parametrize(
    ("content", "hint", "uri", "expected"),
    [
        (CODE, None, URI, "python"),
        (CODE, "Solidity", URI, "solidity"),
        (CODE, None, "https://example.com/a.go", "python"),
        (b"first = 1; second = 2; third = first + second", None, "https://example.com/a.go?x#y", "go"),
        (b"An essay on fees, and why they differ.", None, "https://example.com/essay", None),
        (b"pragma solidity ^0.8.0;\ncontract A { uint256 x; }", None, "u", "solidity"),
        (b"fn main() { let mut x = 1; }", None, "u", "rust"),
        (b"package main\nfunc main() { x := 1 }", None, "u", "go"),
        (b"const f = (x) => x + 1;\nmodule.exports = f;", None, "u", "javascript"),
        (b"interface A { x: number }\nconst f = (x: number): string => String(x);", None, "u", "typescript"),
    ],
)
async def test_the_language_is_the_hint_then_the_text_then_the_name(
    content: bytes, hint: str | None, uri: str, expected: str | None
) -> None:
    """The poster's hint counts first; a file name cannot talk a text into another language."""
    fetch = ScriptedFetch([fetched(content)])
    solution = await collect_solution(fetch, submission(keccak_hex(content), uri=uri), language=hint)
    assert isinstance(solution, Solution)
    assert solution.language == expected


@given(st.binary(max_size=200))
async def test_any_bytes_get_a_verdict(content: bytes) -> None:
    """Whatever the content, a solution with exactly these bytes or a rejection with a known code comes out."""
    outcome = await verdict(content)
    if isinstance(outcome, Solution):
        assert outcome.text.encode() == content
    else:
        assert outcome.code in REJECTIONS


async def test_the_token_limit_holds_for_what_a_model_is_shown() -> None:
    """A character that becomes eighteen in the prompt counts as those eighteen."""
    text = "some words before it: " + "\ufdfa" * 20_000
    assert estimate_tokens(text) < MAX_TOKENS
    found = await verdict(text.encode())
    assert isinstance(found, Rejected)
    assert found.code == "too_large"
