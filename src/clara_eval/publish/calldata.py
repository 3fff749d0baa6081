"""Winners as calldata and back: the contract's own encoding, then our mark and the digest of the trace.

Comes in: winners and a trace digest. Goes out: `postScores` calldata followed by the four bytes `CLR1` and the 32 bytes
of the digest. Solidity's decoder ignores what follows its arguments, so the trace is committed in the transaction
itself, and anybody can read it back. Reading accepts any sender's bytes: without our mark there is no digest.
"""

from __future__ import annotations

from dataclasses import dataclass

from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from clara_eval.challenge.model import Address
from clara_eval.errors import BadInput
from clara_eval.hashing import keccak_hex
from clara_eval.winners import Winner, Winners

MARK = b"CLR1"

_WINNERS = ["(address,uint256,uint256,uint256)[]"]


def _selector(signature: str) -> bytes:
    return bytes.fromhex(keccak_hex(signature.encode())[2:10])


POST_SCORES = _selector("postScores((address,uint256,uint256,uint256)[])")
ADVANCE_TO_SCORING = _selector("advanceToScoring()")
FINALIZE = _selector("finalize()")


@dataclass(frozen=True, slots=True)
class PostedScores:
    """What a `postScores` transaction says; `trace_digest` is None when nobody committed to a trace."""

    winners: Winners
    trace_digest: str | None


def post_scores(winners: Winners) -> bytes:
    """The contract's call alone, as it stands in the trace: the digest over the trace cannot be inside it."""
    rows = [(w.account, w.agent_id, w.score, w.prize_amount) for w in winners.entries]
    encoded: bytes = encode(_WINNERS, [rows])
    return POST_SCORES + encoded


def post_scores_calldata(winners: Winners, trace_digest: str) -> bytes:
    """The exact bytes to send."""
    digest = _digest(trace_digest)
    return post_scores(winners) + MARK + digest


def read_calldata(data: bytes) -> PostedScores:
    """What those bytes post, or BadInput when they are no `postScores` call."""
    if data[:4] != POST_SCORES:
        raise BadInput(f"The calldata starts with 0x{data[:4].hex()}, which is not postScores.", value=data[:4].hex())
    try:
        (entries,) = decode(_WINNERS, data[4:])
    except (DecodingError, OverflowError) as bad:
        raise BadInput("The calldata is no list of winners.", value=data[:100].hex()) from bad
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
