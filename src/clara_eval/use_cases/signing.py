"""What a local wallet key may sign for a poster or an agent: the calls that plans are made of, and nothing else.

The wallet's own last look, whoever asks: one chain, no ether, an allowance only for the factory, a token transfer only
to the evaluator, capped fees. How much may leave in total is decided before, in `carry_out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from clara_eval.challenge.model import ZERO_ADDRESS, Address
from clara_eval.publish.guard import SigningPolicy
from clara_eval.publish.transaction import Unsigned
from clara_eval.use_cases.contract_calls import calldata

MAX_AGENT_GAS = 30_000_000


@cache
def _selectors() -> Mapping[bytes, str]:
    nobody = ZERO_ADDRESS
    create: tuple[Any, ...] = (nobody, nobody, 0, 0, 0, "", bytes(32), bytes(32), 0, [], 0, [])
    calls = {
        "approve": calldata("TestUSDC", "approve", nobody, 0),
        "transfer": calldata("TestUSDC", "transfer", nobody, 0),
        "createChallenge": calldata("ChallengeFactory", "createChallenge", create),
        "submit": calldata("Challenge", "submit", 0, "", bytes(32)),
        "register": calldata("IdentityRegistry", "register", ""),
    }
    bare = ("claimPrize", "claimExpiredRefund", "finalize", "expire")
    calls |= {name: calldata("Challenge", name) for name in bare}
    return {bytes.fromhex(data[2:10]): name for name, data in calls.items()}


@dataclass(slots=True)
class AgentPolicy(SigningPolicy):
    """The rule of a poster's or agent's key."""

    max_gas: int = MAX_AGENT_GAS
    factory: Address | None = None
    evaluator: Address | None = None

    def _problem(self, tx: Unsigned) -> str | None:
        if tx.chain_id != self.chain_id:
            return f"it is for chain {tx.chain_id}, not {self.chain_id}"
        if tx.value != 0:
            return f"it moves {tx.value} wei"
        name = _selectors().get(tx.data[:4])
        if name is None:
            return f"0x{tx.data[:4].hex()} is not a call that posting, submitting or claiming needs"
        if max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) > self.max_fee_per_gas:
            return f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {self.max_fee_per_gas}"
        if tx.gas > self.max_gas:
            return f"its gas limit {tx.gas} is above {self.max_gas}"
        return self._wrong_target(name, tx)

    def _wrong_target(self, name: str, tx: Unsigned) -> str | None:
        first_argument = "0x" + tx.data[16:36].hex()
        if name == "createChallenge" and tx.to != self.factory:
            return f"{tx.to} is not the challenge factory"
        if name == "approve" and first_argument != self.factory:
            return f"it would let {first_argument} take tokens, which is not the challenge factory"
        if name == "transfer" and (self.evaluator is None or first_argument != self.evaluator):
            return f"it would pay {first_argument}, which is not the evaluator"
        return None
