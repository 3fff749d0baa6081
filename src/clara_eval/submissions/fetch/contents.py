"""Pin submitted content to an IPFS node, and fetch content as the evaluator does."""

from __future__ import annotations

import json

import aiohttp

from clara_eval.core.errors import Temporary
from clara_eval.submissions.fetch import UriFetch


class IpfsContents:
    def __init__(self, ipfs_api: str | None, ipfs_gateway: str) -> None:
        self._api = ipfs_api.rstrip("/") if ipfs_api else None
        self._fetch = UriFetch(ipfs_gateway)

    async def fetch(self, uri: str) -> bytes:
        return (await self._fetch.fetch(uri)).content

    async def place_of(self, content: bytes) -> str | None:
        return await self._add(content, "only-hash=true&pin=false")

    async def pin(self, content: bytes) -> str | None:
        return await self._add(content, "pin=true")

    async def _add(self, content: bytes, how: str) -> str | None:
        if self._api is None:
            return None
        form = aiohttp.FormData()
        form.add_field("file", content, filename="solution.txt", content_type="application/octet-stream")
        url = f"{self._api}/api/v0/add?{how}&cid-version=1&raw-leaves=true"
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
                session.post(url, data=form, allow_redirects=False) as response,
            ):
                answer = json.loads(await response.text())
                cid = answer["Hash"] if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError, RecursionError) as bad:
            raise Temporary(
                f"The IPFS node did not take the content ({type(bad).__name__}).",
                remedy="Check CLARA_IPFS_API, or remove it to store short content on chain.",
            ) from bad
        if not isinstance(cid, str) or not cid.isalnum():
            raise Temporary("The IPFS node gave no CID.", remedy="Check CLARA_IPFS_API.")
        return f"ipfs://{cid}"
