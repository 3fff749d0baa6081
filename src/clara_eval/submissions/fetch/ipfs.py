"""Read CIDs, and fetch `ipfs:` URIs from gateways; missing or unproven content is an outage."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote

from clara_eval.core.errors import BadSubmission
from clara_eval.submissions.fetch.web import Web, WebReply
from clara_eval.submissions.files import bad_archive, checked_path, pack_files
from clara_eval.submissions.model import Fetched, Outage

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
_LONGEST = 256  # characters of a CID, and bytes of its digest
_RAW, _DIRECTORY, _FILE, _SHARD = 0, 1, 2, 5  # UnixFS node types
_MOST_NODES = 4_096  # nodes read per tree, which may refer to one block many times

T = TypeVar("T", int, bytes)
LEAF_BYTES = 262_144  # like MOST_LINKS, the default of kubo, so that both compute equal CIDs
MOST_LINKS = 174
CHUNKER = f"size-{LEAF_BYTES}"
_CAR = "application/vnd.ipld.car"
_BLOCK = "application/vnd.ipld.raw"
NOT_VERIFIED = "The gateway gave no blocks, so the CID was not recomputed from the content."


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
    """Return the unsigned number at `start` and the position after it. Raises ValueError beyond 9 bytes."""
    value = 0
    for number, byte in enumerate(data[start : start + 9]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, start + number + 1
    raise ValueError("a number does not end")


def read_cid(data: bytes, start: int = 0) -> tuple[Cid, int]:
    """Return the binary CID at `start` and the position after it."""
    if data[start : start + 2] == b"\x12\x20":
        codec, place = DAG_PB, start
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
    data = _decode_digits(text, _BASE58) if text.startswith("Qm") and len(text) == 46 else _decode_multibase(text)
    cid, end = read_cid(data)
    if end != len(data):
        raise ValueError("something follows the digest")
    return cid


def _decode_multibase(text: str) -> bytes:
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
        return _decode_digits(body if prefix == "z" else body.lower(), _BASE58 if prefix == "z" else _BASE36)
    raise ValueError(f"the base {prefix!r} is unknown")


def _decode_digits(text: str, alphabet: str) -> bytes:
    value = 0
    for char in text:
        digit = alphabet.find(char)
        if digit < 0:
            raise ValueError(f"{char!r} is not in its alphabet")
        value = value * len(alphabet) + digit
    return b"\x00" * (len(text) - len(text.lstrip(alphabet[0]))) + value.to_bytes((value.bit_length() + 7) // 8)


class _Link(NamedTuple):
    cid: bytes
    file_bytes: int  # of the part of the file below it
    tree_bytes: int  # of its own block and all below it


@dataclass(slots=True)
class FileCid:
    """Computes a file's CID like an IPFS node: `update` with each piece, then `finish`."""

    on_block: Callable[[str, bytes], None] = lambda _cid, _block: None
    _rest: bytearray = field(default_factory=bytearray)
    _leaves: list[_Link] = field(default_factory=list)

    def update(self, piece: bytes) -> None:
        self._rest += piece
        while len(self._rest) > LEAF_BYTES:
            self._add_leaf(bytes(self._rest[:LEAF_BYTES]))
            del self._rest[:LEAF_BYTES]

    def finish(self) -> str:
        if self._rest or not self._leaves:
            self._add_leaf(bytes(self._rest))
            self._rest.clear()
        level = self._leaves
        while len(level) > 1:
            level = [self._make_node(level[start : start + MOST_LINKS]) for start in range(0, len(level), MOST_LINKS)]
        return _cid_text(level[0].cid)

    def _add_leaf(self, block: bytes) -> None:
        self._leaves.append(_Link(self._make_cid(RAW, block), len(block), len(block)))

    def _make_node(self, links: Sequence[_Link]) -> _Link:
        """Build an inner node: its links, then the file's size below it and below each link."""
        size = sum(link.file_bytes for link in links)
        sizes = b"".join(_put(4, link.file_bytes) for link in links)
        entries = b"".join(_put(2, _put(1, link.cid) + _put(2, b"") + _put(3, link.tree_bytes)) for link in links)
        block = entries + _put(1, _put(1, _FILE) + _put(3, size) + sizes)
        return _Link(self._make_cid(DAG_PB, block), size, len(block) + sum(link.tree_bytes for link in links))

    def _make_cid(self, codec: int, block: bytes) -> bytes:
        cid = bytes((1, codec, 0x12, 0x20)) + hashlib.sha256(block).digest()
        self.on_block(_cid_text(cid), block)
        return cid


def _cid_text(cid: bytes) -> str:
    return "b" + base64.b32encode(cid).decode().lower().rstrip("=")


