"""Verify a trace: recompute everything but the models' answers, and compare it with the chain."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from clara_eval.actions.find_trace import find_committed, find_trace
from clara_eval.app import open_chain, open_machine
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, Posted
from clara_eval.chain.winners import read_calldata
from clara_eval.challenges.read import look_at_challenge
from clara_eval.challenges.replay import Checked, JudgeEvidence, check_trace
from clara_eval.config.networks import Network, network_of_chain
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, BadTrace, NotFound
from clara_eval.evaluation.trace.document import read_entries
from clara_eval.evaluation.trace.trace_file import TraceFile

__all__ = ["Checked", "JudgeEvidence", "first_block_of", "verified_document", "verify_trace"]


async def verify_trace(source: str, settings: Settings, *, rpc: str | None = None) -> Checked:
    """Replay a trace; an address with a node means the trace that its post commits to."""
    if rpc is not None and _is_address(source):
        found = await _committed_trace(to_address(source), settings, rpc)
    else:
        found = await find_trace(source, settings)
    with found as lines, closing(open_machine(settings)) as machine:
        if rpc is None:
            return await check_trace(lines, machine=machine)
        network = _network_of(lines)
        async with open_chain(network, rpc, first_block=first_block_of(network, settings)) as chain:
            return await check_trace(lines, chain, machine)


def _is_address(source: str) -> bool:
    return source.lower().startswith("0x") and not Path(source).exists()


def first_block_of(network: Network, settings: Settings) -> int | None:
    return settings.from_block if network.chain_id == settings.network.chain_id else None


async def _committed_trace(address: Address, settings: Settings, rpc: str) -> TraceFile:
    async with open_chain(settings.network, rpc, first_block=settings.first_block) as chain:
        challenge = await look_at_challenge(chain, address)
        posted = await chain.results.posted_by(challenge)
        if posted is None:
            raise BadTrace(f"No scores of {address} are posted.", entry="calldata", remedy="Verify it after the post.")
        try:
            digest = read_calldata(posted.calldata).trace_digest
        except BadInput:
            digest = None
        if digest is None:
            raise BadTrace(
                f"The transaction {posted.tx_hash}, posted by the {posted.by}, commits to no trace.", entry="digest"
            )
        return await find_committed(address, settings, digest, await _feedback_uris(chain, challenge, posted, settings))


async def _feedback_uris(chain: EthereumChain, challenge: Challenge, posted: Posted, settings: Settings) -> list[str]:
    """Read where the evaluator's feedback on the winners says that the trace is."""
    known = settings.reputation_registry or settings.network.reputation_registry
    if known is None:
        return []
    where = f"eip155:{challenge.chain_id}:{challenge.address}"
    uris: list[str] = []
    try:
        for winner in await chain.results.winners_on_chain(challenge.address, challenge.winner_count):
            given = await chain.agents.feedback_since(
                to_address(known), winner.agent_id, posted.sender, challenge.score_posted_at
            )
            uris += [one.uri for one in given if one.endpoint == where]
    except NotFound:
        return uris  # no such registry on this chain: only a hint is missing
    return uris


def _network_of(lines: TraceFile) -> Network:
    header = next((entry.body for entry in read_entries(lines)), None)
    chain_id = header.get("chainId") if isinstance(header, dict) else None
    network = network_of_chain(chain_id)
    if network is None:
        raise BadTrace(f"The trace is of chain {str(chain_id)[:40]}, which is not a known network.", entry="header")
    return network


def verified_document(checked: Checked) -> dict[str, object]:
    """What was recomputed and compared, and what that does not prove."""
    posted = checked.posted
    return {
        "ok": True,
        "executionChecked": checked.is_execution_checked,
        "challenge": checked.challenge.address,
        "chainId": checked.challenge.chain_id,
        "digest": checked.digest,
        "entries": checked.entries,
        "submissions": len(checked.challenge.submissions),
        "comparisons": len(checked.result.comparisons),
        "executed": checked.executed,
        "notChecked": list(checked.unchecked),
        "notProven": list(checked.not_proven),
        "comparedWithChain": list(checked.compared),
        "approvals": to_camel_json(checked.approvals),
        "judges": [
            {
                "judge": one.judge,
                "answers": one.answers,
                "signed": one.signed,
                "keys": [
                    {
                        "key": key.name,
                        "measurements": key.enclave.measurements,
                        "status": key.enclave.status or None,
                        "advisories": list(key.enclave.advisories),
                    }
                    for key in one.keys
                ],
            }
            for one in checked.judges
        ],
        "winners": [
            {"account": w.account, "score": w.score, "prizeAmount": str(w.prize_amount)}
            for w in checked.winners.entries
        ],
        "onChain": None
        if posted is None
        else {"txHash": posted.tx_hash, "postedBy": str(posted.by), "block": posted.block_number},
    }
