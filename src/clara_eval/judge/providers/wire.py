"""HTTP to one model's endpoint, on aiohttp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from clara_eval.core.version import __version__

MOST_BYTES = 16 * 2**20
"""A judge answers with some hundred bytes, an attestation has some hundred thousand."""
CONNECT_SECONDS = 20.0
TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class AnswerTooLong(aiohttp.ClientError):
    pass


@dataclass(frozen=True, slots=True)
class ModelReply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class Wire:
    """Opens connections on first use; `close` ends them."""

    def __init__(self, base_url: str, key: str, seconds: float, *, encodings: str = "gzip, deflate") -> None:
        self._base = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": encodings,
            "User-Agent": f"clara-eval/{__version__}",
        }
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}

    async def post(self, path: str, body: bytes) -> ModelReply:
        url = self._urls.get(path) or self._urls.setdefault(path, URL(self._base + path))
        async with self._open().post(url, data=body) as response:
            return await _read(response)

    async def get(self, path: str, params: Mapping[str, str]) -> ModelReply:
        async with self._open().get(URL(self._base + path, encoded=True), params=params) as response:
            return await _read(response)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            proxy, login = _proxy(URL(self._base))
            self._session = aiohttp.ClientSession(
                timeout=self._timeout,
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),  # the judge's gate counts what is in flight
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=proxy,
                proxy_auth=login,
            )
        return self._session


def _proxy(url: URL) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """Look up the environment's proxy once; aiohttp would look it up for every call."""
    named = getproxies().get(url.scheme)
    if named is None or url.host is None or proxy_bypass(url.host):
        return None, None
    proxy = URL(named if "://" in named else f"http://{named}")
    login = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
    return proxy.with_user(None), login


async def _read(response: aiohttp.ClientResponse) -> ModelReply:
    content = await response.content.readany()
    if not response.content.at_eof():
        parts, size = [content], len(content)
        async for part in response.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise AnswerTooLong
        content = b"".join(parts)
    return ModelReply(response.status, response.headers, content)
