"""Cloudflare KV as a place of publication: the specification's five keys in one namespace, through the official SDK.

Comes in: account, namespace and token. Goes out: bulk writes, each within the documented limits. Must hold: a bulk is
there when `put_keys` returns, whatever keys the service refused meanwhile; the trace stands under its own key as one
JSON document, or, where it is larger than a value may be, in parts that are there before the key that lists them. The
service answers for a write at once and shows it everywhere within a minute. A namespace belongs to one network.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from clara_eval.errors import ClaraError, ConfigError, Temporary
from clara_eval.extras import require
from clara_eval.hashing import plain_json
from clara_eval.trace.store_keys import trace_key

API = "https://api.cloudflare.com/client/v4"
MOST_KEYS = 10_000
MOST_REQUEST_BYTES = 90_000_000
"""Of the 100 megabytes that one request may have."""
MOST_VALUE_BYTES = 25 * 1024 * 1024
RETRIES = 5
"""Of one request, by the SDK: growing pauses, or what Retry-After says."""
ROUNDS = 5
"""Of the keys that a bulk reports as not written."""
_SECONDS = 60.0

Pair = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CloudflareKv:
    """Fulfils `publication.port.Publication`."""

    account: str
    namespace: str
    token: SecretStr
    api: str = API
    takes_keys: bool = True
    pause_seconds: float = 0.5
    """Before refused keys are put again; doubled each time."""

    @property
    def name(self) -> str:
        """With the namespace in it: another namespace has nothing yet."""
        return f"kv-{self.namespace}"

    async def put_keys(self, _chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        async with self._client() as client:
            for bulk in bulks([{"key": key, "value": value} for key, value in pairs]):
                await self._put(client, bulk)

    async def trace_digest(self, _chain_id: int, address: str) -> str | None:
        from cloudflare import NotFoundError

        async with self._client() as client:
            try:
                found = await client.kv.namespaces.metadata.get(
                    trace_key(address), account_id=self.account, namespace_id=self.namespace
                )
            except NotFoundError:
                return None
        digest = found.get("traceDigest") if isinstance(found, dict) else None
        return digest if isinstance(digest, str) else None

    async def take_trace(self, _chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> None:
        key, buffer, size, written = trace_key(address), list[str](), 0, list[str]()
        async with self._client() as client:
            async for part in parts:
                length = len(part.encode())
                if size + length > MOST_VALUE_BYTES:
                    written.append(await self._put_part(client, key, digest, len(written), "".join(buffer)))
                    buffer, size = [], 0
                buffer.append(part)
                size += length
            whole = "".join(buffer)
            if written:
                written.append(await self._put_part(client, key, digest, len(written), whole))
                whole = plain_json({"digest": digest, "parts": written})
            await self._put(client, [{"key": key, "value": whole, "metadata": {"traceDigest": digest}}])

    async def _put_part(self, client: Any, key: str, digest: str, number: int, text: str) -> str:
        """Under a name that belongs to this trace alone: readers of an older one are not disturbed."""
        name = f"{key}:{digest}:{number:05}"
        await self._put(client, [{"key": name, "value": text}])
        return name

    async def _put(self, client: Any, bulk: Sequence[Pair]) -> None:
        """Until the service says that every key is written."""
        waiting, pause = list(bulk), self.pause_seconds
        for _ in range(ROUNDS):
            done = await client.kv.namespaces.bulk_update(self.namespace, account_id=self.account, body=waiting)
            refused = set(getattr(done, "unsuccessful_keys", None) or ())
            if done is not None and not refused and done.successful_key_count in (None, len(waiting)):
                return
            waiting = [pair for pair in waiting if pair["key"] in refused] or waiting
            await asyncio.sleep(pause)
            pause *= 2
        raise Temporary(
            f"Cloudflare KV did not write {len(waiting)} of {len(bulk)} keys, {waiting[0]['key']} among them.",
            remedy="It is tried again by itself.",
        )

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        """The SDK's client; its errors in our terms."""
        require("cloudflare", "Publication in Cloudflare KV")
        from cloudflare import AsyncCloudflare, CloudflareError

        token = self.token.get_secret_value()
        try:
            async with AsyncCloudflare(
                api_token=token, base_url=self.api, max_retries=RETRIES, timeout=_SECONDS
            ) as client:
                yield client
        except CloudflareError as bad:
            raise self._in_our_terms(bad) from None
        except (ValueError, TypeError) as bad:  # an answer that is not one
            raise Temporary(f"Cloudflare KV answered something unreadable ({type(bad).__name__}).") from None

    def _in_our_terms(self, bad: Exception) -> ClaraError:
        status = getattr(bad, "status_code", None)
        said = "; ".join(str(getattr(error, "message", "")) for error in getattr(bad, "errors", None) or ())[:200]
        if status in (401, 403):
            return ConfigError(
                f"Cloudflare refuses CLARA_KV_TOKEN (HTTP {status}{': ' + said if said else ''}).",
                remedy="It needs the permission Workers KV Storage: Edit for the account of CLARA_KV_ACCOUNT.",
            )
        if status in (400, 404):
            return ConfigError(
                f"Cloudflare knows no such account or namespace (HTTP {status}{': ' + said if said else ''}).",
                remedy="Check CLARA_KV_ACCOUNT and CLARA_KV_NAMESPACE: both are 32 hex digits.",
            )
        reason = f"HTTP {status}" if status else type(bad).__name__
        return Temporary(f"Cloudflare KV does not take the keys ({reason}).", remedy="It is tried again by itself.")


def bulks(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """In order, each within what one request may carry; a value that none may carry is an error of ours."""
    bulk, size = list[Pair](), 0
    for pair in pairs:
        if len(pair["value"].encode()) > MOST_VALUE_BYTES or len(pair["key"].encode()) > 512:
            raise ConfigError(
                f"{pair['key'][:80]} is larger than Cloudflare KV takes.",
                remedy="It stays in the store, where the service shows it.",
            )
        length = len(json.dumps(pair, ensure_ascii=False).encode())
        if bulk and (len(bulk) == MOST_KEYS or size + length > MOST_REQUEST_BYTES):
            yield bulk
            bulk, size = [], 0
        bulk.append(pair)
        size += length
    if bulk:
        yield bulk
