"""`data:` URIs, read strictly: two readers must never see two contents."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from clara_eval.core.errors import BadSubmission
from clara_eval.submissions.model import Fetched

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
_LONGEST_HEADER = 256


def is_data_uri(uri: str) -> bool:
    return uri[:5].lower() == "data:"


def read_data_uri(uri: str, max_bytes: int) -> Fetched:
    header, comma, payload = uri[5:].partition(",")
    if not comma or len(header) > _LONGEST_HEADER:
        raise _bad("it has no comma after the media type")
    kind, *parameters = header.split(";")
    is_base64 = bool(parameters) and parameters[-1].strip().lower() == "base64"
    content = _base64(payload, max_bytes) if is_base64 else _percent(payload, max_bytes)
    if len(content) > max_bytes:
        raise _too_large(len(content), max_bytes)
    media_type = kind.strip().lower() if _MEDIA_TYPE.fullmatch(kind.strip()) else "text/plain"
    return Fetched(content=content, media_type=media_type, immutable=True)


def _base64(payload: str, max_bytes: int) -> bytes:
    if len(payload) > 4 * max_bytes + 8:  # a percent-escaped + or / takes three characters
        raise _too_large(len(payload) * 3 // 4, max_bytes)
    try:
        return base64.b64decode(unquote_to_bytes(payload) if "%" in payload else payload, validate=True)
    except (binascii.Error, ValueError) as bad:
        raise _bad(f"its base64 is malformed ({bad})") from None


def _percent(payload: str, max_bytes: int) -> bytes:
    if len(payload) > 3 * max_bytes + 8:
        raise _too_large(len(payload) // 3, max_bytes)
    if re.search(r"%(?![0-9A-Fa-f]{2})", payload):
        raise _bad("a % is not followed by two hex digits")
    if "#" in payload:
        raise _bad("it holds a #, which starts a fragment: readers disagree about what follows")
    if re.search(r"[\x00-\x1f\x7f]", payload):
        raise _bad("it holds a control character")
    try:
        return unquote_to_bytes(payload)
    except UnicodeEncodeError:
        raise _bad("it holds half a surrogate pair") from None


def _bad(why: str) -> BadSubmission:
    return BadSubmission(f"The data: URI cannot be read: {why}.", code="bad_data_uri")


def _too_large(size: int, max_bytes: int) -> BadSubmission:
    return BadSubmission(f"The content has {size:,} bytes or more; at most {max_bytes:,} are read.", code="too_large")