def _put(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _encode_varint(number << 3) + _encode_varint(value)
    return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


Blocks = Mapping[Cid, bytes]


class MissingBlock(ValueError): ...


def read_car(archive: bytes) -> dict[Cid, bytes]:
    """Return the blocks of a CARv1 archive. Raises ValueError if one does not match its CID."""
    size, place = read_varint(archive, 0)
    place += size  # skips the header, which only lists roots
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


def read_work(blocks: Blocks, root: Cid, path: Sequence[str], max_bytes: int) -> bytes:
    """Return the file at `path` below `root`; for a directory, its files as one archive."""
    node_of, steps = cache(partial(_read_node, blocks)), iter(range(_MOST_NODES))
    for name in path:
        root = _find_entry(node_of(root), name)
    if node_of(root).kind not in {_DIRECTORY, _SHARD}:
        return _read_file(node_of, root, max_bytes, steps)
    found, waiting = dict[str, bytes](), [("", root)]
    for _ in steps:
        if not waiting:
            return pack_files(found)
        place, cid = waiting.pop()
        node = node_of(cid)
        if node.kind in {_RAW, _FILE}:
            found[place] = _read_file(node_of, cid, max_bytes, steps)
            max_bytes -= len(found[place])
        elif node.kind != _DIRECTORY:
            raise bad_archive("a directory in it is sharded" if node.kind == _SHARD else f"{place!r} in it is a link")
        elif len(dict(node.links)) < len(node.links):
            raise bad_archive(f"a name in its directory {place!r} occurs twice")
        elif len(waiting) + len(node.links) <= _MOST_NODES:
            waiting += [(_join_path(place, name), target) for name, target in node.links]
        else:
            break
    raise BadSubmission(f"The directory has more than {_MOST_NODES:,} parts.", code="too_large")


def _join_path(folder: str, name: str) -> str:
    if "/" in name:
        raise bad_archive(f"the name {name[:80]!r} is not a path inside it")
    return checked_path(f"{folder}/{name}".removeprefix("/").encode("utf-8", "surrogateescape"))


def _read_file(node_of: Callable[[Cid], _Node], root: Cid, max_bytes: int, steps: Iterator[int]) -> bytes:
    content = bytearray()
    waiting = [root]
    for _ in steps:
        if not waiting:
            return bytes(content)
        node = node_of(waiting.pop())
        if node.kind not in {_RAW, _FILE}:
            raise BadSubmission("The CID names a link, not a file or directory.", code="unreadable")
        content += node.data
        if len(content) > max_bytes:
            raise BadSubmission(f"It has more than {max_bytes:,} bytes.", code="too_large")
        waiting.extend(target for _, target in reversed(node.links))
    raise BadSubmission(f"The file has more than {_MOST_NODES:,} parts.", code="too_large")


class _Node(NamedTuple):
    kind: int
    data: bytes
    links: tuple[tuple[str, Cid], ...]


def _find_entry(node: _Node, name: str) -> Cid:
    if node.kind == _SHARD:
        raise ValueError("the directory is sharded")
    for found, target in node.links:
        if found == name and node.kind == _DIRECTORY:
            return target
    raise BadSubmission(f"The directory has no entry {name[:60]!r}.", code="not_found")


def _read_node(blocks: Blocks, cid: Cid) -> _Node:
    if cid.hash_code == 0:
        block = cid.digest
    elif cid in blocks:
        block = blocks[cid]
    else:
        raise MissingBlock("a block is missing")
    if cid.codec != DAG_PB:
        return _Node(_RAW, block, ())
    links = list[tuple[str, Cid]]()
    for number, value in _fields(block):
        if number == 2 and isinstance(value, bytes):
            if not (target := _field(value, 1, b"")):
                raise ValueError("a link has no target")
            links.append((_field(value, 2, b"").decode("utf-8", "surrogateescape"), read_cid(target)[0]))
    data = _field(block, 1, b"")
    return _Node(_field(data, 1, _RAW), _field(data, 2, b""), tuple(links))


def _field(message: bytes, number: int, missing: T) -> T:
    """Return the last value of a field that has the type of `missing`, or `missing`."""
    found = [value for own, value in _fields(message) if own == number and isinstance(value, type(missing))]
    return found[-1] if found else missing


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a protobuf message, for the wire types of dag-pb and UnixFS."""
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


class IpfsPath(NamedTuple):
    text: str
    cid: Cid
    path: tuple[str, ...]


def parse_ipfs_uri(uri: str) -> IpfsPath:
    """Parse `ipfs://CID/path` or `ipfs://ipfs/CID/path`. Raises BadSubmission for anything else."""
    rest = re.sub(r"^ipfs:(?://)?(?:ipfs/)?", "", uri, flags=re.IGNORECASE)
    text, *parts = rest.split("/")
    if len(uri) > 1_024 or re.search(r"[\x00-\x20\x7f?#\\]", rest):
        raise BadSubmission("The ipfs: URI is too long, or holds characters that are not read.", code="bad_uri")
    try:
        rest.encode()  # raises for half a surrogate pair
        path = tuple(unquote(part, errors="strict") for part in parts if part)
        cid = parse_cid(text)
    except ValueError as bad:
        raise BadSubmission(f"The ipfs: URI has no valid CID or path: {bad}.", code="bad_uri") from None
    if cid.codec == LIBP2P_KEY:
        raise BadSubmission("The ipfs: URI holds the key of a mutable name, not a CID of content.", code="bad_uri")
    if any(part in {".", ".."} or "/" in part for part in path):
        raise BadSubmission("The path of the ipfs: URI steps around.", code="bad_uri")
    return IpfsPath(text, cid, path)


async def fetch_ipfs(web: Web, gateways: Sequence[str], uri: str) -> Fetched:
    """Fetch from the first gateway that proves its content, else from the first that returns any."""
    wanted = parse_ipfs_uri(uri)
    unverified: Fetched | None = None
    failures: list[Outage | BadSubmission] = []
    for gateway in gateways:
        try:
            fetched = await _fetch_from_gateway(web, gateway, wanted)
        except (Outage, BadSubmission) as bad:
            failures.append(bad)
            continue
        if fetched.immutable:
            return fetched
        unverified = unverified or fetched
    if unverified is not None:
        return unverified
    raise next((bad for bad in failures if isinstance(bad, Outage)), failures[-1])


async def _fetch_from_gateway(web: Web, gateway: str, wanted: IpfsPath) -> Fetched:
    base = "/".join((gateway.rstrip("/"), "ipfs", wanted.text, *(quote(part, safe="") for part in wanted.path)))
    if wanted.cid.verifiable:
        content = await _fetch_archive(web, base, wanted)
        if content is None and not wanted.path:
            content = await _fetch_block(web, base, wanted)
        if content is not None:
            return Fetched(content=content, media_type="application/octet-stream", immutable=True)
    reply = await web.get_trusted(base, {}, web.limits.max_bytes)
    _check_status(reply)
    if wanted.cid.codec == RAW and wanted.cid.verifiable and not wanted.path:
        # The CID is the hash of the bytes, so an error page with status 200 is recognised.
        if not wanted.cid.matches(reply.body):
            raise Outage("The gateway's bytes are not what the CID says.", code="unreadable")
        return Fetched(content=reply.body, media_type=reply.media_type, immutable=True)
    return Fetched(content=reply.body, media_type=reply.media_type, immutable=False, note=NOT_VERIFIED)


async def _fetch_archive(web: Web, base: str, wanted: IpfsPath) -> bytes | None:
    # The blocks of the tree need space in addition to the file.
    room = web.limits.max_bytes + web.limits.max_bytes // 4 + 65_536
    reply = await _request_format(web, f"{base}?format=car&dag-scope=entity", _CAR, room)
    if reply is None:
        return None
    try:
        try:
            return read_work(read_car(reply.body), wanted.cid, wanted.path, web.limits.max_bytes)
        except MissingBlock:  # the scope "entity" of a directory does not include its files
            reply = await web.get_trusted(f"{base}?format=car&dag-scope=all", {"Accept": _CAR}, room)
            _check_status(reply)
            return read_work(read_car(reply.body), wanted.cid, wanted.path, web.limits.max_bytes)
    except ValueError as bad:
        if "sharded" in str(bad):
            return None
        raise Outage(f"The gateway's archive does not hold: {bad}.", code="unreadable") from None


async def _fetch_block(web: Web, base: str, wanted: IpfsPath) -> bytes | None:
    reply = await _request_format(web, f"{base}?format=raw", _BLOCK, web.limits.max_bytes + 65_536)
    if reply is None:
        return None
    if not wanted.cid.matches(reply.body):
        raise Outage("The gateway's block is not what the CID says.", code="unreadable")
    blocks = {wanted.cid: reply.body}
    try:
        if _read_node(blocks, wanted.cid).kind == _DIRECTORY:
            raise Outage("It is a directory, of which the gateway gives no archive.", code="unreadable")
        return read_work(blocks, wanted.cid, (), web.limits.max_bytes)
    except ValueError:
        return None  # the file has several blocks, and the gateway gives no archive


async def _request_format(web: Web, url: str, media_type: str, max_bytes: int) -> WebReply | None:
    """Return the reply in this media type, or None if the gateway does not support it."""
    try:
        reply = await web.get_trusted(url, {"Accept": media_type}, max_bytes)
    except BadSubmission:
        return None  # too large: the gateway ignores the scope, which is not the submission's fault
    if reply.status in {400, 406, 415, 501} or (reply.status == 200 and reply.media_type != media_type):
        return None
    _check_status(reply)
    return reply


def _check_status(reply: WebReply) -> None:
    if reply.status != 200:
        # Also for 404: another gateway may have the block.
        raise Outage(f"The IPFS gateway answers {reply.status}.", retry_after_seconds=reply.retry_after_seconds)
