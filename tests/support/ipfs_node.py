"""A real IPFS node on this machine, as far as we use one: adds and pins by Kubo's HTTP API, serves blocks as a gateway.

`LocalIpfsNode` takes files in the API's multipart form, cuts them into the blocks that Kubo makes of them (the CIDs are
held to those of the reference implementation in `tests/submissions/fetch/test_file_cid.py`), and gives them out as raw
blocks and CAR archives. `lie` lets it name another CID, forget the pin, or break off in the middle.
"""

from __future__ import annotations

from typing import Literal

from aiohttp import web
from tests.support.ipfs_gateway import LocalGateway

from clara_eval.submissions.fetch.ipfs import LEAF_BYTES, FileCid, parse_cid, read_varint

Lie = Literal["", "another cid", "no pin", "broken off", "garbage", "refused", "endless"]


class LocalIpfsNode(LocalGateway):
    """Use as `async with LocalIpfsNode() as node`, then `await node.start()`; `url` is its API and its gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.pins: dict[str, int] = {}
        """How often each CID was added."""
        self.lie: Lie = ""
        self._trees: dict[str, list[str]] = {}

    def routes(self, app: web.Application) -> None:
        super().routes(app)
        app.router.add_post("/api/v0/add", self._add)
        app.router.add_post("/api/v0/pin/ls", self._list_pins)

    async def _add(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("chunker") != f"size-{LEAF_BYTES}" or request.query.get("cid-version") != "1":
            return web.json_response({"Message": "other import settings"}, status=500)
        if self.lie == "refused":
            return web.json_response({"Message": "no space left"}, status=500)
        blocks: dict[str, bytes] = {}
        building = FileCid(blocks.__setitem__)
        async for part in await request.multipart():
            read = 0
            while piece := await part.read_chunk(65_536):  # type: ignore[union-attr]
                building.update(piece)
                read += len(piece)
                if self.lie == "broken off" and read > 100_000 and request.transport:
                    request.transport.close()
        cid = building.finish()
        if self.lie == "garbage":
            return web.Response(text="<html>")
        if self.lie == "endless":
            return web.json_response({"Hash": cid, "Name": "x" * 10_000_000})
        self._blocks |= blocks
        self._trees[cid] = list(blocks)
        if self.lie != "no pin":
            self.pins[cid] = self.pins.get(cid, 0) + 1
        shown = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku" if self.lie == "another cid" else cid
        return web.json_response({"Name": "trace", "Hash": shown, "Size": str(read)})

    async def _list_pins(self, request: web.Request) -> web.Response:
        cid = request.query["arg"]
        if cid not in self.pins:
            return web.json_response({"Message": f"path {cid!r} is not pinned", "Code": 0}, status=500)
        return web.json_response({"Keys": {cid: {"Type": "recursive"}}})

    async def _block(self, request: web.Request) -> web.Response:
        cid = request.match_info["cid"]
        if request.query.get("format") != "car" or cid not in self._trees:
            return await super()._block(request)
        sections = [_binary(one) + self._blocks[one] for one in self._trees[cid]]
        body = _framed(b"\xa2eroots\x80gversion\x01") + b"".join(map(_framed, sections))
        return web.Response(body=body, content_type="application/vnd.ipld.car")


def _binary(text: str) -> bytes:
    cid = parse_cid(text)
    return bytes((1, cid.codec, cid.hash_code, len(cid.digest))) + cid.digest


def _framed(section: bytes) -> bytes:
    """With its length before it."""
    size, out = len(section), bytearray()
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    assert read_varint(bytes(out), 0)[0] == len(section)
    return bytes(out) + section
