"""Publish in one namespace of Cloudflare KV; a large trace's parts are written before its key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import SecretStr

from clara_eval.core.errors import ClaraError, ConfigError, Temporary
from clara_eval.core.extras import require
from clara_eval.core.hashing import plain_json, sha256_hex
from clara_eval.documents.store_keys import trace_key
from clara_eval.store.publication.publish_documents import Refused

API = "https://api.cloudflare.com/client/v4"
MOST_KEYS = 10_000
MOST_REQUEST_BYTES = 90_000_000  # Cloudflare allows 100 MB
MOST_VALUE_BYTES = 25 * 1024 * 1024
RETRIES = 5  # Of one request, by the SDK: with growing pauses, or as Retry-After says
ROUNDS = 5  # Attempts to write the keys that a bulk request reports as not written
_TIMEOUT_SECONDS = 60.0
_RETRY_REMEDY = "It is retried automatically."

Pair = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CloudflareKv:
    takes_keys: ClassVar[bool] = True
    account: str
    namespace: str
    token: SecretStr
    api: str = API
    pause_seconds: float = 0.5  # Before refused keys are written again; doubled each time

    @property
    def name(self) -> str:
        """The name with the namespace, because progress in one says nothing about another."""
        return f"kv-{self.namespace}"

    async def check(self) -> None:
        """Write a key that expires after 60 s: reading would not show whether the token may write."""
        async with self._client() as client:
            await self._put(client, [{"key": "clara-eval:check", "value": "1", "expiration_ttl": 60}])

    async def put_keys(self, _chain_id: int, pairs: Sequence[tuple[str, str]]) -> None:
        async with self._client() as client:
            for bulk in bulks([{"key": key, "value": value} for key, value in pairs]):
                await self._put(client, bulk)

    async def trace_digest(self, _chain_id: int, address: str) -> str | None:
        async with self._client() as client:
            return await self._read_metadata(client, trace_key(address), "traceDigest")

    async def take_trace(self, _chain_id: int, address: str, digest: str, parts: AsyncIterator[str]) -> None:
        key, last, written = trace_key(address), "", list[str]()
        async with self._client() as client:
            async for value in values(parts):
                if last:
                    written.append(await self._put_part(client, key, digest, len(written), last))
                last = value
            if written:
                written.append(await self._put_part(client, key, digest, len(written), last))
                last = plain_json({"digest": digest, "parts": written})
            await self._put(client, [{"key": key, "value": last, "metadata": {"traceDigest": digest}}])

    async def _put_part(self, client: Any, key: str, digest: str, number: int, text: str) -> str:
        """Write a part under a name with the trace's digest, unless it exists."""
        name, content = f"{key}:{digest}:{number:05}", sha256_hex(text.encode())
        if await self._read_metadata(client, name, "sha256") != content:
            await self._put(client, [{"key": name, "value": text, "metadata": {"sha256": content}}])
        return name

    async def _read_metadata(self, client: Any, key: str, field: str) -> str | None:
        from cloudflare import NotFoundError

        read = client.kv.namespaces.metadata.with_raw_response.get
        try:
            raw = await read(key, account_id=self.account, namespace_id=self.namespace)
        except NotFoundError:
            return None
        found = _read_answer(await raw.text())
        if found is None:
            raise Temporary("Cloudflare KV answers something unreadable.", remedy=_RETRY_REMEDY)
        text = found["result"].get(field)
        return text if isinstance(text, str) else None

    async def _put(self, client: Any, bulk: Sequence[Pair]) -> None:
        waiting, found = list(bulk), None
        write = client.kv.namespaces.with_raw_response.bulk_update
        for attempt in range(ROUNDS):
            if attempt:
                await asyncio.sleep(self.pause_seconds * 2 ** (attempt - 1))
            found = _read_answer(await (await write(self.namespace, account_id=self.account, body=waiting)).text())
            result = found["result"] if found else {}
            refused, count = result.get("unsuccessful_keys") or [], result.get("successful_key_count")
            if found and found["success"] and not refused and count in {None, len(waiting)}:
                return
            waiting = [pair for pair in waiting if pair["key"] in refused] or waiting
        if found is None:
            raise Temporary("Cloudflare KV answers something unreadable.", remedy=_RETRY_REMEDY)
        problem = f"Cloudflare KV did not write {len(waiting)} of {len(bulk)} keys, {waiting[0]['key']} among them."
        raise Refused(problem, remedy=_RETRY_REMEDY)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        require("cloudflare", "Publication in Cloudflare KV")
        from cloudflare import AsyncCloudflare, CloudflareError

        token = self.token.get_secret_value()
        try:
            async with AsyncCloudflare(
                api_token=token, base_url=self.api, max_retries=RETRIES, timeout=_TIMEOUT_SECONDS
            ) as client:
                # Otherwise credentials in CLOUDFLARE_EMAIL and similar variables replace the token.
                client.api_email = client.api_key = client.user_service_key = None
                yield client
        except CloudflareError as bad:
            raise self._translate_error(bad) from None

    def _translate_error(self, bad: Exception) -> ClaraError:
        status = getattr(bad, "status_code", None)
        text = "; ".join(str(getattr(error, "message", "")) for error in getattr(bad, "errors", None) or ())
        text = text.replace(self.token.get_secret_value(), "…")[:200]
        cause = f"(HTTP {status}{': ' + text if text else ''})."
        if status in (401, 403):
            remedy = "It needs the permission Workers KV Storage: Edit for the account of CLARA_KV_ACCOUNT."
            return ConfigError(f"Cloudflare refuses CLARA_KV_TOKEN {cause}", remedy=remedy)
        remedy = "Check CLARA_KV_ACCOUNT and CLARA_KV_NAMESPACE"
        if status == 404:
            return ConfigError(f"Cloudflare knows no such account or namespace {cause}", remedy=f"{remedy}.")
        if status in (400, 413):
            return Refused(f"Cloudflare KV refuses what is put there {cause}", remedy=f"{remedy} if it speaks of them.")
        reason = f"HTTP {status}" if status else type(bad).__name__
        return Temporary(f"Cloudflare KV does not take the keys ({reason}).", remedy=_RETRY_REMEDY)


def bulks(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Split the pairs into requests of allowed size; Refused if a single pair is too large."""
    bulk, size = list[Pair](), 0
    for pair in pairs:
        if len(pair["value"].encode()) > MOST_VALUE_BYTES or len(pair["key"].encode()) > 512:
            problem = f"{pair['key'][:80]} is larger than Cloudflare KV takes."
            raise Refused(problem, remedy="It stays in the store, where the service shows it.")
        length = len(json.dumps(pair, ensure_ascii=False).encode())
        if bulk and (len(bulk) == MOST_KEYS or size + length > MOST_REQUEST_BYTES):
            yield bulk
            bulk, size = [], 0
        bulk.append(pair)
        size += length
    if bulk:
        yield bulk


async def values(parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """Join the parts of a text and split it into values of allowed size."""
    waiting = b""
    async for part in parts:
        waiting += part.encode()
        while len(waiting) > MOST_VALUE_BYTES:
            value = waiting[:MOST_VALUE_BYTES].decode(errors="ignore")  # drops a partial character at the end
            yield value
            waiting = waiting[len(value.encode()) :]
    yield waiting.decode()


def _read_answer(text: str) -> Pair | None:
    """Read `success` and `result` of an answer; None if it has another shape."""
    try:
        found = json.loads(text)
        answer: Pair = {"success": found.get("success") is True, "result": dict(found.get("result") or {})}
        return answer if isinstance(answer["result"].get("unsuccessful_keys") or [], list) else None
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
