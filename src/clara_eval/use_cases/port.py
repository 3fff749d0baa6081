"""What an action has at hand: the settings, a node, maybe a wallet, and the records of evaluations.

Ports only; the adapters behind them are joined in `clara_eval.desk`. A `Node` never answers for another chain than the
settings' network. A `Wallet` signs what it is given; what may be given to it is decided in `carry_out`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clara_eval.challenge.model import Address, Challenge, Token, to_address
from clara_eval.contracts.refusals import Refusal
from clara_eval.errors import ClaraError
from clara_eval.eval_config import EvalConfig
from clara_eval.money.dollars import is_dollar
from clara_eval.publish.policy import SigningPolicy
from clara_eval.publish.transaction import Unsigned
from clara_eval.settings import Settings


class CannotAct(ClaraError):
    """The contract would refuse, or the wallet must not do it: nothing was sent."""


class Refused(CannotAct):
    """A contract refused a call; `refusal` is its custom error in words, None if it is not one that we know."""

    def __init__(self, message: str, refusal: Refusal | None) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class View:
    """One call to a contract that changes nothing."""

    to: Address
    data: str


class Node(Protocol):
    """The network's node."""

    async def ask(self, method: str, *params: Any) -> Any:
        """One JSON-RPC call, null included; a revert raises Refused, a node that does not answer Temporary."""
        ...

    async def views(self, calls: Sequence[View], block: str = "latest") -> list[str | None]:
        """The answers in order; None where the contract refused or has no such function."""
        ...


class SignedBytes(Protocol):
    @property
    def raw(self) -> str: ...

    @property
    def tx_hash(self) -> str: ...


class Wallet(Protocol):
    """A local key."""

    address: Address
    policy: SigningPolicy

    def sign(self, tx: Unsigned) -> SignedBytes: ...


class Records(Protocol):
    """What an evaluation left behind: the specification's keys, from a store or from a running service."""

    async def status(self, address: Address) -> dict[str, Any] | None: ...
    async def scores(self, address: Address) -> dict[str, Any] | None: ...
    async def features(self, address: Address, submitter: Address) -> dict[str, Any] | None: ...
    async def game(self, address: Address, first: Address, second: Address) -> dict[str, Any] | None: ...
    async def trace(self, address: Address, *, at_most: int | None = None) -> str | None:
        """The text; a longer one than asked for may end early or be refused."""
        ...

    def trace_place(self, address: Address) -> str:
        """Where the trace is found, in words that can be acted on."""
        ...


class Contents(Protocol):
    """Where submitted content comes from and goes to."""

    async def place_of(self, content: bytes) -> str | None:
        """The ipfs: URI this content would have; nothing is published. None when no IPFS node is configured."""
        ...

    async def pin(self, content: bytes) -> str | None:
        """The ipfs: URI of the content, published and kept; None when no IPFS node is configured."""
        ...

    async def fetch(self, uri: str) -> bytes:
        """What stands behind a URI, under the evaluator's own limits."""
        ...


class Quote(Protocol):
    """What an evaluation would cost."""

    def __call__(self, config: EvalConfig, entries: int) -> int | None:
        """Millionths of a dollar; None when a judge has no known price."""
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """One caller's place of work."""

    settings: Settings
    node: Node
    wallet: Wallet | None
    records: Records
    contents: Contents
    quote: Quote
    evaluator: Address | None
    """Clara's address, if it is known here."""
    is_local: bool
    """Whether the caller sits at this machine: only then are files read, content pinned and the local key used."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One wallet sends one thing at a time: two calls at once must not share a nonce, nor post the same thing twice."""
    tokens: dict[Address, Token] = field(default_factory=dict)
    """Tokens met so far: symbol and decimals never change."""
    known: list[Address] = field(default_factory=list)
    """Challenges of the factory met so far, oldest first."""
    seen: dict[Address, tuple[float, Challenge]] = field(default_factory=dict)
    """When a challenge was read last, and what it said; only for callers from elsewhere."""

    @property
    def factory(self) -> Address:
        return to_address(self.settings.factory, what="CLARA_CHALLENGE_FACTORY")

    def is_dollar(self, token: Address) -> bool:
        """Whether one of this token counts as a dollar: the network's own, or listed in CLARA_WALLET_TOKENS."""
        listed = (part.strip().lower() for part in self.settings.wallet_tokens.split(","))
        return is_dollar(token, self.settings.network) or token in listed

    def explorer(self, kind: str, value: str) -> str | None:
        base = self.settings.network.explorer
        return f"{base}/{kind}/{value}" if base else None
