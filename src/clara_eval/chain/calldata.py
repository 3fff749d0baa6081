"""Encode winners as `postScores` calldata with the trace digest behind it, and read it back.

Output: the contract's own encoding, then the four bytes `CLR1` and the 32 bytes of the digest, which Solidity ignores.
Reading accepts any sender's bytes: without our mark there is no digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clara_eval.chain.contracts.abi import Function, Undecodable
from clara_eval.chain.contracts.versions import VERSIONS, contract_version
from clara_eval.chain.winners import WinnerPrize, Winners
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput

MARK = b"CLR1"


@dataclass(frozen=True, slots=True)
class PostedScores:
    """What a `postScores` transaction says; `trace_digest` is None without our mark."""

    winners: Winners
    trace_digest: str | None


def scoring_function(name: str, version: str = "1") -> Function:
    return contract_version(version).challenge.function(name)


def post_scores(winners: Winners, version: str = "1") -> bytes:
    """Encode the call alone, as it is in the trace: the digest of the trace cannot be inside it."""
    rows = [
        {"account": w.account, "agentId": w.agent_id, "score": w.score, "prizeAmount": w.prize_amount}
        for w in winners.entries
    ]
    return scoring_function("postScores", version).call(rows)


def post_scores_calldata(winners: Winners, trace_digest: str, version: str = "1") -> bytes:
    """Return the exact bytes to send."""
    return post_scores(winners, version) + MARK + _digest(trace_digest)


def read_calldata(data: bytes) -> PostedScores:
    """Decode posted scores; BadInput if the bytes are no `postScores` call of any version."""
    version = next((name for name in VERSIONS if data[:4] == scoring_function("postScores", name).selector), None)
    if version is None:
        raise BadInput(f"The calldata starts with 0x{data[:4].hex()}, which is not postScores.", value=data[:4].hex())
    try:
        (entries,) = scoring_function("postScores", version).arguments(data)
    except Undecodable as bad:
        raise BadInput("The calldata is not a list of winners.", value=data[:100].hex()) from bad
    winners = Winners(tuple(winner_of(entry) for entry in entries))
    # Only right after the canonical encoding is the mark ours: further in, it could be part of a number.
    call = post_scores(winners, version)
    tail = data[len(call) :] if data.startswith(call) else b""
    is_ours = len(tail) == 36 and tail.startswith(MARK)
    return PostedScores(winners, "0x" + tail[4:].hex() if is_ours else None)


def winner_of(fields: Mapping[str, Any]) -> WinnerPrize:
    return WinnerPrize(Address(fields["account"].lower()), fields["agentId"], fields["score"], fields["prizeAmount"])


def _digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise BadInput(f"The trace digest {text[:80]!r} is not 0x and 64 hex digits.", value=text)
    return digest
