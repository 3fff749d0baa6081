"""What a `data:` URI holds by itself, so that a trace cannot say something else about it.

A URI comes in; its bytes go out, or None where it is malformed. As strict as the reading of submissions: what is
accepted there has these bytes here, and what is refused there as malformed has none.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote_to_bytes

_LONGEST_HEADER = 256
_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})|[#\x00-\x1f\x7f]")


def is_inline(uri: str) -> bool:
    return uri[:5].lower() == "data:"


def inline_bytes(uri: str) -> bytes | None:
    header, comma, payload = uri[5:].partition(",")
    if not comma or len(header) > _LONGEST_HEADER:
        return None
    _, *parameters = header.split(";")
    try:
        if parameters and parameters[-1].strip().lower() == "base64":
            return base64.b64decode(unquote_to_bytes(payload) if "%" in payload else payload, validate=True)
        return None if _MALFORMED.search(payload) else unquote_to_bytes(payload)
    except ValueError:
        return None
