"""Set-up shared by tests: what test_ipfs.py and others use."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable

from aiohttp import web as server

from clara_eval.submissions.fetch.ipfs import RAW, FileCid

Answer = Callable[[server.Request], Awaitable[server.StreamResponse]]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def raw_cid(block: bytes) -> bytes:
    return b"\x01" + varint(RAW) + b"\x12\x20" + hashlib.sha256(block).digest()


def v0_cid(block: bytes) -> bytes:
    return b"\x12\x20" + hashlib.sha256(block).digest()


def unixfs(kind: int, data: bytes = b"", links: list[tuple[str, bytes]] | None = None) -> bytes:
    nodes = b"".join(field(2, field(1, cid) + field(2, name.encode()) + field(3, 1)) for name, cid in links or [])
    return nodes + field(1, field(1, kind) + (field(2, data) if data else b""))


def base32(cid: bytes) -> str:
    return "b" + base64.b32encode(cid).decode().lower().rstrip("=")


def base58(cid: bytes) -> str:
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    value, out = int.from_bytes(cid), ""
    while value:
        value, digit = divmod(value, 58)
        out = alphabet[digit] + out
    return out


def car(*blocks: tuple[bytes, bytes]) -> bytes:
    header = b"\xa2eroots\x80gversion\x01"
    return varint(len(header)) + header + b"".join(varint(len(c) + len(b)) + c + b for c, b in blocks)


def folder_of(files: dict[str, bytes]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The CID of a directory of these files, and all its blocks."""
    blocks, links = list[tuple[bytes, bytes]](), list[tuple[str, bytes]]()
    for top in sorted({path.partition("/")[0] for path in files}):
        if top in files:
            links.append((top, raw_cid(files[top])))
            blocks.append((raw_cid(files[top]), files[top]))
        else:
            below = {path.removeprefix(f"{top}/"): body for path, body in files.items() if path.startswith(f"{top}/")}
            cid, more = folder_of(below)
            links.append((top, cid))
            blocks += more
    node = unixfs(1, links=links)
    return v0_cid(node), [(v0_cid(node), node), *blocks]


def file_cid(data: bytes) -> str:
    building = FileCid()
    building.update(data)
    return building.finish()


def gateway(*, archive: bytes | None = None, block: bytes | None = None, plain: bytes | None = None) -> Answer:
    """A gateway that knows only the given forms."""

    async def answer(request: server.Request) -> server.StreamResponse:
        wanted = request.query.get("format")
        if wanted == "car" and archive is not None:
            return server.Response(body=archive, content_type="application/vnd.ipld.car")
        if wanted == "raw" and block is not None:
            return server.Response(body=block, content_type="application/vnd.ipld.raw")
        if wanted is not None and plain is None:
            return server.Response(status=406)
        return server.Response(body=plain or b"", content_type="text/plain")

    return answer
