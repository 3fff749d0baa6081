"""Store traces in parts of about 1 MB, under a key with digest and number of parts.

Invariant: the key is written after all parts; a signed result is copied before another replaces it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from clara_eval.core.codec import read_stored
from clara_eval.core.hashing import plain_json
from clara_eval.documents.store_keys import kept_key, status_key, trace_key
from clara_eval.evaluation.trace import Notes, TraceWriter, render
from clara_eval.store.sql_store import PublicKeys

_PART_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Archived:
    digest: str
    parts: int


@dataclass(frozen=True, slots=True)
class TraceDraft:
    digest: str
    lines: IO[str]

    def pieces(self, notes: Notes | None = None) -> Iterator[str]:
        self.lines.seek(0)
        return render((line.removesuffix("\n") for line in self.lines), self.digest, notes)


@contextmanager
def drafted(entries: Iterable[tuple[str, object]]) -> Iterator[TraceDraft]:
    """Write the lines to a temporary file until the digest is known, in constant memory."""
    writer = TraceWriter()
    with TemporaryFile("w+", encoding="utf-8", newline="\n") as lines:
        for key, body in entries:
            lines.write(writer.line(key, body) + "\n")
        yield TraceDraft(writer.digest, lines)


async def save_trace(keys: PublicKeys, chain_id: int, address: str, pieces: Iterable[str], digest: str) -> None:
    """Store the pieces of `render` in parts; idempotent."""
    before = await archived_trace(keys, chain_id, address)
    if before is not None and before.digest != digest:
        await keys.put(chain_id, trace_key(address), "")
    buffer, size, parts = list[str](), 0, 0
    for piece in pieces:
        buffer.append(piece)
        size += len(piece)
        if size >= _PART_CHARS:
            await keys.put(chain_id, f"{trace_key(address)}:{parts:05}", "".join(buffer))
            buffer, size, parts = [], 0, parts + 1
    if buffer:
        await keys.put(chain_id, f"{trace_key(address)}:{parts:05}", "".join(buffer))
        parts += 1
    await keys.put(chain_id, trace_key(address), plain_json({"digest": digest, "parts": parts}))


async def archived_trace(keys: PublicKeys, chain_id: int, address: str) -> Archived | None:
    text = await keys.get(chain_id, trace_key(address))
    return read_stored(Archived, text) if text else None


async def stream_trace(keys: PublicKeys, chain_id: int, address: str) -> AsyncIterator[str]:
    archived = await archived_trace(keys, chain_id, address)
    for part in range(archived.parts if archived else 0):
        yield await keys.get(chain_id, f"{trace_key(address)}:{part:05}") or ""


async def trace_keccak(keys: PublicKeys, chain_id: int, address: str) -> str:
    from Crypto.Hash import keccak  # noqa: PLC0415 - slow to load, and only used here

    hashed = keccak.new(digest_bits=256)
    async for part in stream_trace(keys, chain_id, address):
        hashed.update(part.encode())
    return f"0x{hashed.hexdigest()}"


async def keep_result(keys: PublicKeys, chain_id: int, address: str) -> None:
    if (archived := await archived_trace(keys, chain_id, address)) is not None:
        await keys.copy_keys(chain_id, f"challenges:{address}:", add=kept_key(archived.digest, ""))


async def bring_back(keys: PublicKeys, chain_id: int, address: str, digest: str) -> None:
    prefix = kept_key(digest, "")  # the status of the evaluation is not part of a result
    await keys.copy_keys(chain_id, prefix, cut=len(prefix), but=kept_key(digest, status_key(address)))
