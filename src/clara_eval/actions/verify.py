"""Find and verify a trace: recompute all but the models' answers, and compare it with the chain."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from clara_eval.app import open_caller, open_chain, open_machine
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, Posted, committed_digest
from clara_eval.challenges.replay import Checked, JudgeEvidence, check_trace
from clara_eval.challenges.stored_results import MAX_TRACE_BYTES, ApiRecords
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.settings import Settings, network_of_chain
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, BadSubmission, BadTrace, NotFound, Temporary
from clara_eval.evaluation.folder import CheckedFolder, check_folder
from clara_eval.evaluation.trace import TraceFile, read_entries
from clara_eval.store.open import existing_store
from clara_eval.store.trace_archive import stream_trace
from clara_eval.submissions.fetch import FetchLimits, UriFetch, Web

__all__ = ["Checked", "CheckedFolder", "JudgeEvidence"]
TraceSource = tuple[str, Callable[[], Awaitable[TraceFile | None]]]  # a name, and a function that opens its trace


async def find_trace(source: str, settings: Settings) -> TraceFile:
    """Open the trace that `source` names: a path, `ipfs://CID`, or a challenge's address."""
    path = Path(source)
    if source.lower().startswith("ipfs:"):
        return await _fetch_from_ipfs(source, settings)
    try:
        return TraceFile.at(path)
    except (FileNotFoundError, NotADirectoryError):
        if not source.lower().startswith("0x"):
            remedy = "Give a trace file, ipfs://CID, or a challenge's address."
            raise NotFound(f"There is no file {source!r}.", remedy=remedy) from None
    except OSError as bad:
        raise BadInput(f"{path} cannot be read: {bad.strerror or bad}.", remedy="Name a trace file.") from None
    address = to_address(source)
    for _, open_trace in _recorded_sources(address, settings):
        if (found := await open_trace()) is not None:
            return found
    nor = f", nor at {settings.api_url}" if settings.api_url else ""
    raise NotFound(
        f"No trace of {address} is in this store{nor}.",
        remedy="Give a trace file or ipfs://CID, or set CLARA_API_URL to the service that evaluated it; traces "
        "are public after the post.",
    )


async def _fetch_from_ipfs(uri: str, settings: Settings) -> TraceFile:
    limits = FetchLimits(max_bytes=MAX_TRACE_BYTES, total_seconds=300.0)  # a trace may be larger than a submission
    try:
        fetched = await UriFetch(settings.ipfs_gateway, Web(limits)).fetch(uri)
    except BadSubmission as bad:
        raise NotFound(
            f"The trace at {uri[:120]!a} cannot be read: {bad.message}", remedy="Check the CID and CLARA_IPFS_GATEWAY."
        ) from None
    if not fetched.immutable:
        raise Temporary(
            f"The CID of {uri[:120]!a} was not recomputed: the gateway gives no blocks.",
            remedy="Name another gateway in CLARA_IPFS_GATEWAY.",
        )

    async def whole() -> AsyncIterator[bytes]:
        yield fetched.content

    found = await TraceFile.of(whole())
    if found is None:
        raise NotFound(f"The trace at {uri[:120]!a} is empty.", remedy="Check the CID.")
    return found


def _recorded_sources(address: Address, settings: Settings) -> Iterator[TraceSource]:
    """Yield the local store, and the service if one is set."""

    async def stored() -> TraceFile | None:
        async with existing_store(settings.database_url) as store:
            return await TraceFile.of(stream_trace(store, settings.network.chain_id, address)) if store else None

    yield "The store here", stored
    if settings.api_url is not None:
        service = ApiRecords(settings.api_url, settings.network.chain_id)
        yield f"The service at {settings.api_url}", partial(service.trace_file, address)


def _all_sources(address: Address, settings: Settings, uris: Sequence[str]) -> Iterator[TraceSource]:
    async def by_scores() -> TraceFile:
        async with open_caller(settings) as caller:
            scores = await caller.records.scores(address)
        if scores is None or scores.traceCid is None:
            raise NotFound("The scores name no CID.")
        return await _fetch_from_ipfs(f"ipfs://{scores.traceCid}", settings)

    yield from _recorded_sources(address, settings)
    yield "IPFS by the scores", by_scores
    for uri in dict.fromkeys(uri for uri in uris if uri.lower().startswith("ipfs://")):
        yield f"IPFS at {uri[:80]!a}", partial(_fetch_from_ipfs, uri, settings)
    for path in sorted(settings.trace_dir.glob(f"*{address}*.json")):
        yield f"The file {path}", partial(find_trace, str(path), settings)


