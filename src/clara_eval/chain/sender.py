"""The one sender of transactions, for the evaluator and for people: each intention is carried out once.

Comes in: a contract call with a name (its intention) and a way to ask the contract whether it is done. Goes out: a
`Receipt`. Must hold: one intention has one nonce; its signed bytes are recorded before they are sent, so that after a
crash the same bytes go out again; a stuck attempt is replaced only by the same nonce and calldata with a higher fee;
another nonce is taken only when it is certain that no attempt landed. Nonces that are missing before a signed
transaction are filled (`nonces`). One wallet signs one thing at a time: its lease is held from the choice of a nonce
until the signed bytes are recorded and sent, and not while they wait to be mined.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from clara_eval.chain.nonces import (
    FILLED_AT_ONCE,
    FILLING,
    MOST_FILLED,
    NonceGap,
    find_gap,
    missing_before,
    within_reach,
)
from clara_eval.chain.posted import Posted, PostedBy
from clara_eval.chain.transaction import StoredTransaction, read_signed
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Disagrees, Stalled, Temporary

log = logging.getLogger(__name__)

MOST_NONCES = 3
"""After so many reverted nonces a person has to look; after so many that others used, it waits for a while."""
REFUSALS = 3
"""In a row, with a pause between, before the contract's no is believed: nodes that are behind say no, too."""
CLEAR_SECONDS = 10.0
"""How often what others have to send before ours is sent by us, too: they do it themselves, unless they are dead."""
LOOK_FOR_LEASE_SECONDS = 0.25
"""A lease is held for some requests to the node."""
MOST_LOOKED_AT = 64
"""Of the transactions that seem to wait behind a gap, so many are looked for in blocks."""
STALE_SECONDS = 1.0
"""Whoever waited longer for the wallet asks the contract once more before anything is signed."""


class Intention(StrEnum):
    POST_SCORES = "post_scores"
    ADVANCE_TO_SCORING = "advance_to_scoring"
    FINALIZE = "finalize"


class SendOutcome(StrEnum):
    DRY_RUN = "dry_run"
    """No key: everything checked and rehearsed, nothing sent."""
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    UNKNOWN = "unknown"
    """Sent, not seen mined: the next call looks at the chain first and goes on from there."""
    ALREADY_DONE = "already_done"
    """Somebody else was first; for scores `posted_by` says who."""


@dataclass(frozen=True, slots=True)
class ContractCall:
    """One call, named: the same `run` and `intention` are the same transaction, however often it is asked for."""

    run: str
    intention: str
    to: Address
    data: bytes
    description: str = ""
    replaces: frozenset[bytes] = frozenset()
    """Calldata that was signed for this intention about a block that is gone: superseded on the same nonce."""

    @property
    def what(self) -> str:
        """The call in words, for errors."""
        return self.description or self.intention


@dataclass(frozen=True, slots=True)
class Receipt:
    """How an intention ended."""

    outcome: SendOutcome
    intention: str
    calldata: str
    tx_hash: str | None = None
    block_number: int | None = None
    posted_by: PostedBy | None = None
    detail: str = ""

    @classmethod
    def of(
        cls, call: ContractCall, outcome: SendOutcome, tx: Mined | Posted | None = None, *, detail: str = ""
    ) -> Receipt:
        """How a call ended, and the transaction that ended it."""
        hash_, block = (tx.tx_hash, tx.block_number) if tx else (None, None)
        return cls(outcome, call.intention, "0x" + call.data.hex(), hash_, block, detail=detail)


class BroadcastResult(StrEnum):
    """What a node said to a broadcast."""

    ACCEPTED = "accepted"
    NONCE_USED = "nonce_used"
    UNDERPRICED = "underpriced"
    """Another attempt with this nonce waits in the node's pool and pays as much."""
    FEE_TOO_LOW = "fee_too_low"
    NOT_TAKEN = "not_taken"
    """An earlier nonce is missing, or the node's pool has no room: it is sent again at the next look."""


@dataclass(frozen=True, slots=True)
class Mined:
    tx_hash: str
    block_number: int
    has_succeeded: bool
    is_final: bool
    """Deep enough for this network."""


