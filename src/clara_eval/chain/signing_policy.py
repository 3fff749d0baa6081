"""What a key may sign: the evaluator's policy, and a poster's or agent's.

Invariant: one chain, no ether, only targets that somebody vouched for, only the calls that are needed, capped fees, and
a cap on the gas of a day that is counted from the recorded transactions, so that it survives a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from clara_eval.chain.contracts.abi import Undecodable, abi, contract_version
from clara_eval.chain.transaction import StoredTransaction, TransactionToSign, read_signed
from clara_eval.chain.winners import scoring_function
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Stalled

GWEI = 10**9
MAX_FEE_PER_GAS = 50 * GWEI
"""A post of 25 winners then costs at most about 0.15 ETH; Base's usual fee is a thousandth of this."""
MAX_GAS = 8_000_000
MAX_AGENT_GAS = 30_000_000
"""A submission may carry its whole content on chain."""
MAX_WEI_PER_DAY = 5 * 10**17
"""Half an ETH of gas: hundreds of posts at Base's usual fees, and an end to any loop."""
_DAY_SECONDS = 24 * 3600
_TOKEN_CALLS = {made.selector: made for made in map(abi("TestUSDC").function, ("approve", "transfer"))}

Check = Callable[[TransactionToSign], str | None]
"""Returns why this must not be signed, or None."""


@dataclass(slots=True)
class Vouched:
    """The contracts that a key may call, and how much of each token it may give away."""

    targets: set[Address] = field(default_factory=set)
    spending: dict[Address, int] = field(default_factory=dict)
    own: Address | None = None
    """The key's own address: an empty call of zero to it fills a missing nonce."""

    def permit(self, targets: Iterable[Address]) -> None:
        """Add contracts that the factory knows, or that a person named."""
        self.targets.update(targets)

    def permit_spending(self, token: Address, units: int) -> None:
        """Set the most of this token that one transaction may approve or transfer."""
        self.spending[token] = units


@dataclass(frozen=True, slots=True)
class SigningPolicy:
    """What the key may sign; everything else is refused."""

    chain_id: int
    check_call: Check
    vouched: Vouched
    max_gas: int
    max_fee_per_gas: int
    max_wei_per_day: int
    now: Callable[[], float]

    def check(self, tx: TransactionToSign, recorded: Sequence[StoredTransaction] = ()) -> None:
        """Refuse what breaks a rule; `recorded` is what this key has signed on this chain."""
        problem = self._problem(tx)
        if problem:
            raise CannotPublish(f"The wallet does not sign this: {problem}.")
        today = self._wei_of_day(tx, recorded)
        if today > self.max_wei_per_day:
            over = f"gas for {today} wei in a day is above the cap of {self.max_wei_per_day}"
            raise Stalled(
                f"The wallet does not sign this now: {over}.",
                cause="gas_cap",
                remedy="It goes on when a day has passed since the oldest of them.",
            )

    def _problem(self, tx: TransactionToSign) -> str | None:
        if tx.chain_id != self.chain_id:
            return f"it is for chain {tx.chain_id}, not {self.chain_id}"
        if tx.value:
            return f"it moves {tx.value} wei"
        if max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) > self.max_fee_per_gas:
            return f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {self.max_fee_per_gas}"
        if tx.gas > self.max_gas:
            return f"its gas limit {tx.gas} is above {self.max_gas}"
        fills_nonce = tx.to == self.vouched.own and not tx.data
        return None if fills_nonce else self.check_call(tx)

    def _wei_of_day(self, tx: TransactionToSign, recorded: Sequence[StoredTransaction]) -> int:
        """Add up a day's gas; of several attempts with one nonce only one is ever paid, so the dearest counts."""
        since, costs = self.now() - _DAY_SECONDS, {tx.nonce: tx.gas * tx.max_fee_per_gas}
        for row in recorded:
            if row.nonce != tx.nonce and row.signed_at > since:
                cost = read_signed(row.raw).gas * row.max_fee_per_gas
                costs[row.nonce] = max(costs.get(row.nonce, 0), cost)
        return sum(costs.values())


def evaluator_policy(
    chain_id: int,
    *,
    contracts: str = "1",
    challenges: Iterable[Address] = (),
    max_fee_per_gas: int = MAX_FEE_PER_GAS,
    max_gas: int = MAX_GAS,
    max_wei_per_day: int = MAX_WEI_PER_DAY,
    reputation: Address | None = None,
    now: Callable[[], float] = time.time,
) -> SigningPolicy:
    """Allow three functions of known challenges, and giving feedback at one registry if there is one."""
    vouched = Vouched(set(challenges))
    bare = {scoring_function(name, contracts).call() for name in ("advanceToScoring", "finalize")}
    post = scoring_function("postScores", contracts).selector
    give = abi("ReputationRegistry").function("giveFeedback").selector

    def check_call(tx: TransactionToSign) -> str | None:
        if reputation is not None and tx.to == reputation:
            return None if tx.data[:4] == give else f"0x{tx.data[:4].hex()} is not giveFeedback"
        if tx.to not in vouched.targets:
            return f"{tx.to} is not a known challenge"
        if tx.data in bare or tx.data[:4] == post:
            return None
        return f"0x{tx.data[:4].hex()} is not postScores, advanceToScoring or finalize"

    return SigningPolicy(chain_id, check_call, vouched, max_gas, max_fee_per_gas, max_wei_per_day, now)


def agent_policy(
    chain_id: int,
    *,
    factory: Address | None,
    evaluator: Address | None,
    contracts: str = "1",
    max_wei_per_day: int = MAX_WEI_PER_DAY,
    now: Callable[[], float] = time.time,
) -> SigningPolicy:
    """Allow a poster or agent the calls of posting, submitting and claiming, at the contracts made for them."""
    vouched = Vouched({factory} if factory else set())
    version = contract_version(contracts)
    claims = ("submit", "claimPrize", "claimExpiredRefund", "finalize", "expire")
    create = version.factory.function("createChallenge").selector
    register = abi("IdentityRegistry").function("register(string)").selector
    known = {create, register, *(version.challenge.function(name).selector for name in claims), *_TOKEN_CALLS}

    def check_call(tx: TransactionToSign) -> str | None:
        selector = tx.data[:4]
        if selector not in known:
            return f"0x{selector.hex()} is not a call that posting, submitting or claiming needs"
        if selector in _TOKEN_CALLS:
            return _token_problem(tx, factory, evaluator, vouched)
        if selector == create and tx.to != factory:
            return f"{tx.to} is not the challenge factory"
        return None if tx.to in vouched.targets else f"{tx.to} is not a contract of the challenge factory"

    return SigningPolicy(chain_id, check_call, vouched, MAX_AGENT_GAS, MAX_FEE_PER_GAS, max_wei_per_day, now)


def _token_problem(
    tx: TransactionToSign, factory: Address | None, evaluator: Address | None, vouched: Vouched
) -> str | None:
    """Allow an allowance only for the factory, a payment only to the evaluator, neither above what was agreed to."""
    called = _TOKEN_CALLS[tx.data[:4]]
    try:
        to, units = called.arguments(tx.data)
    except Undecodable:
        return f"its arguments are not those of {called.name}"
    if called.name == "approve" and to != factory:
        return f"it would let {to} take tokens, which is not the challenge factory"
    if called.name == "transfer" and (evaluator is None or to != evaluator):
        return f"it would pay {to}, which is not the evaluator that CLARA_EVALUATOR_ADDRESS names"
    most = vouched.spending.get(tx.to, 0)
    return None if units <= most else f"it gives away {units} units of {tx.to}, and {most} were agreed to"
