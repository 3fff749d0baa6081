"""Hide a harness behind the hash of its document and a salt of 32 bytes, and read a revealed one."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import canonical_json, keccak_hex
from clara_eval.core.strict_json import JsonLimits, read_strict_json
from clara_eval.harness.model import Harness, language_of

VERSION = 1
KEYS = {"version", "language", "source", "salt"}
SALT = re.compile(r"0x[0-9a-f]{64}")
MAX_DOCUMENT_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class HarnessDocument:
    """A harness with its salt, as the bytes that are hashed."""

    harness: Harness
    salt: str
    content: bytes

    @property
    def private_set_hash(self) -> str:
        return keccak_hex(self.content)


def hide(harness: Harness, salt: str | None = None) -> HarnessDocument:
    """The document of a harness; a new random salt unless one is given."""
    chosen = salt or "0x" + secrets.token_hex(32)
    if not SALT.fullmatch(chosen):
        raise BadInput(f"{chosen[:80]!r} is not a salt.", value=chosen, remedy="Give 32 bytes as 0x and 64 hex digits.")
    document = {"version": VERSION, "language": harness.language, "source": harness.source, "salt": chosen}
    return HarnessDocument(harness, chosen, canonical_json(document))


def read_harness_document(content: bytes) -> HarnessDocument:
    """The document in these bytes; raises BadInput with the reason."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise BadInput(
            f"The harness document has {len(content):,} bytes.", remedy=f"At most {MAX_DOCUMENT_BYTES:,} are allowed."
        )
    found = read_strict_json(content, JsonLimits(bytes=MAX_DOCUMENT_BYTES), what="The harness document")
    if not isinstance(found, dict) or set(found) != KEYS or found["version"] != VERSION:
        raise BadInput(
            "This is not a harness document: it has other keys or another version.",
            remedy="Make one with `clara-eval harness hash`.",
        )
    if not all(isinstance(found[key], str) for key in KEYS - {"version"}) or not SALT.fullmatch(found["salt"]):
        raise BadInput("The harness document has a value of the wrong type, or no salt of 32 bytes.")
    language = language_of(found["language"], "The harness language")
    return HarnessDocument(Harness(language, found["source"]), found["salt"], content)