class SendingAccount(Protocol):
    """A wallet with its node, in honest steps."""

    @property
    def address(self) -> Address: ...

    @property
    def can_sign(self) -> bool: ...

    def trust(self, challenge: Address) -> None:
        """Sign for this challenge although the factory may not know it: a person named it."""
        ...

    async def rehearse(self, call: ContractCall) -> None:
        """Try the call without sending; raises CannotPublish or NotYet with the contract's reason."""
        ...

    async def next_nonce(self) -> int:
        """How many transactions of this address are mined."""
        ...

    async def pending_nonce(self) -> int:
        """The nonce after those that are mined or wait in a pool to be mined next."""
        ...

    async def is_nonce_gone(self, nonce: int) -> bool:
        """Whether a transaction with this nonce is mined so deep that it stays."""
        ...

    async def is_pending(self, attempts: Sequence[StoredTransaction]) -> bool:
        """Whether a node still keeps one of these to be mined."""
        ...

    async def prepare(
        self,
        call: ContractCall,
        *,
        attempt: int,
        nonce: int,
        recorded: Sequence[StoredTransaction],
        over: StoredTransaction | None = None,
    ) -> StoredTransaction:
        """The call, signed; `recorded` is what this key has signed before, for the day's cap. It outbids `over`."""
        ...

    async def bump(self, tx: StoredTransaction, *, recorded: Sequence[StoredTransaction]) -> StoredTransaction | None:
        """The same nonce and calldata for more money; None when the bounds forbid it."""
        ...

    async def broadcast(self, tx: StoredTransaction) -> BroadcastResult:
        """Safe to repeat."""
        ...

    async def outcome(self, attempts: Sequence[StoredTransaction]) -> Mined | None:
        """Which of these is mined."""
        ...


class TransactionLog(Protocol):
    """Where signed transactions and the wallet's lease are kept."""

    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]: ...
    async def pending_nonces(self, sender: str, from_nonce: int = 0) -> list[StoredTransaction]: ...
    async def save_transaction(self, tx: StoredTransaction) -> None: ...
    async def take_lease(self, name: str, holder: str, seconds: float) -> bool: ...
    async def drop_lease(self, name: str, holder: str) -> None: ...


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class SendTimeouts:
    """How long to wait for what."""

    poll_seconds: float = 2.0
    bump_after_seconds: float = 45.0
    give_up_after_seconds: float = 300.0
    lease_seconds: float = 120.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = _sleep


Notice = Callable[[str], Awaitable[None]]
"""Told in a sentence what keeps the wallet from sending, and what is done about it."""
KeepLease = Callable[[], Awaitable[None]]
"""Makes sure that the wallet is still held; raises Temporary where another process took it."""
IsDone = Callable[[Sequence[StoredTransaction]], Awaitable[Receipt | None]]
"""Asks the contract: None is not done, so send; an UNKNOWN receipt is done but not yet deep enough, so wait."""


