"""The CID of a file, computed as Kubo adds it: raw leaves of 256 KiB, at most 174 links a node."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clara_eval.submissions.fetch.cid import DAG_PB, RAW

LEAF_BYTES = 262_144
MOST_LINKS = 174
CHUNKER = f"size-{LEAF_BYTES}"
_FILE = 2

TakesBlock = Callable[[str, bytes], None]
"""Is given the CID and the bytes of a block."""


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

    takes_block: TakesBlock = lambda _cid, _block: None
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


def file_cid(content: bytes) -> str:
    building = FileCid()
    building.update(content)
    return building.finish()


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
