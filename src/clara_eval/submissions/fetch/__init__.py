"""Read strangers' URIs safely: `data:`, `https:` and `ipfs:`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from clara_eval.core.errors import BadSubmission, ConfigError
from clara_eval.submissions.data_uri import read_data_uri
from clara_eval.submissions.fetch.ipfs import fetch_ipfs
from clara_eval.submissions.fetch.web import FetchLimits, Web, refuse_status
from clara_eval.submissions.model import Fetched

__all__ = ["FetchLimits", "UriFetch", "Web"]


@dataclass(frozen=True, slots=True)
class UriFetch:
    """Fulfils `solutions.Fetch`. Holds no connection: every fetch opens and closes its own."""

    ipfs_gateway: str = "https://ipfs.io"
    """One or several, separated by commas: the next is asked where one cannot give the content."""
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
            refuse_status(reply, uri)
            return Fetched(content=reply.body, media_type=reply.media_type, immutable=False)
        raise BadSubmission(
            f"The URI {uri[:60]!a} is not read.",
            code="unsupported_scheme",
            remedy="Use data:, https: or ipfs:.",
        )
