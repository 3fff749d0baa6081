"""Which hosts may be asked: public ones, by https, on port 443, by the address that was checked."""

from __future__ import annotations

import ipaddress
import re
import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from clara_eval.core.errors import BadSubmission

Exempt = frozenset[tuple[str, int]]
_LONGEST_URL = 2_048
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.){1,20}[a-z0-9-]{2,63}")
# Public by the registry, but they carry an IPv4 address inside, or lead through a translator; and three blocks that are
# not public, though not every Python version says so: the old site-local one, protocol assignments, documentation.
_CARRIERS = tuple(
    ipaddress.ip_network(block)
    for block in (
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "2001::/32",
        "::/96",
        "::ffff:0:0/96",
        "192.88.99.0/24",
        "fec0::/10",
        "192.0.0.0/24",
        "3fff::/20",
    )
)


def is_public(address: str) -> bool:
    """True for an address on the open internet that hides no other address inside."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if "%" in address or any(ip.version == block.version and ip in block for block in _CARRIERS):
        return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_loopback or ip.is_link_local)


def check_url(text: str, *, exempt: Exempt = frozenset()) -> URL:
    """The URL as the client will use it, parsed once; else BadSubmission."""
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
    _check_host(host, port or 443, exempt)
    return url


def _check_host(host: str, port: int, exempt: Exempt) -> None:
    bare = host.rstrip(".").lower()
    if ":" in bare or re.fullmatch(r"[0-9.]+", bare):
        if not is_public(bare) and (bare, port) not in exempt:
            raise BadSubmission(f"The address {host[:60]} is not public.", code="forbidden_address")
        return
    last = bare.rpartition(".")[2]
    if not _HOST.fullmatch(bare):
        raise BadSubmission(f"The host {host[:60]!r} is not a public name.", code="forbidden_address")
    # inet_aton reads 2852039166 and 0x7f.1 as addresses; no public name ends like that.
    if re.fullmatch(r"(?:0x[0-9a-f]*|[0-9]+)", last) or last in {"localhost", "local", "internal"}:
        raise BadSubmission(f"The host {host[:60]!r} is not a public name.", code="forbidden_address")


class PublicResolver(AbstractResolver):
    """Asks `inner`, refuses the whole name if any of its addresses is not public."""

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
