"""Fetch untrusted `data:`, `https:` and `ipfs:` URIs safely."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

import aiohttp

from clara_eval.core.errors import BadSubmission, ConfigError, Temporary
from clara_eval.submissions.fetch.ipfs import fetch_ipfs
from clara_eval.submissions.fetch.web import FetchLimits, Web, check_status
from clara_eval.submissions.model import Fetched, read_data_uri

__all__ = ["FetchLimits", "IpfsContents", "UriFetch", "Web"]


@dataclass(frozen=True, slots=True)
class UriFetch:
    """Fetches URIs; every fetch opens and closes its own connection."""

    ipfs_gateway: str = "https://ipfs.io"  # one or more, separated by commas, tried in turn
    web: Web = field(default_factory=Web)

    def __post_init__(self) -> None:
        wrong = [one for one in self.gateways if not re.fullmatch(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", one)]
        if wrong or not self.gateways:
            raise ConfigError(
                f"CLARA_IPFS_GATEWAY={self.ipfs_gateway!r} is not a comma list of the addresses of gateways.",
                remedy="For example https://ipfs.io,http://127.0.0.1:8080.",
            )

    @property
    def gateways(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.ipfs_gateway.split(",") if part.strip())

    async def fetch(self, uri: str) -> Fetched:
        scheme = uri.partition(":")[0].lower()
        if scheme == "data":
            return read_data_uri(uri, self.web.limits.max_bytes)
        if scheme == "ipfs":
            return await fetch_ipfs(self.web, self.gateways, uri)
        if scheme == "https":
            reply = await self.web.get(uri)
            check_status(reply, uri)
            return Fetched(content=reply.body, media_type=reply.media_type, immutable=False)
        raise BadSubmission(
            f"The URI {uri[:60]!a} is not read.", code="unsupported_scheme", remedy="Use data:, https: or ipfs:."
        )


class IpfsContents:
    """Pin submitted content to an IPFS node, and fetch content as the evaluator does."""

    def __init__(self, ipfs_api: str | None, ipfs_gateway: str) -> None:
        self._api = ipfs_api.rstrip("/") if ipfs_api else None
        self._fetch = UriFetch(ipfs_gateway)

    async def fetch(self, uri: str) -> bytes:
        return (await self._fetch.fetch(uri)).content

    async def place_of(self, content: bytes) -> str | None:
        return await self._add(content, "only-hash=true&pin=false")

    async def pin(self, content: bytes) -> str | None:
        return await self._add(content, "pin=true")

    async def _add(self, content: bytes, options: str) -> str | None:
        if self._api is None:
            return None
        form = aiohttp.FormData()
        form.add_field("file", content, filename="solution.txt", content_type="application/octet-stream")
        url = f"{self._api}/api/v0/add?{options}&cid-version=1&raw-leaves=true"
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
