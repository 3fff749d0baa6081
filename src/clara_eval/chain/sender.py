"""Send contract calls from one wallet, each intention exactly once.

Invariant: one intention has one nonce. Signed bytes are recorded before they are sent; a stuck attempt is replaced only
by one with a higher fee; another nonce is used only when it is certain that no attempt was or will be mined.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, Protocol

from clara_eval.chain import transaction
from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.blocks import TransactionReceipt
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Posted, PostedBy
from clara_eval.chain.rpc import Meaning
from clara_eval.chain.transaction import Attempts, ContractCall, NonceGap, StoredTransaction, find_gap, read_signed
from clara_eval.core.address import Address
from clara_eval.core.errors import CannotPublish, Disagrees, Stalled, Temporary

log = logging.getLogger(__name__)

MOST_NONCES = 3  # Reverted nonces before a person has to look, or nonces used by others before the sender waits
REFUSALS = 3  # Refusals in a row before the contract's is believed: nodes that are behind refuse, too
EARLIER_NONCES_SECONDS = 10.0  # Between two broadcasts of earlier nonces of other processes, which may be dead
LEASE_POLL_SECONDS = 0.25  # A wallet lease is held for a few requests to the node
FILLED_AT_ONCE = 16  # Common nodes keep at least so many pending transactions of one account
FILLING = "fill_nonce"
MOST_LOOKED_AT = 64  # Transactions behind a gap whose receipts are looked up
STALE_SECONDS = 1.0  # After a longer wait for the wallet, the contract is read again before signing


class Intention(StrEnum):
    POST_SCORES = "post_scores"
    ADVANCE_TO_SCORING = "advance_to_scoring"
    FINALIZE = "finalize"


class SendOutcome(StrEnum):
    DRY_RUN = "dry_run"  # No key: everything is checked and rehearsed, nothing sent
    CONFIRMED = "confirmed"
    REVERTED = "reverted"
    UNKNOWN = "unknown"  # Sent but not seen mined: the next call continues from what is on chain
    ALREADY_DONE = "already_done"  # By another sender; for scores `posted_by` tells which


@dataclass(frozen=True, slots=True)
class Receipt:
    outcome: SendOutcome
    intention: str
    calldata: str
    tx_hash: str | None = None
    block_number: int | None = None
    posted_by: PostedBy | None = None
    detail: str = ""

    @classmethod
    def of(
        cls, call: ContractCall, outcome: SendOutcome, tx: TransactionReceipt | Posted | None = None, detail: str = ""
    ) -> Receipt:
        hash_, block = (tx.tx_hash, tx.block_number) if tx else (None, None)
        return cls(outcome, call.intention, "0x" + call.data.hex(), hash_, block, detail=detail)


class TransactionLog(Protocol):
    """Store of signed transactions and of the wallet's lease."""

    async def transactions(self, run: str, intention: str) -> list[StoredTransaction]: ...
    async def pending_nonces(self, sender: str, from_nonce: int = 0) -> list[StoredTransaction]: ...
    async def save_transaction(self, tx: StoredTransaction) -> None: ...
    async def take_lease(self, name: str, holder: str, seconds: float) -> bool: ...
    async def drop_lease(self, name: str, holder: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SendTimeouts:
    """Timeouts of a transaction that waits to be mined; `NodeRetries` has those of a node request."""

    poll_seconds: float = 2.0
    bump_after_seconds: float = 45.0
    give_up_after_seconds: float = 300.0
    lease_seconds: float = 120.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


Notice = Callable[[str], Awaitable[None]]  # Receives why the wallet cannot send, and what is done about it
IsDone = Callable[[Attempts], Awaitable[Receipt | None]]
"""Checks the contract: None if the call is still to be sent, an UNKNOWN receipt if not yet final."""
_wallet_lease: ContextVar[tuple[str, str] | None] = ContextVar("held_wallet", default=None)
"""Name and holder of the wallet lease that the current task holds."""


@dataclass(frozen=True, slots=True)
class TransactionSender:
    """Sender of one account: records before it sends, raises the fee when stuck, waits for confirmation."""

    account: EthereumAccount
    log: TransactionLog
    timeouts: SendTimeouts = field(default_factory=SendTimeouts)
    is_dry: bool = False  # Check and rehearse everything but sign nothing, even with a key
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)  # First come, first served in this process
    notices: list[Notice] = field(default_factory=list, compare=False)

    @property
    def address(self) -> Address:
        return self.account.address

    @property
    def can_sign(self) -> bool:
        return self.account.can_sign and not self.is_dry

    async def send(self, call: ContractCall, is_done: IsDone) -> Receipt:
        """Send the call and return how it ended; a repeated `send` continues the first one."""
        if self.can_sign:
            return await _Sending(call, self, is_done).run()
        done = await is_done(())
        if done is not None:
            return done
        await self.account.rehearse(call)
        return Receipt.of(call, SendOutcome.DRY_RUN, detail="Rehearsed; nothing was sent.")

    async def recorded(self, from_nonce: int = 0) -> list[StoredTransaction]:
        """Return the recorded transactions of this wallet on its chain, highest nonce first."""
        rows = await self.log.pending_nonces(self.address, from_nonce)
        return [tx for tx in rows if tx.run.startswith(f"{self.account.chain_id}:")]

    async def find_gap(self) -> NonceGap | None:
        """Find nonces that are missing before recorded transactions; None without a key."""
        return find_gap(self.address, *await self.unmined()) if self.can_sign else None

    async def unmined(self) -> tuple[int, list[StoredTransaction]]:
        """Return the chain's next nonce, and the transactions recorded from it on and not given up."""
        mined = await self.account.next_nonce()
        recorded = await self.recorded(mined)
        missing = transaction.missing_before(mined, recorded)
        behind = [tx for tx in recorded if missing[tx.nonce]][:MOST_LOOKED_AT]
        # If a transaction that seems to wait behind a gap is mined, there is no gap: the nodes' count is too low.
        receipt = await self.account.outcome(behind) if behind else None
        if receipt is not None:
            mined = 1 + next(tx.nonce for tx in behind if tx.tx_hash == receipt.tx_hash)
        given_up = set[str]()  # nonces out of reach whose call was signed again with a lower nonce
        for tx in behind:
            rows = await self.log.transactions(tx.run, tx.intention)
            if any(row.sender == tx.sender and row.attempt > tx.attempt and row.nonce < tx.nonce for row in rows):
                given_up.add(tx.tx_hash)
        return mined, [tx for tx in recorded if tx.nonce >= mined and tx.tx_hash not in given_up]

    async def close_gap(self) -> None:
        """Fill missing nonces when nothing else is sent, unless a pending transaction may fill them."""
        gap = await self.find_gap()
        if gap is None or await self.account.pending_nonce() > gap.missing[0]:
            return
        async with self.signing():
            for tx in await self.fill(gap.missing):
                await self.account.broadcast(tx)

    async def fill(self, missing: Sequence[int]) -> list[StoredTransaction]:
        """Sign and record a zero transfer to ourselves for the lowest missing nonces still free."""
        filled, run = list[StoredTransaction](), f"{self.account.chain_id}:{self.address}"
        mined, recorded = await self.unmined()
        taken = {tx.nonce: tx for tx in reversed(recorded)}
        for nonce in [nonce for nonce in missing if nonce >= mined][:FILLED_AT_ONCE]:
            if nonce in taken:
                filled.append(taken[nonce])
                continue
            what = f"A transaction of zero to ourselves for nonce {nonce}"
            call = ContractCall(run, f"{FILLING}:{nonce}", self.address, b"", what)
            tx = await self.account.prepare(call, attempt=1, nonce=nonce, recorded=await self.recorded())
            _check_same_call(call, tx)
            filled.append(await self.record(tx))
        return filled

    async def record(self, tx: StoredTransaction) -> StoredTransaction:
        """Record a signed transaction under the wallet's lease; return the stored one if another was first."""
        if (held := _wallet_lease.get()) is None or not await self.log.take_lease(*held, self.timeouts.lease_seconds):
            raise Temporary("Another process took over the wallet.", remedy="It continues there; look again later.")
        await self.log.save_transaction(tx)
        rows = await self.log.transactions(tx.run, tx.intention)
        kept = next((row for row in rows if row.attempt == tx.attempt), None)
        if kept is None:
            raise Temporary("The signed transaction could not be recorded; it was not sent.")
        return kept

    @asynccontextmanager
    async def signing(self) -> AsyncIterator[None]:
        """Hold the wallet's lease (reentrant): one signature at a time in all processes that share the store."""
        lease, timeouts = f"wallet:{self.account.chain_id}:{self.address}", self.timeouts
        if (outer := _wallet_lease.get()) is not None and outer[0] == lease:
            yield
            return
        held, started = (lease, f"{os.getpid()}:{uuid.uuid4().hex}"), timeouts.now()
        async with self.lock:
            while not await self.log.take_lease(*held, timeouts.lease_seconds):
                if timeouts.now() - started > timeouts.give_up_after_seconds:
                    raise Temporary(f"The wallet {self.address} is busy with another transaction.", remedy="Try again.")
                await timeouts.sleep(min(timeouts.poll_seconds, LEASE_POLL_SECONDS))
            token = _wallet_lease.set(held)
            try:
                yield
            finally:
                _wallet_lease.reset(token)
                await self.log.drop_lease(*held)