@dataclass(frozen=True, slots=True)
class TransactionSender:
    """One account's transactions: recorded before they are sent, raised when stuck, confirmed."""

    account: SendingAccount
    log: TransactionLog
    pace: SendTimeouts = field(default_factory=SendTimeouts)
    is_dry: bool = False
    """Check and rehearse everything, sign nothing, although there may be a key."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    """Who of this process may look for the wallet's lease: one at a time, first come, first served."""
    notices: list[Notice] = field(default_factory=list, compare=False)

    @property
    def address(self) -> Address:
        return self.account.address

    @property
    def can_sign(self) -> bool:
        return self.account.can_sign and not self.is_dry

    async def send(self, call: ContractCall, is_done: IsDone) -> Receipt:
        """See the call through to a named end; a second call of this function continues the first."""
        if not self.can_sign:
            return await is_done(()) or await self._rehearse_only(call)
        return await _Sending(call, self, is_done).see_through()

    async def _rehearse_only(self, call: ContractCall) -> Receipt:
        await self.account.rehearse(call)
        return Receipt.of(call, SendOutcome.DRY_RUN, detail="Rehearsed; nothing was sent.")

    def telling(self, notice: Notice) -> TransactionSender:
        """The same wallet; `notice` hears of gaps, too."""
        return replace(self, notices=[*self.notices, notice])

    async def recorded(self, chain: str, from_nonce: int = 0) -> list[StoredTransaction]:
        """What the wallet has signed on this chain, the highest nonce first."""
        rows = await self.log.pending_nonces(self.address, from_nonce)
        return [tx for tx in rows if _chain_of(tx.run) == chain]

    async def find_gap(self, chain_id: int) -> NonceGap | None:
        """Nonces that are missing before what the wallet has signed; None when there are none, or no key."""
        if not self.can_sign:
            return None
        return find_gap(self.address, *await self.unmined(str(chain_id)))

    async def unmined(self, chain: str) -> tuple[int, list[StoredTransaction]]:
        """The chain's next nonce, and what is recorded from it on and not given up.

        If transactions of ours seem to wait behind a gap and one of them is mined, the nodes' count is too low.
        """
        mined = await self.account.next_nonce()
        recorded = await self.recorded(chain, mined)
        missing = missing_before(mined, recorded)
        behind = [tx for tx in recorded if missing[tx.nonce]][:MOST_LOOKED_AT]
        seen = await self.account.outcome(behind) if behind else None
        if seen is not None:
            mined = 1 + next(tx.nonce for tx in behind if tx.tx_hash == seen.tx_hash)
        given_up = {tx.tx_hash for tx in behind if await self._is_given_up(tx)}
        return mined, [tx for tx in recorded if tx.nonce >= mined and tx.tx_hash not in given_up]

    async def _is_given_up(self, tx: StoredTransaction) -> bool:
        """Whether its nonce was too far to be reached, and the call was signed again with a lower one."""
        rows = await self.log.transactions(tx.run, tx.intention)
        return any(row.sender == tx.sender and row.attempt > tx.attempt and row.nonce < tx.nonce for row in rows)

    async def close_gap(self, chain_id: int) -> None:
        """Fill what is missing although nothing is to be sent now; somebody's pending transaction is waited for."""
        gap = await self.find_gap(chain_id)
        if gap is None or await self.account.pending_nonce() > gap.missing[0]:
            return
        async with self.signing(str(chain_id)) as keep_lease:
            for tx in await self.fill(str(chain_id), gap.missing, keep_lease):
                await self.account.broadcast(tx)

    async def fill(self, chain: str, missing: Sequence[int], keep_lease: KeepLease) -> list[StoredTransaction]:
        """Sign and record a transaction of zero to ourselves for the lowest missing nonces that are still free."""
        filled: list[StoredTransaction] = []
        mined, recorded = await self.unmined(chain)
        taken = {tx.nonce: tx for tx in reversed(recorded)}
        for nonce in [nonce for nonce in missing if nonce >= mined][:FILLED_AT_ONCE]:
            if nonce in taken:
                filled.append(taken[nonce])
                continue
            what = f"A transaction of zero to ourselves for nonce {nonce}"
            call = ContractCall(f"{chain}:{self.address}", f"{FILLING}:{nonce}", self.address, b"", what)
            tx = await self.account.prepare(call, attempt=1, nonce=nonce, recorded=await self.recorded(chain))
            _check(call, tx)
            filled.append(await self.record(tx, keep_lease))
        return filled

    async def record(self, tx: StoredTransaction, keep_lease: KeepLease) -> StoredTransaction:
        """Write first; what counts afterwards is what the store holds, should another have been faster."""
        await keep_lease()
        await self.log.save_transaction(tx)
        rows = await self.log.transactions(tx.run, tx.intention)
        kept = next((row for row in rows if row.attempt == tx.attempt), None)
        if kept is None:
            raise Temporary("The signed transaction could not be recorded; it was not sent.")
        return kept

    @asynccontextmanager
    async def signing(self, chain: str) -> AsyncIterator[KeepLease]:
        """One signature at a time for each wallet, across processes that share the store.

        Whoever is about to record what it signed asks first whether the wallet is still its own.
        """
        name, holder = f"wallet:{chain}:{self.address}", f"{os.getpid()}:{uuid.uuid4().hex}"
        pace = self.pace
        started = pace.now()
        async with self.turn:
            while not await self.log.take_lease(name, holder, pace.lease_seconds):
                if pace.now() - started > pace.give_up_after_seconds:
                    raise Temporary(f"The wallet {self.address} is busy with another transaction.", remedy="Try again.")
                await pace.sleep(min(pace.poll_seconds, LOOK_FOR_LEASE_SECONDS))

            async def keep() -> None:
                if not await self.log.take_lease(name, holder, pace.lease_seconds):
                    raise Temporary(
                        "Another process took over the wallet.", remedy="It continues there; look again later."
                    )

            try:
                yield keep
            finally:
                await self.log.drop_lease(name, holder)


