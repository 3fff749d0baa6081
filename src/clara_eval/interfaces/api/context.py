"""What the API needs, as one value: the store to read, and one narrow way to ask the engine for something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from clara_eval.actions.review import Decree
from clara_eval.challenges.objections import Objection
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.service.health import ServiceHealth
from clara_eval.service.metrics import Metrics
from clara_eval.store.ports import Store

Decision = Literal["approve", "reject"]


class EngineDoor(Protocol):
    """What an administrator may ask of the engine."""

    async def request(self, address: Address) -> str:
        """Queue an evaluation and return its workflow id; NotFound, NotYet or Temporary where it cannot begin."""
        ...

    async def decide(
        self, address: Address, decision: Decision, reason: str, digest: str | None = None, by: str = ""
    ) -> None:
        """Record a person's decision about an evaluation that waits for one; BadInput where none, or another, waits."""
        ...

    async def reveal(self, address: Address, document: str, signature: str) -> str:
        """Keep a hidden harness that its poster reveals; BadInput or NotYet where it is not to be taken."""
        ...

    async def object(self, address: Address, about: str, reason: str, signature: str) -> Objection:
        """Keep a submitter's objection to an announced result; BadInput, NotFound or NotYet where it is not taken."""
        ...

    async def rule(self, address: Address, decree: Decree, digest: str | None) -> None:
        """Have a round that waits walked again under a person's ruling; BadInput where none, or another, waits."""
        ...


@dataclass(frozen=True, slots=True)
class ApiContext:
    settings: Settings
    store: Store
    chain_id: int
    metrics: Metrics
    pulse: ServiceHealth
    engine: EngineDoor
