"""Read HTTP bodies up to a limit; parse `Origin` and `Host` headers into comparable values."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_HOST_PORT = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([1-9][0-9]{0,4}))?")
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HostPort:
    """A parsed `Host` or `Origin` header; `port` is None if a `Host` header names none."""

    host: str
    port: int | None
    scheme: str = ""  # Only of an origin

    @property
    def without_default_port(self) -> HostPort:
        return HostPort(self.host, None) if self.port in DEFAULT_PORTS.values() else self

    def is_of(self, host: HostPort) -> bool:
        return (self.host, self.port) == (host.host, host.port or DEFAULT_PORTS[self.scheme])


def read_host(text: str) -> HostPort | None:
    """Parse a `Host` header; None if it is malformed."""
    found = _HOST_PORT.fullmatch(text.lower())
    if found is None:
        return None
    host, port = found[1], int(found[2]) if found[2] else None
    if port is not None and port > 65535:
        return None
    if host.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        except ValueError:
            return None
    return HostPort(host, port)


def read_origin(text: str) -> HostPort | None:
    """Parse an `Origin` header; None for `null`, a list, a path, a user name or another scheme."""
    scheme, separator, rest = text.partition("://")
    host = read_host(rest) if separator and scheme.lower() in DEFAULT_PORTS else None
    if host is None:
        return None
    return HostPort(host.host, host.port or DEFAULT_PORTS[scheme.lower()], scheme.lower())


class TooLong(ValueError):
    """The body is longer than the limit."""


async def read_at_most(response: ClientResponse, limit: int) -> bytes:
    content = bytearray()
    while not response.content.at_eof():  # `iter_chunked` is slower
        content += await response.content.readany()
        if len(content) > limit:
            raise TooLong(f"its answer has more than {limit} bytes")
    return bytes(content)
