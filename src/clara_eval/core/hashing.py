"""Keccak-256 and SHA-256, and the JSON encodings that are hashed."""

from __future__ import annotations

import hashlib
import json

import rfc8785
from eth_hash.auto import keccak

_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> bytes:
    """Encode as RFC 8785 canonical JSON; ValueError if there is no such form (NaN, huge integers)."""
    encoded: bytes = rfc8785.dumps(value)  # type: ignore[arg-type]  # it rejects values that are not JSON
    return encoded


def plain_json(value: object) -> str:
    """Encode as compact JSON with sorted keys: equal values have equal text. ValueError for NaN."""
    return _PLAIN.encode(value)


def sha256_hex(data: bytes) -> str:
    return "0x" + hashlib.sha256(data).hexdigest()


def keccak_hex(data: bytes) -> str:
    return "0x" + keccak(data).hex()
