"""Publish traces on IPFS through a Kubo node, and check the CID that it reports."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import aiohttp

from clara_eval.core.errors import Temporary
from clara_eval.core.web import read_at_most
from clara_eval.submissions.fetch.ipfs import CHUNKER, FileCid

_TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=10, sock_read=120)
_MAX_BYTES = 65_536
_ADD = f"add?pin=true&cid-version=1&raw-leaves=true&chunker={CHUNKER}&progress=false"


@dataclass(frozen=True, slots=True)
class IpfsPublication:
    takes_keys: ClassVar[bool] = False
    api: str

    @property
    def name(self) -> str:
        return "ipfs"

    async def check(self) -> None:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            await self._ask(session, "version")

    async def put_keys(self, _chain_id: int, _pairs: Sequence[tuple[str, str]]) -> None:
        """Do nothing: IPFS has no keys."""

    async def trace_digest(self, _chain_id: int, _address: str) -> str | None:
        """Return None: a node knows content, not challenges."""
        return None

    async def take_trace(self, _chain_id: int, address: str, _digest: str, parts: AsyncIterator[str]) -> str:
        building = FileCid()
        form = aiohttp.MultipartWriter("form-data")
        form.append(_hash_parts(parts, building), {"Content-Type": "application/json"}).set_content_disposition(
            "form-data", name="file", filename=f"{address}.json"
        )
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            added = await self._ask(session, _ADD, form)
            cid = building.finish()
            if added.get("Hash") != cid:
                raise Temporary(
                    f"The IPFS node calls the trace {str(added.get('Hash'))[:80]!a}, which is not its CID {cid}.",
                    remedy="Check that CLARA_IPFS_API is a Kubo node with its usual import settings.",
                )
            pinned = await self._ask(session, f"pin/ls?arg={cid}&type=recursive")
        if cid not in (pinned.get("Keys") or {}):
            raise Temporary(f"The IPFS node does not say that it pins {cid}.", remedy="Check CLARA_IPFS_API.")
        return f"ipfs://{cid}"

    async def _ask(
        self, session: aiohttp.ClientSession, command: str, body: aiohttp.MultipartWriter | None = None
    ) -> dict[str, Any]:
        url = f"{self.api.rstrip('/')}/api/v0/{command}"
        try:
            async with session.post(url, data=body, allow_redirects=False) as response:
                answer = json.loads(await read_at_most(response, _MAX_BYTES))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as bad:
            problem = f"The IPFS node of CLARA_IPFS_API does not take the trace ({type(bad).__name__})."
            raise Temporary(problem, remedy="It is retried automatically.") from bad
        if response.status != 200 or not isinstance(answer, dict):
            message = answer.get("Message") if isinstance(answer, dict) else None
            problem = f"The IPFS node of CLARA_IPFS_API answers HTTP {response.status} ({str(message)[:120]!a})."
            raise Temporary(problem, remedy="It is retried automatically.")
        return answer


async def _hash_parts(parts: AsyncIterator[str], building: FileCid) -> AsyncIterator[bytes]:
    async for part in parts:
        piece = part.encode()
        building.update(piece)
        yield piece
