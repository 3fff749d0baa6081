"""What a key may sign: small checks, put together into the evaluator's policy and into a poster's or agent's.

Comes in: an unsigned transaction, and what the key has signed already, from the store. Goes out: nothing, or
CannotPublish with the reason. Must hold: one chain, no ether, only targets that somebody vouched for, only the calls
that are needed, capped fees, and a cap on the gas of a day that survives a restart, because it is counted from the
recorded transactions and not from memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clara_eval.chain.calldata import scoring_function
from clara_eval.chain.contracts.abi import Function, Undecodable, abi
from clara_eval.chain.contracts.versions import contract_version
from clara_eval.chain.transaction import StoredTransaction, TransactionToSign, read_signed
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

Check = Callable[[TransactionToSign], str | None]
"""Why this must not be signed, or None."""


@dataclass(slots=True)
class Vouched:
    """Whom the key may talk to, and how much of each token it may give away: filled by whoever verified it."""

    targets: set[Address] = field(default_factory=set)
    spending: dict[Address, int] = field(default_factory=dict)
    own: Address | None = None
    """The key's own address: an empty call of zero to it fills a missing nonce."""

    def permit(self, targets: Iterable[Address]) -> None:
        """Add contracts that the factory knows, or that a person named."""
        self.targets.update(targets)

    def permit_spending(self, token: Address, units: int) -> None:
        """The most of this token that one transaction may approve or transfer."""
        self.spending[token] = units


@dataclass(frozen=True, slots=True)
class SigningPolicy:
    """What the key may sign. Everything else is refused, whoever asks."""

    checks: tuple[Check, ...]
    vouched: Vouched
    max_fee_per_gas: int
    max_wei_per_day: int
    now: Callable[[], float]

    def check(self, tx: TransactionToSign, recorded: Sequence[StoredTransaction] = ()) -> None:
        """Refuse what breaks a rule; `recorded` is what this key has signed on this chain."""
        problem = next((found for check in self.checks if (found := check(tx))), None)
        if problem:
            raise CannotPublish(f"The wallet does not sign this: {problem}.")
        over = self._day(tx, recorded)
        if over:
            raise Stalled(
                f"The wallet does not sign this now: {over}.",
                cause="gas_cap",
                remedy="It goes on when a day has passed since the oldest of them.",
            )

    def _day(self, tx: TransactionToSign, recorded: Sequence[StoredTransaction]) -> str | None:
        """Of several attempts with one nonce only one is ever paid: the dearest counts."""
        since, costs = self.now() - _DAY_SECONDS, {tx.nonce: tx.gas * tx.max_fee_per_gas}
        for row in recorded:
            if row.nonce != tx.nonce and row.signed_at > since:
                cost = read_signed(row.raw).gas * row.max_fee_per_gas
                costs[row.nonce] = max(costs.get(row.nonce, 0), cost)
        today = sum(costs.values())
        if today <= self.max_wei_per_day:
            return None
        return f"gas for {today} wei in a day is above the cap of {self.max_wei_per_day}"


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
    """The evaluator's key: three functions of known challenges, and feedback at one registry if there is one."""
    vouched = Vouched(set(challenges))
    scores = both(known_challenge(vouched), scoring_calls(contracts))
    checks = (on_chain(chain_id), no_ether, fills_nonce_or(vouched, feedback_or(reputation, scores)))
    bounds = (fee_at_most(max_fee_per_gas), gas_at_most(max_gas))
    return SigningPolicy((*checks, *bounds), vouched, max_fee_per_gas, max_wei_per_day, now)


def agent_policy(
    chain_id: int,
    *,
    factory: Address | None,
    evaluator: Address | None,
    contracts: str = "1",
    max_wei_per_day: int = MAX_WEI_PER_DAY,
    now: Callable[[], float] = time.time,
) -> SigningPolicy:
    """A poster's or agent's key: the calls that plans are made of, to the contracts that they are made for."""
    vouched = Vouched({factory} if factory else set())
    calls = agent_functions(contracts)
    bounds = (on_chain(chain_id), no_ether, fee_at_most(MAX_FEE_PER_GAS), gas_at_most(MAX_AGENT_GAS))
    tokens = tokens_go_to(factory, evaluator, vouched)
    targets = (only_calls(calls), only_factory_creates(factory, calls), tokens, known_contract(vouched))
    allowed = (fills_nonce_or(vouched, target) for target in targets)
    return SigningPolicy((*bounds, *allowed), vouched, MAX_FEE_PER_GAS, max_wei_per_day, now)


