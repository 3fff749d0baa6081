"""Fetch and check the bytes of a submission, without repairing any: a `Solution`, or `Rejected`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol
from urllib.parse import unquote_to_bytes

from clara_eval.code import choose_language
from clara_eval.config.eval_config.model import SubmissionFormat
from clara_eval.core.errors import BadSubmission, Temporary
from clara_eval.core.hashing import keccak_hex, sha256_hex
from clara_eval.core.model import Submission
from clara_eval.core.strict_json import json_shape
from clara_eval.harness.model import ProgramText
from clara_eval.submissions.files import FileTree, is_archive, most_tokens, read_archive, text_of

REJECTIONS = {  # every code a rejection can have, with its meaning
    "unreadable": "the server refuses it, its certificate is wrong, or the answer is malformed",
    "not_found": "nothing is at this address",
    "unreachable": "the address did not answer, however often it was tried",
    "timeout": "the content did not arrive in time, however often it was tried",
    "too_many_redirects": "it redirects too often",
    "forbidden_address": "the address is private, local or otherwise not public",
    "unsupported_scheme": "only data:, https: and ipfs: are read",
    "bad_uri": "the URI is malformed",
    "bad_data_uri": "the data: URI is malformed",
    "wrong_hash": "the content is not what the chain committed to",
    "too_large": "the content is over the size limit",
    "empty": "there is nothing, or nearly nothing, in it",
    "not_utf8": "the content is not UTF-8 text",
    "binary": "the content is not text",
    "not_json": "the config asks for JSON, and it is not",
    "not_url": "the config asks for a URL, and it is not",
    "bad_archive": "the archive is damaged, or holds links, names outside it, duplicate names or another archive",
    "excluded": "a person excluded it in review",
    "unevaluable": "no model could tell anything about it, and nothing about it is measured",
    "copy": "an earlier submission has the same content",
}
_TOKEN = re.compile(r"\w+|[^\w\s]")
_LINK = re.compile(rb"[ \t\r\n]*((?:https?|ipfs)://[!-~]{1,2000})[ \t\r\n]*", re.IGNORECASE)
_NOT_ALNUM = bytes(code for code in range(128) if not chr(code).isalnum())
MAX_BYTES = 262_144
MAX_TOKENS = 100_000  # by `estimate_tokens`: 256 KB of rare characters would cost four times as much as 256 KB of code
MIN_LETTERS, MIN_WORDS = 8, 4  # less counts as empty: `:` and `Thought process:` are known to fool model judges
RETRY_SECONDS = (1.0, 4.0)  # waits before each retry of a fetch; later runs of a round fetch again
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
_LONGEST_HEADER = 256


@dataclass(frozen=True, slots=True)
class Fetched:
    content: bytes
    media_type: str
    immutable: bool  # the URI determines these bytes: a `data:` URI, or a CID that was recomputed from them
    note: str = ""  # for readers of the trace, for example why a CID was not verified


class Fetch(Protocol):
    async def fetch(self, uri: str) -> Fetched: ...


@dataclass(eq=False, repr=False, kw_only=True)
class Outage(Temporary):
    """A fetch failed temporarily; `code` is the reason of the rejection if it still fails at the post."""

    code: str = "unreachable"


@dataclass(frozen=True, slots=True)
class Solution:
    submission: Submission
    content: bytes
    text: str
    media_type: str
    content_keccak: str
    content_sha256: str
    hash_kind: Literal["content", "uri"]  # what the on-chain hash covers: existing clients hash the URI string
    pinned: bool  # the hash on chain determines these bytes: it covers them, or an immutable URI
    language: str | None
    note: str = ""
    tree: FileTree | None = None  # the files of an archive; `text` is then the document that models read

    @property
    def code(self) -> str:
        """The text that tools measure and compare: for an archive, the files in its language if any."""
        return (self.tree.code if self.tree else None) or self.text

    @property
    def work_sha256(self) -> str:
        """The hash of the content; archives with equal files have equal hashes."""
        return sha256_hex(self.text.encode()) if self.tree else self.content_sha256

    def program(self, language: str) -> ProgramText:
        return (self.tree.program(language) if self.tree else None) or self.text


@dataclass(frozen=True, slots=True)
class Rejected:
    submission: Submission
    code: str  # one of `REJECTIONS`
    reason: str
    is_outage: bool = False  # the cause may be us or the network, so a person reviews it before a payment


async def fetch_submission(
    fetch: Fetch, submission: Submission, waits: Sequence[float] = RETRY_SECONDS
) -> Fetched | Rejected:
    """Fetch the bytes of a submission; retry an outage after each wait, then reject with `is_outage`."""
    for wait in (*waits, None):
        try:
            return await fetch.fetch(submission.solution_uri)
        except BadSubmission as bad:
            return Rejected(submission, bad.code, str(bad))
        except Temporary as outage:
            if wait is None:
                reason = f"{len(waits) + 1} attempts failed; the last: {outage}"
                return Rejected(submission, getattr(outage, "code", "unreachable"), reason, is_outage=True)
            # The server is untrusted: honour its Retry-After up to 15 seconds.
            await asyncio.sleep(max(wait, min(outage.retry_after_seconds or 0.0, 15.0)))
    raise AssertionError("the last attempt returns")


def check_submission(
    submission: Submission,
    fetched: Fetched | Rejected,
    *,
    language: str | None = None,
    form: SubmissionFormat | None = None,
) -> Solution | Rejected:
    """Check and decode fetched content; `language` and `form` are from the config."""
    if isinstance(fetched, Rejected):
        return fetched
    try:
        return _check(submission, fetched, language or {"text": "text", "json": "json"}.get(form or ""), form)
    except BadSubmission as bad:
        # An ipfs: address is a hash of the content: wrong bytes are the gateway's fault, not the submitter's.
        if fetched.immutable or not submission.solution_uri.lower().startswith("ipfs:"):
            return Rejected(submission, bad.code, str(bad))
        reason = f"A gateway gave bytes that it did not prove, and they do not fit: {bad}"
        return Rejected(submission, bad.code, reason, is_outage=True)


def _check(submission: Submission, fetched: Fetched, language: str | None, form: SubmissionFormat | None) -> Solution:
    content = fetched.content
    if len(content) > MAX_BYTES:
        raise BadSubmission(f"It has {len(content):,} bytes; at most {MAX_BYTES:,} are read.", code="too_large")
    keccak = keccak_hex(content)
    hash_kind = _match_hash(submission, keccak)
    if form == "url" and not _LINK.fullmatch(content):
        raise BadSubmission("It is not one http:, https: or ipfs: URL of at most 2,000 characters.", code="not_url")
    tree = read_archive(content, language) if is_archive(content) else None
    text = tree.document if tree else text_of(content)
    if form != "url":
        written = "".join(one.text for one in tree.files if one.kind in {"code", "text"}) if tree else text
        # A config that asks for text or JSON may want a single number or word.
        least = (1, 1) if form in {"text", "json"} else (MIN_LETTERS, MIN_WORDS)
        _check_substance(written, *least)
    if form == "json":
        json_shape(text)
    if (tokens := most_tokens(text)) > MAX_TOKENS:
        message = f"It would cost about {tokens:,} tokens to read; at most {MAX_TOKENS:,} are read."
        raise BadSubmission(message, code="too_large")
    chosen = choose_language(text, hint=language, uri=submission.solution_uri, media_type=fetched.media_type)
    return Solution(
        submission=submission,
        content=content,
        text=text,
        media_type=fetched.media_type,
        content_keccak=keccak,
        content_sha256=sha256_hex(content),
        hash_kind=hash_kind,
        pinned=hash_kind == "content" or fetched.immutable,
        language=(tree.language if tree else None) or chosen,
        note=fetched.note,
        tree=tree,
    )


def linked_submission(found: Solution) -> Submission:
    """Return the submission behind a URL that was submitted; it commits to the URL, with https for http."""
    link = re.sub("^http:", "https:", found.text.strip(" \t\r\n"), flags=re.IGNORECASE)
    return replace(found.submission, solution_uri=link, solution_hash=keccak_hex(link.encode()))


def following(found: Solution, linked: Solution | Rejected) -> Solution | Rejected:
    """Return the result of the linked submission for `found`, pinned only if both are."""
    if isinstance(linked, Rejected):
        return replace(linked, submission=found.submission, reason=f"Its URL: {linked.reason}")
    pinned = found.pinned and linked.pinned
    return replace(linked, submission=found.submission, hash_kind=found.hash_kind, pinned=pinned)


def _match_hash(submission: Submission, content_keccak: str) -> Literal["content", "uri"]:
    committed = submission.solution_hash.lower()
    if committed == content_keccak:
        return "content"
    try:
        uri_bytes = submission.solution_uri.encode()
    except UnicodeEncodeError:
        raise BadSubmission("The URI is not valid text.", code="bad_uri") from None
    if committed == keccak_hex(uri_bytes):
        return "uri"
    raise BadSubmission(
        f"The chain committed to {committed}; the content hashes to {content_keccak}, and the URI does not fit either.",
        code="wrong_hash",
    )


def _check_substance(text: str, min_letters: int, min_words: int) -> None:
    letters = len(text.encode().translate(None, _NOT_ALNUM)) if text.isascii() else sum(map(str.isalnum, text))
    words = len(_TOKEN.findall(text))
    if letters < min_letters or words < min_words:
        raise BadSubmission(f"It holds {letters} letters and digits in {words} words: nothing to judge.", code="empty")


def is_data_uri(uri: str) -> bool:
    return uri[:5].lower() == "data:"


def read_data_uri(uri: str, max_bytes: int) -> Fetched:
    header, comma, payload = uri[5:].partition(",")
    if not comma or len(header) > _LONGEST_HEADER:
        raise _bad_data_uri("it has no comma after the media type")
    kind, *parameters = header.split(";")
    is_base64 = bool(parameters) and parameters[-1].strip().lower() == "base64"
    # A percent-escaped byte has three characters; in base64, + and / may be escaped.
    longest, size = (4 * max_bytes, len(payload) * 3 // 4) if is_base64 else (3 * max_bytes, len(payload) // 3)
    if len(payload) > longest + 8:
        raise _too_large(size, max_bytes)
    content = _decode_base64(payload) if is_base64 else _decode_percent(payload)
    if len(content) > max_bytes:
        raise _too_large(len(content), max_bytes)
    media_type = kind.strip().lower() if _MEDIA_TYPE.fullmatch(kind.strip()) else "text/plain"
    return Fetched(content=content, media_type=media_type, immutable=True)


def _decode_base64(payload: str) -> bytes:
    try:
        return base64.b64decode(unquote_to_bytes(payload) if "%" in payload else payload, validate=True)
    except (binascii.Error, ValueError) as bad:
        raise _bad_data_uri(f"its base64 is malformed ({bad})") from None


def _decode_percent(payload: str) -> bytes:
    if re.search(r"%(?![0-9A-Fa-f]{2})", payload):
        raise _bad_data_uri("a % is not followed by two hex digits")
    if "#" in payload:
        raise _bad_data_uri("it holds a #, which starts a fragment: readers disagree about what follows")
    if re.search(r"[\x00-\x1f\x7f]", payload):
        raise _bad_data_uri("it holds a control character")
    try:
        return unquote_to_bytes(payload)
    except UnicodeEncodeError:
        raise _bad_data_uri("it holds half a surrogate pair") from None


def _bad_data_uri(why: str) -> BadSubmission:
    return BadSubmission(f"The data: URI cannot be read: {why}.", code="bad_data_uri")


def _too_large(size: int, max_bytes: int) -> BadSubmission:
    return BadSubmission(f"The content has {size:,} bytes or more; at most {max_bytes:,} are read.", code="too_large")
