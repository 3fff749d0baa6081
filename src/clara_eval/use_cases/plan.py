"""What an action would do, before anything is done: unsigned transactions with a description in words.

Comes in: from `post`, `submit` and `claim`, after they looked at everything that can be looked at. Goes out: a `Plan`
that a caller's own wallet can sign, or that `carry_out` signs with a local key. `question` is what a person is asked
before money moves; it says the same thing each time the same action is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clara_eval.challenge.model import Address, Token, to_address
from clara_eval.contracts import ContractName
from clara_eval.errors import BadInput
from clara_eval.use_cases.contract_calls import calldata
from clara_eval.use_cases.port import CannotAct, Desk, Refused
from clara_eval.use_cases.untrusted import is_text


@dataclass(frozen=True, slots=True)
class Transaction:
    """One unsigned transaction. No action of ours ever sends ether: `value` is always 0."""

    to: Address
    data: str
    description: str
    gas: int | None = None
    """The node's estimate; None when it depends on a transaction before it."""
    value: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """Tokens that leave the sender's wallet."""

    token: Token
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
    next: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    publishes: bytes | None = None
    """Content that has to be pinned before the transactions name its place, and not before somebody said yes."""
    place: str = ""
    """The URI under which it then stands."""
    is_first_part: bool = False
    """Whether the same action has to be planned again after this, because it depends on the outcome."""


def sender_of(desk: Desk, sender: str | None) -> Address | None:
    """Who acts: the local wallet, else the address that the caller names, else nobody in particular."""
    named = to_address(sender, what="sender") if sender else None
    if desk.wallet is None:
        return named
    if named is not None and named != desk.wallet.address:
        raise BadInput(
            f"The sender {named} is not the local wallet {desk.wallet.address}.",
            path="sender",
            value=sender,
            remedy="Leave the sender away, or remove CLARA_WALLET_KEY to get unsigned transactions.",
        )
    return desk.wallet.address


def require_text(text: str, path: str) -> None:
    """Refuse what cannot be written as UTF-8: such bytes come from a shell in another encoding."""
    if not is_text(text):
        raise BadInput(f"The {path} is not text: it holds bytes that are not UTF-8.", path=path, remedy="Write UTF-8.")


def transaction(contract: ContractName, to: Address, name: str, *args: Any, description: str) -> Transaction:
    return Transaction(to, calldata(contract, name, *args), description)


async def with_gas(desk: Desk, sender: Address | None, planned: Transaction) -> Transaction:
    """The same with the node's estimate; a contract that would refuse says so here, before anything is signed."""
    if sender is None:
        return planned
    request = {"from": sender, "to": planned.to, "data": planned.data, "value": hex(planned.value)}
    try:
        gas = int(await desk.node.ask("eth_estimateGas", request), 16)
    except Refused as refused:
        raise CannotAct(f"{planned.description} would be refused: {refused}") from refused
    return Transaction(planned.to, planned.data, planned.description, gas, planned.value)
