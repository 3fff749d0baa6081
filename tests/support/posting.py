"""A closed round on a local chain, ready to be posted, with clocks, kills and strangers for tests of the sender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from tests.support.step_worker import StepWorkers

from clara_eval.chain.account import EthereumAccount
from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.model import Challenge, Winners, choose_winners
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.chain.sender import Receipt, SendTimeouts, TransactionSender
from clara_eval.chain.transaction import StoredTransaction, evaluator_policy
from clara_eval.chain.wallet import Wallet
from clara_eval.challenges.calls import publish
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.settings import NETWORKS
from clara_eval.core.address import Address
from clara_eval.core.model import Placed
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore

DIGEST = "0x" + "d1" * 32
SCORES_POSTED = abi("Challenge").event("ScoresPosted").topic


class Clock:
    """Time that passes only while somebody waits; `on_wait` is what the world does meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits = 0
        self.on_wait: Callable[[int], Awaitable[None]] | None = None

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.waits += 1
        if self.on_wait is not None:
            await self.on_wait(self.waits)
        await asyncio.sleep(0.003)

    def pace(self, lease_seconds: float = 60) -> SendTimeouts:
        return SendTimeouts(poll_seconds=10, now=self.now, sleep=self.sleep, lease_seconds=lease_seconds)


@dataclass(slots=True)
class World:
    """One closed round, ready to be scored, and everything to score it with."""

    local: LocalChain
    chain: EthereumChain
    account: EthereumAccount
    store: SqlStore
    clock: Clock
    challenge: Challenge
    winners: Winners

    @property
    def sender(self) -> TransactionSender:
        return TransactionSender(self.account, self.store, self.clock.pace())

    async def post(self, sender: TransactionSender | None = None) -> Receipt:
        return await publish(self.challenge, self.winners, DIGEST, sender=sender or self.sender)

    async def posts(self) -> int:
        """How many ScoresPosted events stand in the chain."""
        wanted = {"address": self.challenge.address, "topics": [SCORES_POSTED], "fromBlock": "0x0", "toBlock": "latest"}
        return len(await self.chain.blocks.rpc.ask("eth_getLogs", wanted))

    async def attempts(self) -> list[StoredTransaction]:
        return await self.store.transactions(self.challenge.run, "post_scores")

    async def rpc(self, method: str, *params: Any) -> Any:
        return await self.local.node.rpc(method, *params)


async def instantly(_seconds: float) -> None:
    """The nodes' own pauses are not part of the story."""


async def briefly(seconds: float) -> None:
    """Wait a tenth of the time: a node that replaces blocks needs some of it."""
    await asyncio.sleep(seconds / 10)


def wallet_of(key: str, **policy: Any) -> Wallet:
    return Wallet(SecretStr(key), replace(evaluator_policy(31337), **policy))


async def closed(local: LocalChain, submitters: int = 4, terms: PostedTerms | None = None) -> Address:
    address = await local.post_challenge(terms)
    await local.submit_all(address, [Handed(agent, f"data:,{agent.index}") for agent in local.agents[:submitters]])
    await local.move_time(DAY + 1)
    return address


def decide(challenge: Challenge) -> Winners:
    placed = [Placed(s.submitter, 9000 - n) for n, s in enumerate(challenge.submissions)]
    return choose_winners(challenge, placed)


@asynccontextmanager
async def world(
    local: LocalChain, folder: Path, *, confirmations: int = 1, urls: Sequence[str] = (), **policy: Any
) -> AsyncIterator[World]:
    network = replace(NETWORKS["local"], confirmations=confirmations)
    clock = Clock()
    rpc = Rpc(list(urls) or [local.rpc_url], chain_id=31337, retries=NodeRetries(sleep=briefly))
    chain = EthereumChain(rpc, network, first_block=0)
    store = await SqliteStore.open(folder / "store.db")
    address = await closed(local)
    await local.send(local.owner, local.challenge(address), "advanceToScoring")
    challenge = await look_at_challenge(chain, address)
    account = EthereumAccount(chain, wallet_of(local.evaluator.key, **policy), factory=local.deployment.factory)
    try:
        yield World(local, chain, account, store, clock, challenge, decide(challenge))
    finally:
        await local.node.rpc("evm_setAutomine", True)
        await chain.close()
        await store.close()


