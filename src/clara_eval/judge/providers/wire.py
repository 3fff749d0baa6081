"""HTTP to one model's endpoint, and errors of ours for its failures; no key and no request header is in their text."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import ClientConnectorError, ConnectionTimeoutError, InvalidURL
from yarl import URL

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, Temporary
from clara_eval.core.version import __version__
from clara_eval.core.web import read_at_most
from clara_eval.judge.port import RateLimited, RequestRefused, ServerFailed, Unanswered

LONGEST_WAIT_SECONDS = 600.0
"""A provider that asks for more is asked again after this time: it may be well long before."""
_TOO_LONG = (
    *("context_length", "context length", "too long", "too large", "context window", "maximum context"),
    "allowed number of output tokens",
)
_REFUSED = (
    "content_filter",
    "content filter",
    "content_policy",
    "content management policy",
    "safety system",
    "invalid_prompt",
    "prompt was flagged",
    "input was flagged",
)
_NO_CREDIT = ("insufficient_quota", "credit balance", "billing", "exceeded your current quota")


def explain_status(who: str, key_name: str, status: int, message: str, headers: Mapping[str, str]) -> ClaraError:
    """Return the error of the judge `who` for an HTTP status and what the provider wrote with it."""
    text = "".join(c if c.isprintable() else " " for c in message)[:300]
    lowered = text.lower()
    if status in (400, 402, 403, 429) and any(word in lowered for word in _NO_CREDIT):
        return ConfigError(f"{who}: the account has no credit ({status}).", remedy="Top it up or choose another judge.")
    if status in (429, 529):
        return RateLimited(f"{who} limits the rate ({status}): {text}", retry_after_seconds=retry_after(headers))
    if status in (408, 409, 425) or status >= 500:
        kind = ServerFailed if status >= 500 else Temporary
        return kind(f"{who} is not well ({status}): {text}", retry_after_seconds=retry_after(headers))
    if status in (400, 403) and any(word in lowered for word in _REFUSED):
        return BadAnswer(f"{who} does not take this prompt ({status}): {text}")
    if status in (401, 403):
        # The provider's words are left out: they quote parts of the key.
        return ConfigError(f"{who} does not accept the key ({status}).", remedy=f"Check {key_name}.")
    if status == 404:
        return ConfigError(f"{who} does not exist (404): {text}", remedy="Check the model and address in CLARA_JUDGES.")
    if status == 413 or is_too_long(text) or any(word in lowered for word in _REFUSED):
        return BadAnswer(f"{who} does not take this prompt ({status}): {text}")
    return RequestRefused(f"{who} refuses the request ({status}): {text}", remedy="Check the model in CLARA_JUDGES.")


def is_too_long(message: str) -> bool:
    """Return whether a provider says that prompt and answer are more than the model can hold."""
    lowered = message.lower()
    return any(word in lowered for word in _TOO_LONG)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds of `retry-after-ms` or `Retry-After`; None if neither."""
    milliseconds, value = _number(headers.get("retry-after-ms")), headers.get("retry-after")
    seconds = _number(value) if milliseconds is None else milliseconds / 1000
    if seconds is None and value:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now()
        except (ValueError, TypeError, OverflowError):
            return None
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def said_by(content: bytes) -> str:
    """Return what the provider wrote, from the bytes of an answer: type, code and message."""
    text = content.decode(errors="replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    detail = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(detail, dict):
        return body if isinstance(body, str) else ""
    return said_in(detail)


def said_in(detail: Mapping[str, Any]) -> str:
    parts = [str(detail[key]) for key in ("type", "code", "param", "message") if detail.get(key) not in (None, "")]
    return ", ".join(parts) or json.dumps(detail)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and value >= 0 else None  # not so for NaN


MOST_BYTES = 16 * 2**20
"""A judge answers with some hundred bytes, an attestation has some hundred thousand."""
MOST_BYTES_IN_A_LINE = 2**20
CONNECT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ModelReply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class Wire:
    """HTTP to one judge's address with its key. Opens connections on first use; `close` ends them."""

    def __init__(
        self,
        judge: str,
        base_url: str,
        key: str,
        key_name: str,
        seconds: float,
        *,
        headers: Mapping[str, str] | None = None,
        encodings: str = "gzip, deflate",
    ) -> None:
        self._judge, self._base = judge, base_url.rstrip("/")
        self._key, self._key_name = key, key_name
        self._timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": encodings,
            "User-Agent": f"clara-eval/{__version__}",
            **(headers or {}),
        }
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: bytes) -> ModelReply:
        async with self._exchange(self._open().post(URL(self._base + path), data=body)) as response:
            return await _read(response)

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> ModelReply:
        url = URL(self._base + path, encoded=True)
        async with self._exchange(self._open().get(url, params=params)) as response:
            return await _read(response)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        async with self._exchange(self._open().get(URL(self._base + path, encoded=True))) as response:
            if response.status != 200:
                raise self.refusal(await _read(response))
            async for line in response.content:
                yield line

    def refusal(self, reply: ModelReply) -> ClaraError:
        return self.error(reply.status, said_by(reply.content), reply.headers)

    def error(self, status: int, message: str, headers: Mapping[str, str]) -> ClaraError:
        hidden = message.replace(self._key, "(hidden)") if self._key else message
        return explain_status(self._judge, self._key_name, status, hidden, headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _exchange(
        self, request: AbstractAsyncContextManager[aiohttp.ClientResponse]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with request as response:
                yield response
        except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as bad:
            remedy = "Is its address right, and the network up?"
            if isinstance(bad, aiohttp.ClientSSLError):
                remedy = "Its TLS certificate is not accepted: is the address right, and its authority known here?"
            raise Temporary(f"{self._judge} cannot be reached.", remedy=remedy) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as bad:
            raise Unanswered(f"{self._judge} did not answer: {type(bad).__name__}.") from None

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
                read_bufsize=MOST_BYTES_IN_A_LINE,
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
    return ModelReply(response.status, response.headers, await read_at_most(response, MOST_BYTES))
