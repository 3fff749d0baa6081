"""Plan transactions before anything is sent: unsigned, with descriptions and a question."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from clara_eval.app import Caller
from clara_eval.chain.account import ContractRefused, estimate_gas
from clara_eval.chain.model import PrizeToken
from clara_eval.chain.transaction import ContractCall
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, CannotAct
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.untrusted import fence, is_text


@dataclass(frozen=True, slots=True)
class Transaction:
    """One unsigned transaction; it never sends ether."""

    to: Address
    data: str
    description: str
    gas: int | None = None
    """The node's estimate; None when it depends on a transaction before it."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens that leave the sender's wallet."""

    token: PrizeToken
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    action: str
    sender: Address | None
    transactions: tuple[Transaction, ...]
    question: str
    summary: str
    challenge: Address | None = None
    spends: Spending | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)
    publishes: bytes | None = None
    """Content that has to be pinned before the transactions name its place, and not before somebody said yes."""
    place: str = ""
    """The URI of that content."""
    is_first_part: bool = False
    """Whether the action has to be planned again after this, because it depends on the outcome."""


MakePlan = Callable[[Caller, int | None], Awaitable[Plan]]
"""Makes the plan; the number is the agent id that the plan's own first part has just registered, if it has."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a caller wants done; equal requests have equal keys."""

    key: str
    plan: MakePlan

    @classmethod
    def of(cls, verb: str, request: object, plan: MakePlan) -> Action:
        """`request` is a frozen dataclass or text that tells two requests of this verb apart."""
        return cls(f"{verb}/{keccak_hex(repr(request).encode('utf-8', errors='surrogatepass'))[2:34]}", plan)


def sender_of(caller: Caller, sender: str | None) -> Address | None:
    """Who acts: the local wallet, else the address that the caller names."""
    named = to_address(sender, what="sender") if sender else None
    if caller.account is None:
        return named
    if named is not None and named != caller.account.address:
        raise BadInput(
            f"The sender {named} is not the local wallet {caller.account.address}.",
            path="sender",
            remedy="Omit the sender, or remove CLARA_WALLET_KEY to get unsigned transactions.",
        )
    return caller.account.address


def require_text(text: str, path: str) -> None:
    if not is_text(text):
        raise BadInput(f"The {path} is not text: it holds bytes that are not UTF-8.", path=path, remedy="Write UTF-8.")


def transaction(to: Address, data: bytes, description: str) -> Transaction:
    return Transaction(to, "0x" + data.hex(), description)


async def with_gas(caller: Caller, sender: Address | None, planned: Transaction) -> Transaction:
    """Add the node's estimate; a contract that would refuse raises here, before anything is signed."""
    if sender is None:
        return planned
    call = ContractCall("", "", planned.to, bytes.fromhex(planned.data[2:]), planned.description)
    try:
        gas = await estimate_gas(caller.chain, call, sender)
    except ContractRefused as refused:
        raise would_be_refused(planned, refused) from refused
    return replace(planned, gas=gas)


def would_be_refused(planned: Transaction, refused: ContractRefused) -> CannotAct:
    """Say a contract's refusal; its own words, which a stranger may have written, are fenced."""
    refusal, said = refused.refusal, str(refused.refusal)
    if refusal is None:
        said = "The contract refused, without a reason that we know."
    elif refusal.name == "Error":
        said = f"A contract refused in its own words:\n{fence(str(refusal.values[0]), 'contract')['text']}"
    return CannotAct(f"{planned.description} would be refused: {said}")
