"""A submission with its bytes (`Solution`), or the reason why it is not judged (`Rejected`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from clara_eval.core.errors import Temporary
from clara_eval.core.submission import Submission

REJECTIONS = {
    "unreadable": "the server refuses it, its certificate is wrong, or the answer is malformed",
    "not_found": "nothing is at this address",
    "unreachable": "the address did not answer, however often it was tried",
    "timeout": "the content did not arrive in time, however often it was tried",
    "too_many_redirects": "the address leads on and on",
    "forbidden_address": "the address is private, local or otherwise not public",
    "unsupported_scheme": "only data:, https: and ipfs: are read",
    "bad_uri": "the URI is malformed",
    "bad_data_uri": "the data: URI is malformed",
    "wrong_hash": "the content is not what the chain committed to",
    "too_large": "the content is over the size limit",
    "empty": "there is nothing, or nearly nothing, in it",
    "not_utf8": "the content is not UTF-8 text",
    "binary": "the content is not text",
    "excluded": "a person excluded it in review",
    "unevaluable": "no model could tell anything about it, and nothing about it is measured",
    "copy": "an earlier submission has the same content",
}
"""Every code a rejection can have, with its meaning."""


@dataclass(frozen=True, slots=True)
class Fetched:
    content: bytes
    media_type: str
    immutable: bool
    """The URI itself fixes these bytes: a `data:` URI, or an `ipfs:` one whose CID was recomputed from them."""
    note: str = ""
    """What a reader of the trace should know, for example why a CID was not verified."""


class Fetch(Protocol):
    async def fetch(self, uri: str) -> Fetched: ...


class Outage(Temporary):
    """A fetch failed in a way that may pass; `code` becomes the verdict if it does not pass before the post."""

    def __init__(self, message: str, *, code: str = "unreachable", retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.code = code


@dataclass(frozen=True, slots=True)
class Solution:
    submission: Submission
    content: bytes
    text: str
    media_type: str
    content_keccak: str
    content_sha256: str
    hash_kind: Literal["content", "uri"]
    """What the on-chain hash covers: the content, or (as existing clients do) the URI string."""
    pinned: bool
    """The chain fixes these bytes: by a hash over them, or by a hash over a URI that itself fixes them."""
    language: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    submission: Submission
    code: str
    """One of `REJECTIONS`."""
    reason: str
    is_outage: bool = False
    """It could not be read, and that may be us or the network: a person looks before money moves."""