# the checks


def on_chain(chain_id: int) -> Check:
    return lambda tx: None if tx.chain_id == chain_id else f"it is for chain {tx.chain_id}, not {chain_id}"


def no_ether(tx: TransactionToSign) -> str | None:
    return f"it moves {tx.value} wei" if tx.value else None


def fills_nonce_or(vouched: Vouched, otherwise: Check) -> Check:
    """An empty call to the key's own address, or what `otherwise` allows."""
    return lambda tx: None if tx.to == vouched.own and not tx.data else otherwise(tx)


def known_challenge(vouched: Vouched) -> Check:
    return lambda tx: None if tx.to in vouched.targets else f"{tx.to} is not a known challenge"


def scoring_calls(contracts: str) -> Check:
    bare = {scoring_function(name, contracts).call() for name in ("advanceToScoring", "finalize")}
    post = scoring_function("postScores", contracts).selector

    def check(tx: TransactionToSign) -> str | None:
        if tx.data in bare or tx.data[:4] == post:
            return None
        return f"0x{tx.data[:4].hex()} is not postScores, advanceToScoring or finalize"

    return check


def both(first: Check, second: Check) -> Check:
    return lambda tx: first(tx) or second(tx)


def feedback_or(registry: Address | None, otherwise: Check) -> Check:
    """At the registry of feedback nothing but giving some; everywhere else what `otherwise` allows."""
    give = abi("ReputationRegistry").function("giveFeedback").selector

    def check(tx: TransactionToSign) -> str | None:
        if registry is None or tx.to != registry:
            return otherwise(tx)
        return None if tx.data[:4] == give else f"0x{tx.data[:4].hex()} is not giveFeedback"

    return check


def fee_at_most(cap: int) -> Check:
    def check(tx: TransactionToSign) -> str | None:
        is_within = max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) <= cap
        return None if is_within else f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {cap}"

    return check


def gas_at_most(cap: int) -> Check:
    return lambda tx: None if tx.gas <= cap else f"its gas limit {tx.gas} is above {cap}"


_TOKEN_CALLS = {made.selector: made for made in map(abi("TestUSDC").function, ("approve", "transfer"))}


def agent_functions(contracts: str) -> Mapping[bytes, Function]:
    """By selector, all that posting, submitting and claiming call."""
    version = contract_version(contracts)
    claims = ("submit", "claimPrize", "claimExpiredRefund", "finalize", "expire")
    called = [version.factory.function("createChallenge"), abi("IdentityRegistry").function("register(string)")]
    return _TOKEN_CALLS | {made.selector: made for made in (*called, *map(version.challenge.function, claims))}


def only_calls(known: Mapping[bytes, Function]) -> Check:
    def check(tx: TransactionToSign) -> str | None:
        if tx.data[:4] in known:
            return None
        return f"0x{tx.data[:4].hex()} is not a call that posting, submitting or claiming needs"

    return check


def only_factory_creates(factory: Address | None, known: Mapping[bytes, Function]) -> Check:
    def check(tx: TransactionToSign) -> str | None:
        called = known.get(tx.data[:4])
        is_elsewhere = called is not None and called.name == "createChallenge" and tx.to != factory
        return f"{tx.to} is not the challenge factory" if is_elsewhere else None

    return check


def tokens_go_to(factory: Address | None, evaluator: Address | None, vouched: Vouched) -> Check:
    """An allowance only for the factory, a payment only to the evaluator, and neither above what was agreed to."""

    def check(tx: TransactionToSign) -> str | None:
        called = _TOKEN_CALLS.get(tx.data[:4])
        if called is None:
            return None
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

    return check


def known_contract(vouched: Vouched) -> Check:
    """Submissions, claims and registrations only where the factory vouches for the contract."""

    def check(tx: TransactionToSign) -> str | None:
        is_token = tx.data[:4] in _TOKEN_CALLS
        return None if is_token or tx.to in vouched.targets else f"{tx.to} is not a contract of the challenge factory"

    return check
