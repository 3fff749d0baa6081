"""Files out of verified IPFS blocks: CAR archives, dag-pb nodes, UnixFS trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from clara_eval.core.errors import BadSubmission
from clara_eval.submissions.fetch.cid import DAG_PB, Cid, read_cid, read_varint

_RAW, _DIRECTORY, _FILE, _SHARD = 0, 1, 2, 5
_MOST_NODES = 4_096
"""A tree may name one block many times; this bounds the walk, whatever it names."""

Blocks = Mapping[Cid, bytes]


def read_car(archive: bytes) -> dict[Cid, bytes]:
    """The blocks of a CARv1 archive that are what their CID says; others are refused."""
    size, place = read_varint(archive, 0)
    place += size  # the header only names roots, and we know which one we asked for
    blocks: dict[Cid, bytes] = {}
    while place < len(archive):
        size, place = read_varint(archive, place)
        section = archive[place : place + size]
        if len(section) != size or size == 0:
            raise ValueError("the archive is cut")
        cid, start = read_cid(section)
        if not cid.matches(section[start:]):
            raise ValueError("a block is not what its CID says")
        blocks[cid] = section[start:]
        place += size
    return blocks


def read_file(blocks: Blocks, root: Cid, path: Sequence[str], max_bytes: int) -> bytes:
    """The bytes of the file at `path` below `root`."""
    for name in path:
        root = _enter(blocks, root, name)
    content = bytearray()
    for chunk in _chunks(blocks, root):
        content += chunk
        if len(content) > max_bytes:
            raise BadSubmission(f"The file has more than {max_bytes:,} bytes.", code="too_large")
    return bytes(content)


@dataclass(frozen=True, slots=True)
class _Node:
    kind: int
    data: bytes
    links: tuple[tuple[str, Cid], ...]


def _enter(blocks: Blocks, cid: Cid, name: str) -> Cid:
    node = _node(blocks, cid)
    if node.kind == _SHARD:
        raise ValueError("the directory is sharded")
    for found, target in node.links:
        if found == name and node.kind == _DIRECTORY:
            return target
    raise BadSubmission(f"The directory has no entry {name[:60]!r}.", code="not_found")


def _chunks(blocks: Blocks, root: Cid) -> Iterator[bytes]:
    waiting = [root]
    known: dict[Cid, _Node] = {}  # a tree may name one large block thousands of times: it is read once
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        cid = waiting.pop()
        node = known[cid] = known.get(cid) or _node(blocks, cid)
        if node.kind not in {_RAW, _FILE}:
            raise BadSubmission("The CID names a directory or link, not a file.", code="unreadable")
        yield node.data
        waiting.extend(target for _, target in reversed(node.links))
    raise BadSubmission(f"The file has more than {_MOST_NODES:,} parts.", code="too_large")


def _node(blocks: Blocks, cid: Cid) -> _Node:
    if cid.hash_code == 0:
        block = cid.digest
    elif cid in blocks:
        block = blocks[cid]
    else:
        raise ValueError("a block is missing")
    if cid.codec != DAG_PB:
        return _Node(_RAW, block, ())
    data = b""
    links: list[tuple[str, Cid]] = []
    for field, value in _fields(block):
        if field == 1 and isinstance(value, bytes):
            data = value
        elif field == 2 and isinstance(value, bytes):
            links.append(_link(value))
    kind, inline = _RAW, b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            inline = value
    return _Node(kind, inline, tuple(links))


def _link(message: bytes) -> tuple[str, Cid]:
    name, target = "", None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            target, _ = read_cid(value)
        elif field == 2 and isinstance(value, bytes):
            name = value.decode("utf-8", "replace")
    if target is None:
        raise ValueError("a link has no target")
    return name, target


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message; only the two wire types that dag-pb and UnixFS use."""
    place = 0
    while place < len(message):
        tag, place = read_varint(message, place)
        value, place = read_varint(message, place)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2:
            if place + value > len(message):
                raise ValueError("a field is cut")
            yield tag >> 3, message[place : place + value]
            place += value
        else:
            raise ValueError("a field has an unknown wire type")
