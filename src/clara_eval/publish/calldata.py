"""Winners as calldata and back: the contract's own encoding, then our mark and the digest of the trace.

Comes in: winners and a trace digest. Goes out: `postScores` calldata followed by the four bytes `CLR1` and the 32 bytes
of the digest. Solidity's decoder ignores what follows its arguments, so the trace is committed in the transaction
itself, and anybody can read it back. Reading accepts any sender's bytes: without our mark there is no digest.
"""

from __future__ import annotations

from dataclasses import dataclass

from clara_eval.challenge.model import Address
from clara_eval.contracts.abi import Undecodable, abi
from clara_eval.errors import BadInput
from clara_eval.winners import Winner, Winners

MARK = b"CLR1"

_POST_SCORES = abi("Challenge").function("postScores")
POST_SCORES = _POST_SCORES.selector
ADVANCE_TO_SCORING = abi("Challenge").function("advanceToScoring").call()
FINALIZE = abi("Challenge").function("finalize").call()


@dataclass(frozen=True, slots=True)
class PostedScores:
    """What a `postScores` transaction says; `trace_digest` is None when nobody committed to a trace."""

    winners: Winners
    trace_digest: str | None


def post_scores(winners: Winners) -> bytes:
    """The contract's call alone, as it stands in the trace: the digest over the trace cannot be inside it."""
    rows = [(w.account, w.agent_id, w.score, w.prize_amount) for w in winners.entries]
    return _POST_SCORES.call(rows)


def post_scores_calldata(winners: Winners, trace_digest: str) -> bytes:
    """The exact bytes to send."""
    digest = _digest(trace_digest)
    return post_scores(winners) + MARK + digest


def read_calldata(data: bytes) -> PostedScores:
    """What those bytes post, or BadInput when they are no `postScores` call."""
    if data[:4] != POST_SCORES:
        raise BadInput(f"The calldata starts with 0x{data[:4].hex()}, which is not postScores.", value=data[:4].hex())
    try:
        (entries,) = _POST_SCORES.arguments(data)
    except Undecodable as bad:
        raise BadInput("The calldata is not a list of winners.", value=data[:100].hex()) from bad
    winners = Winners(tuple(Winner(Address(account.lower()), *numbers) for account, *numbers in entries))
    # Only right after the canonical encoding is the mark ours: further in, it could be part of a number.
    call = post_scores(winners)
    tail = data[len(call) :] if data.startswith(call) else b""
    is_ours = len(tail) == 36 and tail.startswith(MARK)
    return PostedScores(winners, "0x" + tail[4:].hex() if is_ours else None)


def _digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise BadInput(f"The trace digest {text[:80]!r} is not 0x and 64 hex digits.", value=text)
    return digest
