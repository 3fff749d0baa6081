"""Keccak-256 and SHA-256, and the JSON forms they are taken of."""

from __future__ import annotations

import hashlib
import json

import rfc8785
from eth_hash.auto import keccak

_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: object) -> bytes:
    """RFC 8785 canonical form; ValueError if there is none (NaN, huge integers)."""
    encoded: bytes = rfc8785.dumps(value)  # type: ignore[arg-type]  # it refuses what is not JSON
    return encoded


def plain_json(value: object) -> str:
    """Compact JSON with sorted keys, without non-finite numbers: equal values have equal text."""
    return _PLAIN.encode(value)


def sha256_hex(data: bytes) -> str:
    return "0x" + hashlib.sha256(data).hexdigest()


def keccak_hex(data: bytes) -> str:
    return "0x" + keccak(data).hex()