class Killed(BaseException):
    """The process ends here."""


class Mortal:
    """Lets every call of sender and store through, until its number comes up: then all of it is dead."""

    def __init__(self, dies_at: int, *, after: bool) -> None:
        self._left = dies_at
        self._after = after
        self.is_dead = False

    def wrap(self, thing: Any) -> Any:
        mortal = self

        class Wrapped:
            def __getattr__(self, name: str) -> Any:
                found = getattr(thing, name)
                return mortal.guard(found) if asyncio.iscoroutinefunction(found) else found

        return Wrapped()

    def guard(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*args: Any, **named: Any) -> Any:
            if self.is_dead:
                raise Killed
            self._left -= 1
            self.is_dead = self._left == 0
            if self.is_dead and not self._after:
                raise Killed
            result = await call(*args, **named)
            if self.is_dead:
                raise Killed
            return result

        return guarded


def dies_before_sending(w: World) -> Any:
    """The sender of a process that ends just before its first broadcast."""
    mortal = Mortal(1, after=False)

    class DiesBeforeSending:
        def __getattr__(self, name: str) -> Any:
            found = getattr(w.account, name)
            return mortal.guard(found) if name == "broadcast" else found

    return DiesBeforeSending()


async def more_rounds(w: World, count: int) -> list[Challenge]:
    """The world's own round and others that are as ready to be scored."""
    addresses = [await closed(w.local) for _ in range(count)]
    for address in addresses:
        await w.local.send(w.local.owner, w.local.challenge(address), "advanceToScoring")
    return [w.challenge, *[await look_at_challenge(w.chain, address) for address in addresses]]


async def post_together(
    w: World, challenges: Sequence[Challenge], on_wait: Callable[[int], Awaitable[None]]
) -> list[Receipt]:
    """Each by a sender of its own, as other processes have them; who has waited least goes on first.

    The world moves only while all of them wait: `on_wait` is called with the seconds that have passed for everybody.
    """
    clocks = [Clock() for _ in challenges]
    asleep: dict[Clock, asyncio.Event] = {}

    async def pass_time_if_all_wait() -> None:
        if not clocks or len(asleep) < len(clocks):
            return
        seconds = min(clock.seconds for clock in clocks)
        await on_wait(int(seconds))
        for clock in [clock for clock in asleep if clock.seconds == seconds]:
            asleep.pop(clock).set()

    async def one(challenge: Challenge, clock: Clock) -> Receipt:
        async def meanwhile(_waits: int) -> None:
            asleep[clock] = woken = asyncio.Event()
            await pass_time_if_all_wait()
            await woken.wait()

        clock.on_wait = meanwhile
        sender = TransactionSender(w.account, w.store, clock.pace())
        receipt = await publish(challenge, decide(challenge), DIGEST, sender=sender)
        clocks.remove(clock)
        await pass_time_if_all_wait()
        return receipt

    return await asyncio.gather(*map(one, challenges, clocks))


async def foreign_transaction(w: World) -> None:
    """The evaluator's key, used by somebody else."""
    await local_send(w, {"from": w.account.address, "to": w.local.owner.address, "value": "0x1"})


async def local_send(w: World, transaction: dict[str, str]) -> None:
    tx_hash = await w.rpc("eth_sendTransaction", transaction)
    await w.local.node.receipts([tx_hash])


async def post_and_die(w: World, rpc_url: str, database: Path, last_step: str) -> int:
    """Post in a process of its own that gets SIGKILL right after its first `last_step`; its exit code."""
    environ = {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": rpc_url,
        "CLARA_EVALUATOR_KEY": w.local.evaluator.key,
        "CLARA_CHALLENGE_FACTORY": w.local.deployment.factory,
        "CLARA_DATABASE_URL": f"sqlite:///{database}",
    }
    async with StepWorkers(environ) as workers:
        return await workers.run("post", w.challenge.address, DIGEST, kill=f"after:{last_step}:1")
