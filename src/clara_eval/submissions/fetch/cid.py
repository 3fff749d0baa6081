"""Content identifiers of IPFS: read, recomputed from a block, and computed for a file as Kubo adds it."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

DAG_PB = 0x70
RAW = 0x55
LIBP2P_KEY = 0x72
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_HASHES: dict[int, Callable[[bytes], bytes]] = {
    0x00: bytes,
    0x12: lambda block: hashlib.sha256(block).digest(),
    0x13: lambda block: hashlib.sha512(block).digest(),
    0x16: lambda block: hashlib.sha3_256(block).digest(),
    0xB220: lambda block: hashlib.blake2b(block, digest_size=32).digest(),
}
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Cid:
    codec: int
    hash_code: int
    digest: bytes

    @property
    def verifiable(self) -> bool:
        return self.hash_code in _HASHES

    def matches(self, block: bytes) -> bool:
        return self.verifiable and _HASHES[self.hash_code](block) == self.digest


def read_varint(data: bytes, start: int) -> tuple[int, int]:
    """The unsigned number at `start` and the place after it; ValueError if it does not end within 9 bytes."""
    value = 0
    for number, byte in enumerate(data[start : start + 9]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, start + number + 1
    raise ValueError("a number does not end")


def read_cid(data: bytes, start: int = 0) -> tuple[Cid, int]:
    """The CID in binary form at `start` and the place after it."""
    if data[start : start + 2] == b"\x12\x20":
        version, codec, place = 0, DAG_PB, start
    else:
        version, place = read_varint(data, start)
        if version != 1:
            raise ValueError(f"CID version {version} is unknown")
        codec, place = read_varint(data, place)
    hash_code, place = read_varint(data, place)
    size, place = read_varint(data, place)
    digest = data[place : place + size]
    if len(digest) != size or size > _LONGEST:
        raise ValueError("the digest is cut")
    return Cid(codec, hash_code, digest), place + size


def parse_cid(text: str) -> Cid:
    if not 8 <= len(text) <= _LONGEST:
        raise ValueError("its length is wrong")
    data = _digits(text, _BASE58) if text.startswith("Qm") and len(text) == 46 else _multibase(text)
    cid, end = read_cid(data)
    if end != len(data):
        raise ValueError("something follows the digest")
    return cid


def _multibase(text: str) -> bytes:
    prefix, body = text[0], text[1:]
    try:
        if prefix in "bB":
            return base64.b32decode(body.upper() + "=" * (-len(body) % 8))
        if prefix in "fF":
            return bytes.fromhex(body)
        if prefix == "u":
            return base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except binascii.Error as bad:
        raise ValueError(str(bad)) from None
    if prefix in "zkK":
        return _digits(body if prefix == "z" else body.lower(), _BASE58 if prefix == "z" else _BASE36)
    raise ValueError(f"the base {prefix!r} is unknown")


def _digits(text: str, alphabet: str) -> bytes:
    value = 0
    for char in text:
        digit = alphabet.find(char)
        if digit < 0:
            raise ValueError(f"{char!r} is not in its alphabet")
        value = value * len(alphabet) + digit
    zeros = len(text) - len(text.lstrip(alphabet[0]))
    return b"\x00" * zeros + value.to_bytes((value.bit_length() + 7) // 8)


LEAF_BYTES = 262_144
MOST_LINKS = 174
CHUNKER = f"size-{LEAF_BYTES}"
_FILE = 2


@dataclass(frozen=True, slots=True)
class _Link:
    cid: bytes
    file_bytes: int
    """Of the file below it."""
    tree_bytes: int
    """Of all blocks below it, its own among them."""


@dataclass(slots=True)
class FileCid:
    """Give the pieces to `update`; `finish` tells the CID."""

    takes_block: Callable[[str, bytes], None] = lambda _cid, _block: None
    _rest: bytearray = field(default_factory=bytearray)
    _leaves: list[_Link] = field(default_factory=list)

    def update(self, piece: bytes) -> None:
        self._rest += piece
        while len(self._rest) > LEAF_BYTES:
            self._leaf(bytes(self._rest[:LEAF_BYTES]))
            del self._rest[:LEAF_BYTES]

    def finish(self) -> str:
        if self._rest or not self._leaves:
            self._leaf(bytes(self._rest))
            self._rest.clear()
        level = self._leaves
        while len(level) > 1:
            level = [self._node(level[start : start + MOST_LINKS]) for start in range(0, len(level), MOST_LINKS)]
        return _text(level[0].cid)

    def _leaf(self, block: bytes) -> None:
        self._leaves.append(_Link(self._named(RAW, block), len(block), len(block)))

    def _node(self, links: Sequence[_Link]) -> _Link:
        """An inner node: its links, then how much of the file lies below it and below each of them."""
        size = sum(link.file_bytes for link in links)
        below = b"".join(_field(4, link.file_bytes) for link in links)
        named = b"".join(_field(2, _field(1, link.cid) + _field(2, b"") + _field(3, link.tree_bytes)) for link in links)
        block = named + _field(1, _field(1, _FILE) + _field(3, size) + below)
        return _Link(self._named(DAG_PB, block), size, len(block) + sum(link.tree_bytes for link in links))

    def _named(self, codec: int, block: bytes) -> bytes:
        cid = bytes((1, codec, 0x12, 0x20)) + hashlib.sha256(block).digest()
        self.takes_block(_text(cid), block)
        return cid


def _text(cid: bytes) -> str:
    return "b" + base64.b32encode(cid).decode().lower().rstrip("=")


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