async def find_committed(address: Address, settings: Settings, digest: str, uris: Sequence[str] = ()) -> TraceFile:
    """Find the trace with the digest that the chain commits to; `uris` are further sources."""
    problems: list[str] = []
    for name, open_trace in _all_sources(address, settings, uris):
        lines = None
        try:
            lines = await open_trace()
            last = deque(read_entries(lines), maxlen=1) if lines else None
        except Temporary as bad:
            problems.append(f"{name} could not be asked: {bad.message}")
        except (NotFound, BadInput, BadTrace) as bad:
            problems.append(f"{name}: {bad.message}")
        else:
            if lines and last and last[0].hash == digest:
                return lines
            lack = f"{name}: It has no {'entries' if lines else 'trace of this challenge'}."
            problems.append(f"{name} has another trace, {last[0].hash}." if last else lack)
        if lines:
            lines.close()
    raise NotFound(
        f"The chain commits to the trace {digest} of {address}, and no source here has it. " + " ".join(problems),
        remedy="Give the trace file or ipfs://CID, or set CLARA_API_URL to the service that evaluated it.",
    )


async def verify_any(source: str, settings: Settings, *, rpc: str | None = None) -> Checked | CheckedFolder:
    """Replay the trace of a challenge, or of a folder, which is on no chain."""
    if rpc is not None and _is_address(source):
        found = await _find_posted_trace(to_address(source), settings, rpc)
    else:
        found = await find_trace(source, settings)
    with found as lines, closing(open_machine(settings)) as machine:
        header = next((entry.body for entry in read_entries(lines)), None)
        if isinstance(header, dict) and "folder" in header:
            if rpc is not None:
                raise BadTrace("No chain knows this folder.", entry="header", remedy="Check without --rpc.")
            return await check_folder(lines, machine)
        if rpc is None:
            return await check_trace(lines, machine=machine)
        chain_id = header.get("chainId") if isinstance(header, dict) else None
        async with open_chain_of(chain_id, settings, rpc) as chain:
            return await check_trace(lines, chain, machine)


def _is_address(source: str) -> bool:
    return source.lower().startswith("0x") and not Path(source).exists()


def open_chain_of(chain_id: object, settings: Settings, rpc: str) -> AbstractAsyncContextManager[EthereumChain]:
    network = network_of_chain(chain_id)
    if network is None:
        raise BadTrace(f"The trace is of chain {str(chain_id)[:40]}, which is not a known network.", entry="header")
    first_block = settings.from_block if network.chain_id == settings.network.chain_id else None
    return open_chain(network, rpc, first_block=first_block)


async def _find_posted_trace(address: Address, settings: Settings, rpc: str) -> TraceFile:
    async with open_chain(settings.network, rpc, first_block=settings.first_block) as chain:
        challenge = await look_at_challenge(chain, address)
        posted = await chain.results.posted_by(challenge)
        if posted is None:
            raise BadTrace(f"No scores of {address} are posted.", entry="calldata", remedy="Verify it after the post.")
        digest = committed_digest(posted.calldata)
        if digest is None:
            raise BadTrace(
                f"The transaction {posted.tx_hash}, posted by the {posted.by}, commits to no trace.", entry="digest"
            )
        return await find_committed(address, settings, digest, await _feedback_uris(chain, challenge, posted, settings))


async def _feedback_uris(chain: EthereumChain, challenge: Challenge, posted: Posted, settings: Settings) -> list[str]:
    """Return the trace URIs that the evaluator's feedback on the winners names."""
    known = settings.reputation_registry or settings.network.reputation_registry
    if known is None:
        return []
    endpoint = f"eip155:{challenge.chain_id}:{challenge.address}"
    uris: list[str] = []
    try:
        for winner in await chain.results.winners_on_chain(challenge.address, challenge.winner_count):
            given = await chain.agents.feedback_since(
                to_address(known), winner.agent_id, posted.sender, challenge.score_posted_at
            )
            uris += [one.uri for one in given if one.endpoint == endpoint]
    except NotFound:
        return uris  # the chain has no such registry; the URIs are only hints
    return uris


def verified_document(checked: Checked | CheckedFolder) -> dict[str, object]:
    """Return what was recomputed and compared, and what that does not prove."""
    venue: dict[str, object]
    if isinstance(checked, CheckedFolder):
        venue = {"folder": checked.venue.given.name, "winners": list(checked.winners)}
    else:
        posted = checked.posted
        venue = {
            "challenge": checked.challenge.address,
            "chainId": checked.challenge.chain_id,
            "comparedWithChain": list(checked.compared),
            "winners": [
                {"account": w.account, "score": w.score, "prizeAmount": str(w.prize_amount)}
                for w in checked.winners.entries
            ],
            "onChain": posted and {"txHash": posted.tx_hash, "postedBy": str(posted.by), "block": posted.block_number},
        }
    return {
        "ok": True,
        "executionChecked": checked.is_execution_checked,
        "digest": checked.digest,
        "entries": checked.entries,
        "submissions": len(checked.result.given.submissions),
        "comparisons": len(checked.result.comparisons),
        "executed": checked.executed,
        "notChecked": list(checked.unchecked),
        "approvals": to_camel_json(checked.notes.approvals),
        "restarts": to_camel_json(checked.notes.restarts),
        "judges": [
            {
                "judge": one.judge,
                "answers": one.answers,
                "signed": one.signed,
                "keys": [
                    {"key": key.name, **asdict(key.enclave), "status": key.enclave.status or None} for key in one.keys
                ],
            }
            for one in checked.judges
        ],
        "notProven": list(checked.not_proven),
        **venue,
    }
