"""One GET over the open internet: public hosts only, bounded in size, time and redirects."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from clara_eval.core.errors import BadSubmission
from clara_eval.submissions.model import MAX_BYTES, Outage

Exempt = frozenset[tuple[str, int]]
_LONGEST_URL = 2_048
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.){1,20}[a-z0-9-]{2,63}")
# inet_aton parses 2852039166 and 0x7f.1 as addresses; no public name ends like that.
_NO_TOP_LEVEL_DOMAIN = re.compile(r"0x[0-9a-f]*|[0-9]+|localhost|local|internal")
_NOT_PUBLIC = [
    ipaddress.ip_network(block)
    for block in (
        # Public in the registry, but they embed an IPv4 address or route through a translator.
        *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0/96", "192.88.99.0/24"),
        # Not public, though some Python versions say so: old site-local, protocol assignments, documentation.
        *("fec0::/10", "192.0.0.0/24", "3fff::/20"),
    )
]
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGENT = "clara-eval (https; reads challenge submissions)"


def is_public(address: str) -> bool:
    """Return whether an IP address is on the open internet and embeds no other address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if "%" in address or any(ip.version == block.version and ip in block for block in _NOT_PUBLIC):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_loopback or ip.is_link_local)


def check_url(text: str, *, exempt: Exempt = frozenset()) -> URL:
    """Parse a URL once, as the client will use it. Raises BadSubmission if it is not allowed."""
    if len(text) > _LONGEST_URL or re.search(r"[\x00-\x20\x7f\\]", text):
        raise BadSubmission("The URL is too long, or holds spaces, control characters or backslashes.", code="bad_uri")
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
    except ValueError as bad:
        raise BadSubmission(f"The URL cannot be read: {bad}.", code="bad_uri") from None
    if url.scheme != "https":
        raise BadSubmission(f"The scheme {url.scheme[:20]!r} is not read; https is.", code="unsupported_scheme")
    if not host or url.user is not None or url.password is not None or "@" in url.raw_authority:
        raise BadSubmission("The URL has no host, or holds credentials.", code="bad_uri")
    if port != 443 and not any(port == allowed for _, allowed in exempt):
        raise BadSubmission(f"Port {port} is not read; 443 is.", code="forbidden_address")
    bare = host.rstrip(".").lower()
    if ":" in bare or re.fullmatch(r"[0-9.]+", bare):
        if not is_public(bare) and (bare, port) not in exempt:
            raise BadSubmission(f"The address {host[:60]} is not public.", code="forbidden_address")
    elif not _HOST.fullmatch(bare) or _NO_TOP_LEVEL_DOMAIN.fullmatch(bare.rpartition(".")[2]):
        raise BadSubmission(f"The host {host[:60]!r} is not a public name.", code="forbidden_address")
    return url


class PublicResolver(AbstractResolver):
    """Resolves with `inner`, and rejects a name if any of its addresses is not public."""

    def __init__(self, inner: AbstractResolver, *, exempt: Exempt = frozenset()) -> None:
        self._inner = inner
        self._exempt = exempt

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for one in found:
            if not is_public(one["host"]) and (one["host"], port) not in self._exempt:
                raise BadSubmission(
                    f"The name {host[:60]!r} leads to {one['host']}, which is not a public address.",
                    code="forbidden_address",
                )
        return found

    async def close(self) -> None:
        await self._inner.close()


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_bytes: int = MAX_BYTES
    total_seconds: float = 20.0  # for one attempt with name resolution, connection, redirects and the whole body
    connect_seconds: float = 5.0
    max_redirects: int = 3


class WebReply(NamedTuple):
    status: int
    media_type: str
    body: bytes
    location: str | None
    retry_after_seconds: float | None


