"""Choose the winners with their prizes, and encode them as `postScores` calldata.

Output: `winner_count` winners whose prizes sum to the pool; calldata ends in `CLR1` and the digest of the trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clara_eval.chain.contracts.abi import VERSIONS, Function, Undecodable, contract_version
from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address
from clara_eval.core.codec import DECIMAL
from clara_eval.core.errors import BadInput, CannotPublish, Unscorable
from clara_eval.core.submission import Placed

MIN_SUBMISSIONS = 2
"""Of the contract: with fewer, `advanceToScoring` cancels."""


@dataclass(frozen=True, slots=True)
class WinnerPrize:
    account: Address
    agent_id: int = field(metadata=DECIMAL)
    score: int
    prize_amount: int = field(metadata=DECIMAL)


@dataclass(frozen=True, slots=True)
class Winners:
    entries: tuple[WinnerPrize, ...]


def prizes(prize_pool: int, payout_bps: Sequence[int]) -> list[int]:
    """Return each place's share, rounded down; the last place takes what is left."""
    shares = [prize_pool * bps // 10_000 for bps in payout_bps]
    return [*shares[:-1], prize_pool - sum(shares[:-1])]


def check_scorable(challenge: Challenge) -> None:
    if challenge.submission_count < MIN_SUBMISSIONS:
        raise Unscorable(
            f"{challenge.submission_count} submitters: below {MIN_SUBMISSIONS} the contract cancels the challenge.",
            remedy="Anybody may call advanceToScoring(), which refunds the poster.",
        )
    if challenge.submission_count < challenge.winner_count:
        raise Unscorable(
            f"{challenge.submission_count} submitters for {challenge.winner_count} winners: "
            "the contract accepts exactly winnerCount winners, so no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire(); every submitter then claims an equal share.",
        )


def choose_winners(challenge: Challenge, placed: Sequence[Placed]) -> Winners:
    """Return the top `winner_count` with the prizes that the contract will check."""
    best = placed[: challenge.winner_count]
    if len(best) < challenge.winner_count:
        raise Unscorable(f"{len(best)} placed accounts for {challenge.winner_count} winners.")
    if len({place.account for place in best}) != len(best):
        raise CannotPublish("An account stands on two paid places.")
    agents = {s.submitter: s.agent_id for s in challenge.submissions}
    strangers = [place.account for place in best if place.account not in agents]
    if strangers:
        raise CannotPublish(f"{strangers[0]} is placed but did not submit.")
    amounts = prizes(challenge.prize_pool, challenge.payout_bps)
    pairs = zip(best, amounts, strict=True)
    return Winners(tuple(WinnerPrize(one.account, agents[one.account], one.score, prize) for one, prize in pairs))


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
    if not re.fullmatch("(0x)?[0-9a-fA-F]{64}", trace_digest):
        raise BadInput(f"The trace digest {trace_digest[:80]!r} is not 0x and 64 hex digits.", value=trace_digest)
    return post_scores(winners, version) + MARK + bytes.fromhex(trace_digest.removeprefix("0x"))


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


def committed_digest(calldata: bytes) -> str | None:
    """The digest of the trace that posted scores commit to; None if they commit to none."""
    try:
        return read_calldata(calldata).trace_digest
    except BadInput:
        return None


def winner_of(fields: Mapping[str, Any]) -> WinnerPrize:
    return WinnerPrize(Address(fields["account"].lower()), fields["agentId"], fields["score"], fields["prizeAmount"])
