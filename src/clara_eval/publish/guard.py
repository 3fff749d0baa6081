"""The last looks before a signature: is this what was decided, and is it something we sign at all?

`check_call` decodes the calldata again and holds it against the challenge and the winners. `SigningPolicy` is the
wallet's own rule: three functions, no value, known challenges, one chain, fees capped each and by day. Both refuse
with CannotPublish.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from clara_eval.challenge.model import Address, Challenge
from clara_eval.errors import BadInput, CannotPublish, Unscorable
from clara_eval.publish.calldata import ADVANCE_TO_SCORING, FINALIZE, POST_SCORES, read_calldata
from clara_eval.publish.transaction import Unsigned
from clara_eval.winners import Winners, prizes

GWEI = 10**9
MAX_FEE_PER_GAS = 50 * GWEI
"""A post of 25 winners then costs at most about 0.15 ETH; Base's usual fee is a thousandth of this."""
MAX_GAS = 8_000_000
MAX_WEI_PER_DAY = 5 * 10**17
"""Half an ETH of gas: hundreds of posts at Base's usual fees, and an end to any loop."""
_DAY_SECONDS = 24 * 3600


def check_call(challenge: Challenge, winners: Winners, trace_digest: str, data: bytes) -> None:
    """Refuse calldata that is not exactly these winners with this digest, or winners the contract would not take."""
    if not _says(data, winners, trace_digest):
        raise CannotPublish("The calldata does not say what was decided.", remedy="Nothing was sent; report this.")
    entries = winners.entries
    if len(challenge.submissions) < challenge.winner_count:
        raise Unscorable(
            f"{len(challenge.submissions)} submitters for {challenge.winner_count} winners: no scores can be posted.",
            remedy="After scoringDeadline anybody may call expire().",
        )
    if len(entries) != challenge.winner_count:
        raise CannotPublish(f"{len(entries)} winners, but the challenge pays exactly {challenge.winner_count}.")
    agents = {submission.submitter: submission.agent_id for submission in challenge.submissions}
    for winner in entries:
        if agents.get(winner.account) != winner.agent_id:
            raise CannotPublish(f"The winner {winner.account} did not submit as agent {winner.agent_id}.")
    if len({winner.account for winner in entries}) != len(entries):
        raise CannotPublish("A winner is named twice.")
    if [winner.prize_amount for winner in entries] != prizes(challenge.prize_pool, challenge.payout_bps):
        raise CannotPublish("The prizes are not the contract's shares of the prize pool.")
    if any(above.score < below.score for above, below in itertools.pairwise(entries)):
        raise CannotPublish("The winners are not in order of their scores.")


def _says(data: bytes, winners: Winners, trace_digest: str) -> bool:
    try:
        read = read_calldata(data)
    except BadInput:
        return False
    return read.winners == winners and read.trace_digest == trace_digest.lower()


@dataclass(slots=True)
class SigningPolicy:
    """What the key may sign. Everything else is refused, whoever asks."""

    chain_id: int
    max_fee_per_gas: int = MAX_FEE_PER_GAS
    max_gas: int = MAX_GAS
    challenges: set[Address] = field(default_factory=set)
    max_wei_per_day: int = MAX_WEI_PER_DAY
    now: Callable[[], float] = time.time
    _signed: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Nonce -> when it was signed last, and what it may cost at most; of several attempts only one is ever paid."""

    def permit(self, challenges: Iterable[Address]) -> None:
        """Add challenges that the factory knows, or that a person named."""
        self.challenges.update(challenges)

    def check(self, tx: Unsigned) -> None:
        problem = self._problem(tx)
        if problem:
            raise CannotPublish(f"The wallet does not sign this: {problem}.")

    def note(self, tx: Unsigned) -> None:
        """Count what was signed towards the day's cap."""
        before = self._signed.get(tx.nonce, (0.0, 0))[1]
        self._signed[tx.nonce] = (self.now(), max(before, tx.gas * tx.max_fee_per_gas))

    def _wei_today(self, *, without: int) -> int:
        since = self.now() - _DAY_SECONDS
        self._signed = {nonce: row for nonce, row in self._signed.items() if row[0] > since}
        return sum(wei for nonce, (_, wei) in self._signed.items() if nonce != without)

    def _problem(self, tx: Unsigned) -> str | None:
        if tx.chain_id != self.chain_id:
            return f"it is for chain {tx.chain_id}, not {self.chain_id}"
        if tx.value != 0:
            return f"it moves {tx.value} wei"
        if tx.to not in self.challenges:
            return f"{tx.to} is not a known challenge"
        is_bare = tx.data in {ADVANCE_TO_SCORING, FINALIZE}
        if not is_bare and tx.data[:4] != POST_SCORES:
            return f"0x{tx.data[:4].hex()} is not postScores, advanceToScoring or finalize"
        if max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) > self.max_fee_per_gas:
            return f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {self.max_fee_per_gas}"
        if tx.gas > self.max_gas:
            return f"its gas limit {tx.gas} is above {self.max_gas}"
        today = self._wei_today(without=tx.nonce) + tx.gas * tx.max_fee_per_gas
        return (
            f"gas for {today} wei in a day is above the cap of {self.max_wei_per_day}"
            if today > self.max_wei_per_day
            else None
        )
