"""HTTP requests to a model's endpoint, and our errors for its failures, which never hold a key."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import ClientConnectorError, ConnectionTimeoutError, InvalidURL
from yarl import URL

from clara_eval.core.errors import BadAnswer, ClaraError, ConfigError, Temporary
from clara_eval.core.version import __version__
from clara_eval.core.web import read_at_most
from clara_eval.judge.port import RateLimited, RequestRefused, ServerFailed, Unanswered

LONGEST_WAIT_SECONDS = 600.0  # upper bound for Retry-After: providers often recover long before
MOST_BYTES = 16 * 2**20  # a verdict has a few hundred bytes, an attestation report a few hundred thousand
MOST_BYTES_IN_A_LINE = 2**20
CONNECT_SECONDS = 20.0
TOO_LONG = re.compile(
    r"context[_ ]length|too long|too large|context window|maximum context|allowed number of output tokens",
    re.IGNORECASE,
)
"""Words of providers' errors for a prompt and answer that exceed the model's context."""
_FILTERED = re.compile(
    r"content(?:[_ ]filter|_policy| management policy)|safety system|invalid_prompt|(?:prompt|input) was flagged",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance|billing|exceeded your current quota", re.IGNORECASE)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds of `retry-after-ms` or `Retry-After` (a number or a date); None if neither."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if seconds >= 0:  # false for NaN
                return min(seconds, LONGEST_WAIT_SECONDS)
    with suppress(ValueError, TypeError, OverflowError):
        seconds = parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now()
        return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)
    return None


def error_text(content: bytes) -> str:
    """Return type, code, parameter and message of a provider's error response."""
    text = content.decode(errors="replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    detail = body.get("error", body) if isinstance(body, dict) else None
    if not isinstance(detail, dict):
        return body if isinstance(body, str) else ""
    parts = [str(detail[key]) for key in ("type", "code", "param", "message") if detail.get(key) not in (None, "")]
    return ", ".join(parts) or json.dumps(detail)


@dataclass(frozen=True, slots=True)
class ModelReply:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


class HttpLlm:
    """A model behind an HTTP endpoint. Opens connections on first use; `close` ends them."""

    call_seconds = 1_800.0  # as `RetryPolicy.ask_seconds`, which ends every call earlier

    def __init__(self, name: str, base_url: str, key: str, key_name: str, headers: Mapping[str, str]) -> None:
        self.name, self._base = name, base_url.rstrip("/")
        self._key, self._key_name = key, key_name
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"clara-eval/{__version__}",
            **headers,
        }
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: bytes) -> ModelReply:
        with self._named_errors():
            async with self._open().post(URL(self._base + path), data=body) as response:
                return await _read(response)

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> ModelReply:
        url = URL(self._base + path, encoded=True)
        with self._named_errors():
            async with self._open().get(url, params=params) as response:
                return await _read(response)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        with self._named_errors():
            async with self._open().get(URL(self._base + path, encoded=True)) as response:
                if response.status != 200:
                    raise self.refusal(await _read(response))
                async for line in response.content:
                    yield line

    def refusal(self, reply: ModelReply) -> ClaraError:
        """Return our error for a response with an error status."""
        who, status, message = self.name, reply.status, error_text(reply.content)
        hidden = message.replace(self._key, "(hidden)") if self._key else message
        text = "".join(c if c.isprintable() else " " for c in hidden)[:300]
        if status in (400, 402, 403, 429) and _NO_CREDIT.search(text):
            remedy = "Top it up or choose another judge."
            return ConfigError(f"{who}: the account has no credit ({status}).", remedy=remedy)
        if status in (429, 529):
            seconds = retry_after(reply.headers)
            return RateLimited(f"{who} limits the rate ({status}): {text}", retry_after_seconds=seconds)
        if status in (408, 409, 425) or status >= 500:
            kind, seconds = ServerFailed if status >= 500 else Temporary, retry_after(reply.headers)
            return kind(f"{who} failed ({status}): {text}", retry_after_seconds=seconds)
        is_filtered = _FILTERED.search(text) is not None
        if status in (401, 403) and not (status == 403 and is_filtered):
            # Without the provider's message: it quotes parts of the key.
            return ConfigError(f"{who} does not accept the key ({status}).", remedy=f"Check {self._key_name}.")
        if status == 404:
            remedy = "Check the model and address in CLARA_JUDGES."
            return ConfigError(f"{who} does not exist (404): {text}", remedy=remedy)
        if status == 413 or TOO_LONG.search(text) or is_filtered:
            return BadAnswer(f"{who} does not take this prompt ({status}): {text}")
        remedy = "Check the model in CLARA_JUDGES."
        return RequestRefused(f"{who} refuses the request ({status}): {text}", remedy=remedy)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as bad:
            remedy = "Is its address right, and the network up?"
            if isinstance(bad, aiohttp.ClientSSLError):
                remedy = "Its TLS certificate is not accepted: is the address right, and its authority known here?"
            raise Temporary(f"{self.name} cannot be reached.", remedy=remedy) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as bad:
            raise Unanswered(f"{self.name} did not answer: {type(bad).__name__}.") from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            proxy, login = _proxy(URL(self._base))
            connecting = min(self.call_seconds, CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self.call_seconds, sock_connect=connecting),
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),  # `Gate` limits concurrent calls
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=proxy,
                proxy_auth=login,
                read_bufsize=MOST_BYTES_IN_A_LINE,
            )
        return self._session


def _proxy(url: URL) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """Look up the proxy of the environment, once per session: aiohttp would do it for every call."""
    named = getproxies().get(url.scheme)
    if named is None or url.host is None or proxy_bypass(url.host):
        return None, None
    proxy = URL(named if "://" in named else f"http://{named}")
    login = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
    return proxy.with_user(None), login


async def _read(response: aiohttp.ClientResponse) -> ModelReply:
    return ModelReply(response.status, response.headers, await read_at_most(response, MOST_BYTES))
