"""A real IPFS gateway on this machine, which can be away and come back at the same address.

`LocalGateway` serves raw blocks by CID over HTTP. `add` puts content in and gives its `ipfs://` URI; `start` and `stop`
make the port answer and refuse. The port is chosen once, so that an address stays good over an outage.
"""

from __future__ import annotations

import base64
import socket
from typing import Self

from aiohttp import web
from tests.support.ipfs import base32, car, folder_of

from clara_eval.core.hashing import sha256_hex
from clara_eval.submissions.fetch.ipfs import parse_cid

_RAW = "application/vnd.ipld.raw"


def raw_uri(content: bytes) -> str:
    """`ipfs://` with the CID of the content as one raw block."""
    digest = bytes.fromhex(sha256_hex(content).removeprefix("0x"))
    cid = "b" + base64.b32encode(b"\x01\x55\x12\x20" + digest).decode().lower().rstrip("=")
    assert parse_cid(cid).matches(content)
    return f"ipfs://{cid}"


class LocalGateway:
    """Use as `async with LocalGateway() as gateway`; it is away until `start`."""

    def __init__(self) -> None:
        self._blocks: dict[str, bytes] = {}
        self._archives: dict[str, bytes] = {}
        self._runner: web.AppRunner | None = None
        self.asked = 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, content: bytes) -> str:
        uri = raw_uri(content)
        self._blocks[uri.removeprefix("ipfs://")] = content
        return uri

    def add_folder(self, files: dict[str, bytes]) -> str:
        """Put a directory in, which is given as an archive of blocks."""
        cid, blocks = folder_of(files)
        self._archives[base32(cid)] = car(*blocks)
        return f"ipfs://{base32(cid)}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**30)
        self.routes(app)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/ipfs/{cid}", self._block)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _block(self, request: web.Request) -> web.Response:
        self.asked += 1
        archive = self._archives.get(request.match_info["cid"])
        if archive is not None and request.query.get("format") == "car":
            return web.Response(body=archive, content_type="application/vnd.ipld.car")
        if request.query.get("format") != "raw":
            return web.Response(status=406)
        content = self._blocks.get(request.match_info["cid"])
        return web.Response(status=404) if content is None else web.Response(body=content, content_type=_RAW)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
