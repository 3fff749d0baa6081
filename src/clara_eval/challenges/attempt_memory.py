"""The attempts at a challenge: number of the next one, failures in a row, when it may begin."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from clara_eval.core.address import Address
from clara_eval.core.hashing import plain_json
from clara_eval.store.sql_store import PublicKeys


@dataclass(frozen=True, slots=True)
class Attempts:
    number: int = 1
    failures: int = 0
    retry_at: int | None = None

    def after(self, retry_at: int | None, *, failed: bool) -> Attempts:
        return Attempts(self.number + 1, self.failures + 1 if failed else 0, retry_at)

    def at_once(self) -> Attempts:
        """Somebody asked for it: the next attempt waits for nothing."""
        return replace(self, retry_at=None)


def attempts_key(address: str) -> str:
    return f"engine:attempts:{address}"


def workflow_id(chain_id: int, address: Address, number: int) -> str:
    return f"evaluate:{chain_id}:{address}:{number}"


async def read_attempts(keys: PublicKeys, chain_id: int, address: str) -> Attempts:
    text = await keys.get(chain_id, attempts_key(address))
    return Attempts(**json.loads(text)) if text else Attempts()


async def save_attempts(keys: PublicKeys, chain_id: int, address: str, attempts: Attempts) -> None:
    await keys.put(chain_id, attempts_key(address), plain_json(asdict(attempts)))