@dataclass(frozen=True, slots=True)
class Web:
    """An HTTP client for untrusted servers; tests set `resolver`, `tls` and `exempt` for local servers."""

    limits: FetchLimits = FetchLimits()
    resolver: AbstractResolver | None = None
    tls: ssl.SSLContext | None = None
    exempt: Exempt = frozenset()

    async def get(self, text: str) -> WebReply:
        return await self._get(text, {}, self.limits.max_bytes, is_trusted=False)

    async def get_trusted(self, text: str, headers: Mapping[str, str], max_bytes: int) -> WebReply:
        """GET from a host of the operator's choice, which may be local; its redirects are untrusted."""
        try:
            return await self._get(text, headers, max_bytes, is_trusted=True)
        except BadSubmission as bad:
            if bad.code == "too_large":
                raise
            # A gateway's bad certificate, encoding or redirect is not the submission's fault.
            raise Outage(f"The gateway failed: {bad.message}", code="unreachable") from bad

    async def _get(self, text: str, headers: Mapping[str, str], max_bytes: int, *, is_trusted: bool) -> WebReply:
        timeout = asyncio.timeout(self.limits.total_seconds)
        try:
            async with timeout:
                url = URL(text) if is_trusted else check_url(text, exempt=self.exempt)
                for _ in range(self.limits.max_redirects + 1):
                    inner = self.resolver or aiohttp.ThreadedResolver()
                    resolver = inner if is_trusted else PublicResolver(inner, exempt=self.exempt)
                    reply = await self._get_once(url, resolver, headers, max_bytes)
                    if reply.location is None:
                        return reply
                    url, is_trusted = check_url(_resolve_redirect(url, reply.location), exempt=self.exempt), False
        except TimeoutError:
            if not timeout.expired():
                raise
            message = f"{_short(text)} was not read within {self.limits.total_seconds:g} seconds."
            raise Outage(message, code="timeout") from None
        raise BadSubmission(f"It redirects more than {self.limits.max_redirects} times.", code="too_many_redirects")

    async def _get_once(
        self, url: URL, resolver: AbstractResolver, headers: Mapping[str, str], max_bytes: int
    ) -> WebReply:
        connector = aiohttp.TCPConnector(
            resolver=resolver, use_dns_cache=False, force_close=True, ssl=self.tls or True, limit=1
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    trust_env=False,
                    auto_decompress=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_seconds),
                    headers={"User-Agent": _AGENT, "Accept-Encoding": "identity", **headers},
                ) as session,
                session.get(url, allow_redirects=False) as response,
            ):
                retry_after = response.headers.get("Retry-After", "")
                return WebReply(
                    status=response.status,
                    media_type=response.content_type,
                    body=await _read(response, max_bytes) if response.status == 200 else b"",
                    location=response.headers.get("Location") if response.status in _REDIRECTS else None,
                    retry_after_seconds=float(retry_after) if re.fullmatch("[0-9]{1,5}", retry_after) else None,
                )
        except aiohttp.ClientError as bad:
            raise _translate_error(url, bad) from bad


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    too_large = BadSubmission(f"The content has more than {max_bytes:,} bytes.", code="too_large")
    if (response.content_length or 0) > max_bytes:
        raise too_large
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > max_bytes:
            raise too_large
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in {"identity", ""}:
        return bytes(raw)
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise BadSubmission(f"The server sends it as {encoding[:20]!r}, unasked.", code="unreadable")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        body = unpacker.decompress(raw, max_bytes + 1)
    except zlib.error as bad:
        raise BadSubmission(f"The compressed body is malformed: {bad}.", code="unreadable") from None
    if len(body) > max_bytes:
        raise too_large
    if not unpacker.eof or unpacker.unused_data:
        raise BadSubmission("The compressed body is cut, or followed by something else.", code="unreadable")
    return body


def check_status(reply: WebReply, text: str) -> None:
    if reply.status == 200:
        return
    if reply.status in {404, 410}:
        raise BadSubmission(f"{_short(text)} answers {reply.status}: nothing is there.", code="not_found")
    if reply.status >= 500 or reply.status in {408, 425, 429}:
        raise Outage(f"{_short(text)} answers {reply.status}.", retry_after_seconds=reply.retry_after_seconds)
    raise BadSubmission(f"{_short(text)} answers {reply.status} instead of 200.", code="unreadable")


def _translate_error(url: URL, bad: aiohttp.ClientError) -> Exception:
    if isinstance(bad, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        return BadSubmission(f"{url.host}: the TLS certificate or handshake is not valid.", code="unreadable")
    if isinstance(bad, aiohttp.ServerTimeoutError):
        return Outage(f"{url.host} did not answer in time.", code="timeout")
    if isinstance(bad, (aiohttp.ClientPayloadError, aiohttp.ClientResponseError)):
        return Outage(f"{url.host} broke off or sent a malformed answer.", code="unreadable")
    if isinstance(bad, (aiohttp.InvalidURL, ValueError)):
        return BadSubmission(f"The URL cannot be used: {bad}.", code="bad_uri")
    return Outage(f"{url.host} cannot be reached ({type(bad).__name__}).")


def _resolve_redirect(url: URL, location: str) -> str:
    try:
        return str(url.join(URL(location)))
    except ValueError:
        raise BadSubmission("It redirects to something that is no URL.", code="bad_uri") from None


def _short(text: str) -> str:
    return ascii(text[:120])[1:-1]