async def send_again(
    chain: EthereumChain, log: TransactionLog, address: Address, is_current: Callable[..., Awaitable[bool]]
) -> int:
    """Rebroadcast an earlier key's unmined transactions that are still current; return how many."""
    # Superseded transactions are not sent, because without the key they could not be replaced any more.
    account = EthereumAccount(chain, None, dry_address=address)
    mined, recorded = await TransactionSender(account, log).unmined()
    current = [tx for _, tx in sorted({tx.nonce: tx for tx in reversed(recorded)}.items()) if await is_current(tx)]
    try:
        for tx in current:
            await account.broadcast(tx)
    except Stalled as stalled:
        text = f"The earlier key's wallet {address} cannot pay for the transactions that it has signed."
        raise Stalled(text, cause=stalled.cause, remedy="Send ETH to it, then they are sent again.") from None
    if (gap := find_gap(address, mined, recorded)) is not None:
        remedy = "Run the service with that key until its posts are mined, or let the poster post."
        raise Stalled(f"{gap.found}. Only that earlier key can sign what fills it.", cause="gap", remedy=remedy)
    return len(current)


class _Sending:
    """One `send` of one call: poll the chain, and sign, broadcast or raise the fee as needed."""

    def __init__(self, call: ContractCall, sender: TransactionSender, is_done: IsDone) -> None:
        self._call, self._is_done, self._sender = call, is_done, sender
        self._account, self._log, self._timeouts = sender.account, sender.log, sender.timeouts
        self._spent: dict[int, Literal["before", "reverted", "taken", "unreachable"]] = {}
        """Nonces of this intention that can no longer succeed, and why; "before" means before this send."""
        self._refusals = 0
        self._is_rehearsed = False
        self._since: dict[str | int, float] = {}
        """When an attempt (by hash) was first seen or last raised, or a missing nonce first noticed."""
        self._earlier_sent_at: float | None = None
        self._last_contract_state: Receipt | None = None
        self._last_notice: str | None = None
        self._is_at_fee_bound = False

    async def run(self) -> Receipt:
        started = self._timeouts.now()
        attempts = await self._log.transactions(self._call.run, self._call.intention)
        for nonce in sorted({attempt.nonce for attempt in attempts if attempt.sender == self._account.address}):
            await self._mark_if_spent(nonce, attempts, may_be_reverted=True)
        self._spent = {nonce: "before" if why == "taken" else why for nonce, why in self._spent.items()}
        while True:
            receipt = await self._step(await self._attempts())
            if receipt is not None:
                return receipt
            if self._timeouts.now() - started > self._timeouts.give_up_after_seconds:
                break
            await self._timeouts.sleep(self._timeouts.poll_seconds)
        unknown = Receipt.of(self._call, SendOutcome.UNKNOWN, detail=self._last_notice or "")
        if attempts := await self._attempts():
            return replace(unknown, tx_hash=attempts[-1].tx_hash)
        return self._last_contract_state or unknown

    async def _step(self, attempts: Attempts) -> Receipt | None:
        mined = await self._account.outcome(self._unspent(attempts))
        if mined is None:
            done = await self._is_done(attempts)
            if done is None:
                await self._try_to_send(attempts)
                return None
            if await self._account.outcome(self._unspent(attempts)) is not None:
                return None  # Ours was mined between the two requests: the next step finds it.
        elif not mined.is_final:
            return None
        elif mined.has_succeeded:
            calldata = next(read_signed(tx.raw).data for tx in attempts if tx.tx_hash == mined.tx_hash)
            return replace(Receipt.of(self._call, SendOutcome.CONFIRMED, mined), calldata="0x" + calldata.hex())
        else:
            # It often reverts because another sender was first.
            done = await self._is_done(())
            if done is None:
                return Receipt.of(self._call, SendOutcome.REVERTED, mined)
        self._last_contract_state = done
        return None if done.outcome is SendOutcome.UNKNOWN else done

    async def _mark_if_spent(self, nonce: int, attempts: Attempts, *, may_be_reverted: bool) -> None:
        """Mark a nonce whose revert is final, or that a transaction of another program used."""
        own = [tx for tx in attempts if tx.nonce == nonce]
        is_gone = await self._account.is_nonce_gone(nonce)
        mined = await self._account.outcome(own)
        is_reverted = mined is not None and mined.is_final and not mined.has_succeeded
        if is_gone and mined is None and await self._account.is_pending(own):
            return  # The count is wrong: our transaction is still pending.
        if is_gone and (mined is None or (is_reverted and may_be_reverted)):
            log.warning("nonce %d of %s can no longer serve %s", nonce, self._account.address, self._call.run)
            self._spent[nonce] = "reverted" if is_reverted else "taken"
            self._is_rehearsed = False

    async def _try_to_send(self, attempts: Attempts) -> None:
        """Send; count a refusal only if the call is neither mined nor done by now."""
        try:
            await self._send(attempts)
            self._refusals = 0
        except CannotPublish as refused:
            has_moved = await self._account.outcome(self._unspent(attempts)) is not None
            if has_moved or await self._is_done(attempts) is not None:
                return
            self._refusals += 1
            if isinstance(refused, Stalled) or self._refusals >= REFUSALS:
                raise

    async def _send(self, attempts: Attempts) -> None:
        if not self._is_rehearsed:
            await self._account.rehearse(self._call)
            self._is_rehearsed = True
        current, looked_at = self._current(attempts), self._timeouts.now()
        async with nullcontext() if current else self._sender.signing():
            if current is None:
                # Another process may have signed this call meanwhile: then its attempt is continued.
                attempts = await self._attempts()
                current = self._current(attempts) or await self._first_attempt(attempts, looked_at)
            if current is None or not await self._send_earlier_nonces(current.nonce):
                return
            if await self._broadcast(current) is Meaning.NONCE_TOO_LOW:
                # Used by one of our attempts, which the next step finds, or by another program.
                await self._mark_if_spent(current.nonce, [*attempts, current], may_be_reverted=False)

    async def _first_attempt(self, attempts: Attempts, looked_at: float) -> StoredTransaction | None:
        """Sign and record; None if the call was done while we waited for the wallet."""
        failed, why = f"{self._call.what} of {self._call.to} failed with", list(self._spent.values())
        if (reverted := why.count("reverted")) >= MOST_NONCES:
            raise CannotPublish(f"{failed} {reverted} nonces.", remedy="Look at the transactions before trying again.")
        if (taken := why.count("taken")) >= MOST_NONCES:
            raise Stalled(
                f"{failed} {taken} nonces that another program used with this key.",
                cause="nonces",
                remedy="One key belongs to one service: stop the other. Then this is tried again.",
            )
        if self._timeouts.now() - looked_at > STALE_SECONDS and await self._is_done(attempts) is not None:
            return None
        # A superseded attempt and its successor share the nonce, so that only one of them can be mined.
        over = max(self._own(attempts), key=lambda row: row.attempt, default=None)
        if over is not None:
            nonce = over.nonce
        else:
            # Count from mined transactions: a pending one that we did not record may be dropped, and a nonce after it
            # could then never be mined. A collision with it is harmless, because only one of the two can be mined.
            mined, recorded = await self._sender.unmined()
            nonce = max(transaction.within_reach(mined, recorded), default=mined - 1) + 1
        attempt, recorded = max((row.attempt for row in attempts), default=0) + 1, await self._sender.recorded()
        tx = await self._account.prepare(self._call, attempt=attempt, nonce=nonce, recorded=recorded, over=over)
        _check_same_call(self._call, tx)
        kept = await self._sender.record(tx)
        _check_same_call(self._call, kept)
        return kept

    async def _broadcast(self, tx: StoredTransaction) -> Meaning | None:
        """Send; raise the fee first if the attempt is stuck or the node finds its fee too low."""
        now = self._timeouts.now()
        is_stuck = now - self._since.setdefault(tx.tx_hash, now) >= self._timeouts.bump_after_seconds
        refusal = await self._account.broadcast(tx) if not is_stuck else Meaning.FEE_TOO_LOW
        if refusal is not Meaning.FEE_TOO_LOW:
            return refusal
        self._since[tx.tx_hash] = now
        return await self._account.broadcast(await self._raise_fee(tx))

    async def _raise_fee(self, tx: StoredTransaction) -> StoredTransaction:
        """Sign and record `tx` with a higher fee; return the newest attempt if it was raised or cannot be."""
        async with self._sender.signing():
            rows = await self._log.transactions(tx.run, tx.intention)
            place = (tx.sender, tx.nonce, read_signed(tx.raw).data)
            newest = [row for row in rows if (row.sender, row.nonce, read_signed(row.raw).data) == place][-1]
            if newest.attempt > tx.attempt:
                return newest
            recorded = await self._sender.recorded()
            raised = await self._account.bump(tx, attempt=rows[-1].attempt + 1, recorded=recorded)
            if raised is not None:
                return await self._sender.record(raised)
        if not self._is_at_fee_bound:
            log.warning("fee of %s %s is at its bound; waiting", tx.run, tx.intention)
        self._is_at_fee_bound = True
        return tx

    async def _send_earlier_nonces(self, nonce: int) -> bool:
        """Send and fill all nonces before this one; return False if it is out of reach."""
        now = self._timeouts.now()
        if self._earlier_sent_at is not None and now - self._earlier_sent_at < EARLIER_NONCES_SECONDS:
            return True
        self._earlier_sent_at = now
        mined, recorded = await self._sender.unmined()
        if nonce > mined and nonce not in transaction.within_reach(mined, recorded):
            call = self._call  # signed after a node gave a wrong count
            far = f"{call.what} of {call.to} is signed with nonce {nonce}, and the chain's next one is {mined}"
            if call.intention not in set(Intention):
                remedy = "A node gave a wrong count. It cannot be signed again, because both could be mined."
                raise Stalled(f"{far}: more than {transaction.MOST_FILLED} are missing.", cause="gap", remedy=remedy)
            # The contract accepts this call once: if the far nonce is ever reached, it only reverts.
            await self._notify(f"{far}: too far to be filled. It is signed again with the next nonce.")
            self._spent[nonce], self._is_rehearsed, self._earlier_sent_at = "unreachable", False, None
            return False
        before = [tx for tx in recorded if tx.nonce <= nonce]
        newest = {tx.nonce: tx for tx in reversed(before) if tx.nonce < nonce}
        if (gap := find_gap(self._account.address, mined, before)) is None:
            self._last_notice = None
        else:
            await self._notify(str(gap))
            first, timeout = gap.missing[0], self._timeouts.bump_after_seconds
            # A pending transaction that we did not record may close the gap.
            if await self._account.pending_nonce() <= first or now - self._since.setdefault(first, now) >= timeout:
                async with self._sender.signing():
                    newest |= {tx.nonce: tx for tx in await self._sender.fill(gap.missing)}
        for tx in sorted(newest.values(), key=lambda row: row.nonce):
            await self._broadcast(tx)
        return True

    async def _notify(self, text: str) -> None:
        if text == self._last_notice:
            return
        self._last_notice = text
        log.warning("%s", text)
        for notice in self._sender.notices:
            await notice(text)

    async def _attempts(self) -> list[StoredTransaction]:
        rows = await self._log.transactions(self._call.run, self._call.intention)
        for row in self._unspent(rows):
            _check_same_call(self._call, row)
        return rows

    def _unspent(self, attempts: Attempts) -> list[StoredTransaction]:
        return [tx for tx in attempts if tx.nonce not in self._spent or tx.sender != self._account.address]

    def _own(self, attempts: Attempts) -> list[StoredTransaction]:
        """Return the unspent attempts of this key; those of an earlier key are only watched."""
        return [tx for tx in self._unspent(attempts) if tx.sender == self._account.address]

    def _current(self, attempts: Attempts) -> StoredTransaction | None:
        """Return the newest attempt that can still be mined and is not superseded."""
        return next((tx for tx in reversed(self._own(attempts)) if read_signed(tx.raw).data == self._call.data), None)


def _check_same_call(call: ContractCall, tx: StoredTransaction) -> None:
    """Raise Disagrees if the transaction recorded under this intention is a different call."""
    signed, accepted = read_signed(tx.raw), {call.data, *call.replaces}
    if (signed.to, signed.value, signed.nonce) != (call.to, 0, tx.nonce) or signed.data not in accepted:
        raise Disagrees(
            f"The recorded transaction {tx.tx_hash} of {tx.run} differs from what is to be sent now.",
            remedy="The evaluation changed after it was signed: look at both before anything is sent.",
        )
