"""Find a trace: in a file, at IPFS (CID recomputed), in the store, or at a service."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from clara_eval.app import open_caller, trace_fetch
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import (
    BadInput,
    BadSubmission,
    BadTrace,
    NotFound,
    Temporary,
)
from clara_eval.evaluation.trace.document import read_entries
from clara_eval.evaluation.trace.trace_file import TraceFile
from clara_eval.store.open import existing_store
from clara_eval.store.trace_archive import stream_trace


async def find_trace(source: str, settings: Settings) -> TraceFile:
    """Open the trace that `source` names: a path, `ipfs://CID`, or a challenge's address."""
    if source.lower().startswith("ipfs:"):
        return await _from_ipfs(source, settings)
    lines = _in_file(Path(source))
    if lines is None and source.lower().startswith("0x"):
        return await _of_challenge(to_address(source), settings)
    if lines is None:
        raise NotFound(
            f"There is no file {source!r}.", remedy="Give a trace file, ipfs://CID, or a challenge's address."
        )
    return lines


def _in_file(path: Path) -> TraceFile | None:
    try:
        return TraceFile.at(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror or bad}.", remedy="Name a trace file.") from None


async def _from_ipfs(uri: str, settings: Settings) -> TraceFile:
    try:
        fetched = await trace_fetch(settings).fetch(uri)
    except BadSubmission as bad:
        raise NotFound(
            f"The trace at {uri[:120]!a} cannot be read: {bad.message}", remedy="Check the CID and CLARA_IPFS_GATEWAY."
        ) from None
    if not fetched.immutable:
        raise Temporary(
            f"The CID of {uri[:120]!a} was not recomputed: the gateway gives no blocks.",
            remedy="Name another gateway in CLARA_IPFS_GATEWAY.",
        )
    found = await TraceFile.of(_whole(fetched.content))
    if found is None:
        raise NotFound(f"The trace at {uri[:120]!a} is empty.", remedy="Check the CID.")
    return found


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _of_challenge(address: Address, settings: Settings) -> TraceFile:
    if (lines := await _stored(address, settings)) is not None:
        return lines
    if settings.api_url is None:
        raise NotFound(
            f"No trace of {address} is in this store.",
            remedy="Give a trace file or ipfs://CID, or set CLARA_API_URL to the service that evaluated it.",
        )
    async with open_caller(settings) as caller:
        found = await caller.records.trace_file(address)
    if found is None:
        raise NotFound(
            f"No trace of {address} is in this store, nor at {settings.api_url}.",
            remedy="Traces are public after the post; give a trace file or ipfs://CID.",
        )
    return found


async def _stored(address: Address, settings: Settings) -> TraceFile | None:
    async with existing_store(settings.database_url) as store:
        return await TraceFile.of(stream_trace(store, settings.network.chain_id, address)) if store else None


async def find_committed(address: Address, settings: Settings, digest: str, uris: Sequence[str] = ()) -> TraceFile:
    """Find the trace with the digest that the chain commits to; `uris` are further places to ask."""
    told: list[str] = []
    for name, place in _places(address, settings, uris):
        try:
            lines = await place()
        except NotFound as bad:
            told.append(f"{name}: {bad.message}")
            continue
        except Temporary as bad:
            told.append(f"{name} could not be asked: {bad.message}")
            continue
        found, problem = _digest(lines)
        if found == digest:
            return lines
        lines.close()
        told.append(f"{name}: {problem}" if problem else f"{name} has another trace, {found}.")
    raise NotFound(
        f"The chain commits to the trace {digest} of {address}, and nobody here has it. " + " ".join(told),
        remedy="Give the trace file or ipfs://CID, or set CLARA_API_URL to the service that evaluated it.",
    )


def _digest(lines: TraceFile) -> tuple[str | None, str]:
    """Compute the digest of a trace's lines, or say what is wrong with them."""
    try:
        last = deque(read_entries(lines), maxlen=1)
    except BadTrace as bad:
        return None, bad.message
    return (last[0].hash, "") if last else (None, "It has no entries.")


Place = tuple[str, Callable[[], Awaitable[TraceFile]]]


def _places(address: Address, settings: Settings, uris: Sequence[str]) -> Iterator[Place]:
    async def from_store() -> TraceFile:
        if (lines := await _stored(address, settings)) is not None:
            return lines
        raise NotFound("It has no trace of this challenge.")

    async def from_service() -> TraceFile:
        async with open_caller(settings) as caller:
            if (lines := await caller.records.trace_file(address)) is not None:
                return lines
        raise NotFound("It shows no trace of this challenge.")

    async def from_scores() -> TraceFile:
        async with open_caller(settings) as caller:
            scores = await caller.records.scores(address)
        if scores is None or scores.traceCid is None:
            raise NotFound("The scores name no CID.")
        return await _from_ipfs(f"ipfs://{scores.traceCid}", settings)

    yield "The store here", from_store
    if settings.api_url is not None:
        yield f"The service at {settings.api_url}", from_service
    yield "IPFS, by the scores,", from_scores
    for uri in dict.fromkeys(uri for uri in uris if uri.lower().startswith("ipfs://")):
        yield f"IPFS at {uri[:80]!a}", partial(_from_ipfs, uri, settings)
    for path in sorted(settings.trace_dir.glob(f"*{address}*.json")) if settings.trace_dir.is_dir() else ():
        yield f"The file {path}", partial(_lines_in, path)


async def _lines_in(path: Path) -> TraceFile:
    try:
        return TraceFile.at(path)
    except OSError as bad:
        raise NotFound(f"It cannot be read: {bad.strerror or bad}.") from None