class _Sending:
    """One call on its way, from the first look at the records to its end."""

    def __init__(self, call: ContractCall, sender: TransactionSender, is_done: IsDone) -> None:
        self._call, self._is_done, self._sender = call, is_done, sender
        self._chain = _chain_of(call.run)
        self._account, self._log, self._pace = sender.account, sender.log, sender.pace
        self._dead: set[int] = set()
        """Nonces of this intention that can bring nothing any more."""
        self._reverted: set[int] = set()
        self._lost: set[int] = set()
        """Of the dead ones: those that reverted, and those that others used while we were at it."""
        self._refusals = 0
        self._is_rehearsed = False
        self._since: dict[str, float] = {}
        """When an attempt, by its hash, was first seen here, or when it was last tried to raise it."""
        self._cleared_at: float | None = None
        self._held: KeepLease | None = None
        self._latest_word: Receipt | None = None
        self._is_bound_told = False
        self._told: str | None = None
        self._missing_since: dict[int, float] = {}
        """When a nonce was first seen to be missing while somebody's transaction is pending for it."""

    async def see_through(self) -> Receipt:
        started = self._pace.now()
        await self._bury()
        while True:
            attempts = await self._attempts()
            receipt = await self._look(attempts)
            if receipt is not None:
                return receipt
            if self._pace.now() - started > self._pace.give_up_after_seconds:
                return await self._unknown()
            await self._pace.sleep(self._pace.poll_seconds)

    async def _look(self, attempts: Sequence[StoredTransaction]) -> Receipt | None:
        """Where do we stand? Ends, or pushes the newest attempt on."""
        mined = await self._account.outcome(self._not_dead(attempts))
        if mined is None:
            done = await self._is_done(attempts)
            if done is None:
                await self._push_or_look_again(attempts)
                return None
            # Ours may have been mined between the two questions: then the next look finds it.
            is_ours = await self._account.outcome(self._not_dead(attempts)) is not None
            return None if is_ours else self._hear(done)
        if not mined.is_final:
            return None
        if mined.has_succeeded:
            landed = next(read_signed(tx.raw).data for tx in attempts if tx.tx_hash == mined.tx_hash)
            return replace(Receipt.of(self._call, SendOutcome.CONFIRMED, mined), calldata="0x" + landed.hex())
        # A revert is often the sign that somebody was first.
        done = await self._is_done(())
        return Receipt.of(self._call, SendOutcome.REVERTED, mined) if done is None else self._hear(done)

    def _hear(self, done: Receipt) -> Receipt | None:
        """What the contract says is done ends the walk, unless it is not deep enough yet."""
        self._latest_word = done
        return None if done.outcome is SendOutcome.UNKNOWN else done

    async def _unknown(self) -> Receipt:
        receipt = Receipt.of(self._call, SendOutcome.UNKNOWN, detail=self._told or "")
        if attempts := await self._attempts():
            return replace(receipt, tx_hash=attempts[-1].tx_hash)
        return self._latest_word or receipt

    async def _bury(self) -> None:
        """Which nonces of this intention can bring nothing any more: reverted for good, or used by a stranger."""
        attempts = await self._log.transactions(self._call.run, self._call.intention)
        for nonce in sorted({attempt.nonce for attempt in attempts if attempt.sender == self._account.address}):
            await self._bury_if_dead(nonce, attempts, may_be_reverted=True)
        self._lost.clear()

    async def _bury_if_dead(self, nonce: int, attempts: Sequence[StoredTransaction], *, may_be_reverted: bool) -> None:
        is_gone = await self._account.is_nonce_gone(nonce)
        mined = await self._account.outcome([attempt for attempt in attempts if attempt.nonce == nonce])
        is_reverted = mined is not None and mined.is_final and not mined.has_succeeded
        if is_gone and mined is None and await self._account.is_pending([tx for tx in attempts if tx.nonce == nonce]):
            return  # The count is wrong: what waits to be mined has not lost its nonce.
        if is_gone and (mined is None or (is_reverted and may_be_reverted)):
            log.warning("nonce %d of %s can no longer serve %s", nonce, self._account.address, self._call.run)
            self._dead.add(nonce)
            (self._reverted if is_reverted else self._lost).add(nonce)
            self._is_rehearsed = False

    async def _push_or_look_again(self, attempts: Sequence[StoredTransaction]) -> None:
        """A refusal counts only if the world did not move between our look and the rehearsal."""
        try:
            await self._push(attempts)
            self._refusals = 0
        except CannotPublish as refused:
            has_moved = await self._account.outcome(self._not_dead(attempts)) is not None
            if has_moved or await self._is_done(attempts) is not None:
                return
            self._refusals += 1
            if isinstance(refused, Stalled) or self._refusals >= REFUSALS:
                raise

    async def _push(self, attempts: Sequence[StoredTransaction]) -> None:
        if not self._is_rehearsed:
            await self._account.rehearse(self._call)
            self._is_rehearsed = True
        if live := self._live(attempts):
            await self._send_on(live[-1], attempts)
            return
        looked_at = self._pace.now()
        async with self._signing():
            attempts = await self._attempts()
            newest = await self._first_attempt(attempts, looked_at)
            if newest is not None:
                await self._send_on(newest, attempts)

    async def _send_on(self, newest: StoredTransaction, attempts: Sequence[StoredTransaction]) -> None:
        if not await self._clear_the_way(newest.nonce):
            return
        if await self._forward(newest) is BroadcastResult.NONCE_USED:
            # By one of our attempts, which the next look will find and tell, or for good by a stranger.
            await self._bury_if_dead(newest.nonce, [*attempts, newest], may_be_reverted=False)

    @asynccontextmanager
    async def _signing(self) -> AsyncIterator[KeepLease]:
        """The wallet, held while something is signed and sent; held already, it stays with its holder."""
        if self._held is not None:
            yield self._held
            return
        async with self._sender.signing(self._chain) as keep_lease:
            self._held = keep_lease
            try:
                yield keep_lease
            finally:
                self._held = None

    async def _first_attempt(self, attempts: Sequence[StoredTransaction], looked_at: float) -> StoredTransaction | None:
        """Signed and recorded; None where the contract has to be looked at again, because the wallet kept us waiting.

        Another process may have signed this very call meanwhile: then its attempt goes on.
        """
        if live := self._live(attempts):
            return live[-1]
        self._check_nonces_left()
        if self._pace.now() - looked_at > STALE_SECONDS and await self._is_done(attempts) is not None:
            return None
        # Of a superseded attempt and its successor only one can ever land, because they share the nonce.
        over = max(self._superseded(attempts), key=lambda row: row.attempt, default=None)
        tx = await self._account.prepare(
            self._call,
            attempt=max((row.attempt for row in attempts), default=0) + 1,
            nonce=over.nonce if over else await self._free_nonce(),
            recorded=await self._sender.recorded(self._chain),
            over=over,
        )
        _check(self._call, tx)
        kept = await self._record(tx)
        _check(self._call, kept)
        return kept

    def _check_nonces_left(self) -> None:
        what = f"{self._call.what} of {self._call.to} failed with"
        if len(self._reverted) >= MOST_NONCES:
            raise CannotPublish(
                f"{what} {len(self._reverted)} nonces.", remedy="Look at the transactions before trying again."
            )
        if len(self._lost) >= MOST_NONCES:
            raise Stalled(
                f"{what} {len(self._lost)} nonces that another program used with this key.",
                cause="nonces",
                remedy="One key belongs to one service: stop the other. It goes on by itself.",
            )

    async def _free_nonce(self) -> int:
        """The next nonce that is neither mined nor promised to another intention.

        The mined count is asked, not the pending one: a pending transaction that is not in our records may be
        dropped, and a nonce after it could then never be mined. Colliding with it is harmless, only one can land.
        """
        mined, recorded = await self._sender.unmined(self._chain)
        return max(within_reach(mined, recorded), default=mined - 1) + 1

    async def _record(self, tx: StoredTransaction) -> StoredTransaction:
        async with self._signing() as keep_lease:
            return await self._sender.record(tx, keep_lease)

    async def _forward(self, tx: StoredTransaction) -> BroadcastResult:
        """Send; a stuck attempt, or one the node finds too cheap, is first replaced by a dearer one."""
        now = self._pace.now()
        is_stuck = now - self._since.setdefault(tx.tx_hash, now) >= self._pace.bump_after_seconds
        sent = await self._account.broadcast(tx) if not is_stuck else BroadcastResult.FEE_TOO_LOW
        if sent is not BroadcastResult.FEE_TOO_LOW:
            return sent
        self._since[tx.tx_hash] = now
        return await self._account.broadcast(await self._raised(tx))

    async def _raised(self, tx: StoredTransaction) -> StoredTransaction:
        """The same for more money, recorded; what stands already where somebody raised it, or the bounds forbid it."""
        async with self._signing():
            rows = await self._log.transactions(tx.run, tx.intention)
            newest = max((row for row in rows if _is_same(row, tx)), key=lambda row: row.attempt)
            if newest.attempt > tx.attempt:
                return newest
            raised = await self._account.bump(tx, recorded=await self._sender.recorded(self._chain))
            if raised is not None:
                return await self._record(replace(raised, attempt=max(row.attempt for row in rows) + 1))
        if not self._is_bound_told:
            log.warning("fee of %s %s is at its bound; waiting", tx.run, tx.intention)
            self._is_bound_told = True
        return tx

    async def _clear_the_way(self, nonce: int) -> bool:
        """Send what has to land before this nonce, and fill what is missing; False when it is out of reach."""
        if self._cleared_at is not None and self._pace.now() - self._cleared_at < CLEAR_SECONDS:
            return True
        self._cleared_at = self._pace.now()
        mined, recorded = await self._sender.unmined(self._chain)
        if nonce > mined and nonce not in within_reach(mined, recorded):
            await self._leave(nonce, mined)
            return False
        before = [tx for tx in recorded if tx.nonce <= nonce]
        newest = {tx.nonce: tx for tx in reversed(before) if tx.nonce < nonce}
        if (gap := find_gap(self._account.address, mined, before)) is not None:
            newest |= {tx.nonce: tx for tx in await self._fill(gap)}
        else:
            self._told = None
        for tx in sorted(newest.values(), key=lambda row: row.nonce):
            await self._forward(tx)
        return True

    async def _fill(self, gap: NonceGap) -> list[StoredTransaction]:
        """What closes the gap, recorded; nothing yet while somebody else's transaction may close it."""
        await self._tell(str(gap))
        now, first = self._pace.now(), gap.missing[0]
        if await self._account.pending_nonce() > first:
            since = self._missing_since.setdefault(first, now)
            if now - since < self._pace.bump_after_seconds:
                return []
        async with self._signing() as keep_lease:
            return await self._sender.fill(self._chain, gap.missing, keep_lease)

    async def _leave(self, nonce: int, mined: int) -> None:
        """Give up a nonce that a wrong count made us sign and that cannot be reached."""
        far = f"{self._call.what} of {self._call.to} is signed with nonce {nonce}, and the chain's next one is {mined}"
        if self._call.intention not in set(Intention):
            raise Stalled(
                f"{far}: more than {MOST_FILLED} are missing.",
                cause="gap",
                remedy="A node told a wrong count. It cannot be signed again, because both could land one day.",
            )
        # The contract takes this call once: at the far nonce it would only be reverted.
        await self._tell(f"{far}: too far to be filled. It is signed again with the next nonce.")
        self._dead.add(nonce)
        self._is_rehearsed = False
        self._cleared_at = None

    async def _tell(self, words: str) -> None:
        if words == self._told:
            return
        self._told = words
        log.warning("%s", words)
        for notice in self._sender.notices:
            await notice(words)

    async def _attempts(self) -> list[StoredTransaction]:
        rows = await self._log.transactions(self._call.run, self._call.intention)
        for row in self._not_dead(rows):
            _check(self._call, row)
        return rows

    def _not_dead(self, attempts: Sequence[StoredTransaction]) -> list[StoredTransaction]:
        return [tx for tx in attempts if tx.nonce not in self._dead or tx.sender != self._account.address]

    def _live(self, attempts: Sequence[StoredTransaction]) -> list[StoredTransaction]:
        """What we can still send or raise: after a change of key the old key's attempts are only watched."""
        return [tx for tx in self._mine(attempts) if read_signed(tx.raw).data == self._call.data]

    def _superseded(self, attempts: Sequence[StoredTransaction]) -> list[StoredTransaction]:
        return [tx for tx in self._mine(attempts) if read_signed(tx.raw).data != self._call.data]

    def _mine(self, attempts: Sequence[StoredTransaction]) -> list[StoredTransaction]:
        return [tx for tx in self._not_dead(attempts) if tx.sender == self._account.address]


def _check(call: ContractCall, tx: StoredTransaction) -> None:
    """Refuse a transaction that is recorded under this intention and is not this very call."""
    signed, ours = read_signed(tx.raw), {call.data, *call.replaces}
    if (signed.to, signed.value, signed.nonce) != (call.to, 0, tx.nonce) or signed.data not in ours:
        raise Disagrees(
            f"The recorded transaction {tx.tx_hash} of {tx.run} differs from what is to be sent now.",
            remedy="The evaluation changed after it was signed: look at both before anything is sent.",
        )


def _is_same(one: StoredTransaction, other: StoredTransaction) -> bool:
    """Whether only the fee can differ."""
    is_place = (one.sender, one.nonce) == (other.sender, other.nonce)
    return is_place and read_signed(one.raw).data == read_signed(other.raw).data


def _chain_of(run: str) -> str:
    return run.partition(":")[0]
