"""Find nonces that are missing before transactions we have signed, and name what fills them.

Invariant: signed bytes stay valid for ever. What is missing before them is filled with a transaction of zero to
ourselves; they are not signed again at another nonce while they can still land.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clara_eval.chain.transaction import StoredTransaction
from clara_eval.core.address import Address

MOST_FILLED = 256
"""Missing nonces before a transaction that we would pay for: more only come from a node that told a wrong count."""
FILLED_AT_ONCE = 16
"""Pools of common nodes keep at least so many transactions of one account."""
FILLING = "fill_nonce"


@dataclass(frozen=True, slots=True)
class NonceGap:
    """Nonces that nothing of ours is signed for, and how many signed transactions wait behind them."""

    wallet: Address
    missing: tuple[int, ...]
    waiting: int

    def __str__(self) -> str:
        how = "it is filled with a transaction" if len(self.missing) == 1 else "they are filled with transactions"
        return f"{self.found}: {how} of zero to ourselves."

    @property
    def found(self) -> str:
        """Say what is missing, without what is done about it."""
        first, last = self.missing[0], self.missing[-1]
        if first == last:
            said = f"Nonce {first} of {self.wallet} is missing"
        else:
            said = f"{len(self.missing)} nonces of {self.wallet}, {first} to {last}, are missing"
        return f"{said}, and {self.waiting} signed transaction{'s wait' if self.waiting > 1 else ' waits'} for it"


def missing_before(mined: int, recorded: Sequence[StoredTransaction]) -> dict[int, int]:
    """Count, for each recorded nonce from `mined` on, the unrecorded ones before it."""
    nonces = sorted({tx.nonce for tx in recorded if tx.nonce >= mined})
    return {nonce: nonce - mined - before for before, nonce in enumerate(nonces)}


def within_reach(mined: int, recorded: Sequence[StoredTransaction]) -> list[int]:
    """Return the recorded nonces from `mined` on with few enough missing before them to fill."""
    return [nonce for nonce, missing in missing_before(mined, recorded).items() if missing <= MOST_FILLED]


def find_gap(wallet: Address, mined: int, recorded: Sequence[StoredTransaction]) -> NonceGap | None:
    """Find what is missing before the recorded nonces that can be reached."""
    known = set(within_reach(mined, recorded))
    missing = tuple(nonce for nonce in range(mined, max(known, default=mined)) if nonce not in known)
    return NonceGap(wallet, missing, sum(nonce > missing[0] for nonce in known)) if missing else None
