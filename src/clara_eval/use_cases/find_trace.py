"""Where a trace is that somebody wants to check: a file, IPFS, our own store, or a running service.

In: what the caller named. Out: the trace's lines, or NotFound with every place that was looked at. What comes from IPFS
is taken only if its CID was recomputed from the content: a gateway's word is not enough.
"""

from __future__ import annotations

from pathlib import Path

from clara_eval.app import open_caller, trace_fetch
from clara_eval.challenge.model import Address, to_address
from clara_eval.errors import BadInput, BadSubmission, NotFound, Temporary
from clara_eval.settings import Settings
from clara_eval.store.open import existing_store
from clara_eval.trace.archive import stream_trace
from clara_eval.trace.document import trace_lines


async def find_trace(source: str, settings: Settings) -> list[str]:
    """The lines of the trace that `source` names: a path, `ipfs://CID`, or a challenge's address."""
    if source.lower().startswith("ipfs:"):
        return trace_lines(await _from_ipfs(source, settings))
    lines = _file_lines(Path(source))
    if lines is None and source.lower().startswith("0x"):
        return trace_lines((await _of_challenge(to_address(source), settings)).encode())
    if lines is None:
        raise NotFound(
            f"There is no file {source!r}.", remedy="Give a trace file, ipfs://CID, or a challenge's address."
        )
    return lines


def _file_lines(path: Path) -> list[str] | None:
    """The lines of the file, or None where there is no such file."""
    try:
        return trace_lines(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror or bad}.", remedy="Name a trace file.") from None


async def _from_ipfs(uri: str, settings: Settings) -> bytes:
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
    return fetched.content


async def _of_challenge(address: Address, settings: Settings) -> str:
    """From the store here; else from the service of CLARA_API_URL."""
    async with existing_store(settings.database_url) as store:
        text = "".join(
            [part async for part in stream_trace(store, settings.network.chain_id, address)] if store else []
        )
    if text:
        return text
    if settings.api_url is None:
        raise NotFound(
            f"No trace of {address} is in this store.",
            remedy="Give a trace file or ipfs://CID, or set CLARA_API_URL to the service that evaluated it.",
        )
    async with open_caller(settings) as caller:
        found = await caller.records.trace(address)
    if not found:
        raise NotFound(
            f"No trace of {address} is in this store, nor at {settings.api_url}.",
            remedy="Traces are public after the post; give a trace file or ipfs://CID.",
        )
    return found
