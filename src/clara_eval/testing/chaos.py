"""A world for chaos: a real node, real databases, many due challenges, real worker processes that get killed.

Comes in: how many challenges, workers and kills. Goes out: a report of what happened on the chain and at the model's
endpoint. `check` says what is wrong with it: every challenge posted exactly once, no request paid twice beyond those in
flight at a kill, every trace verified. Nothing is faked but the model, and that answers over HTTP and counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from clara_eval.app import App, open_app
from clara_eval.challenge.model import Address
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import HOUR, USDC, Handed, LocalChain, Terms, local_chain
from clara_eval.errors import ClaraError
from clara_eval.eval_config import build_metadata, config_hash
from clara_eval.hashing import keccak_hex
from clara_eval.pipeline.replay import check_trace
from clara_eval.publish.calldata import scoring_function
from clara_eval.records.challenge_index import read_document
from clara_eval.settings import Settings
from clara_eval.testing.fake_endpoint import FakeEndpoint
from clara_eval.testing.scripted_judge import scripted_words
from clara_eval.trace.archive import stream_trace
from clara_eval.trace.store_keys import status_key

JUST_ANSWERED_SECONDS = 0.5
"""An answer that left the endpoint this shortly before a kill may not have reached the store."""
_WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "juniper", "knoll", "lagoon",
          "meadow", "north", "ocean", "prairie", "quarry", "ridge", "summit", "tundra")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    challenges: int
    submissions: int
    workers: int
    kills: int
    database_restarts: int = 0
    seed: int = 1
    latency: float = 0.15
    patience_seconds: float = 120
    kill_points: tuple[str, ...] = ()
    """Where workers kill themselves, one after the other, each once: `kill_points.POINTS`."""
    restart_events: tuple[str, ...] = ()
    """The database is restarted at once when a worker says one of these, in turn."""
    by_rules: bool = False
    """Rounds that no model is asked about."""
    answers_between: tuple[int, int] = (4, 20)
    """Troubles come after so many more answers, so that they hit work under way, whatever the machine's speed."""


@dataclass(slots=True)
class Report:
    challenges: int = 0
    posted: int = 0
    posts_on_chain: dict[str, int] = field(default_factory=dict)
    reverted_transactions: int = 0
    transactions: int = 0
    kills: int = 0
    ended_themselves: int = 0
    database_restarts: int = 0
    requests: int = 0
    paid: int = 0
    distinct: int = 0
    paid_again: int = 0
    allowed_again: int = 0
    traces_verified: int = 0
    chunks: int = 0
    takeovers: int = 0
    seconds: float = 0.0
    statuses: dict[str, str] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """What must hold and does not."""
        found = [f"{address}: posted {count} times" for address, count in self.posts_on_chain.items() if count != 1]
        if self.posted != self.challenges:
            found.append(f"{self.posted} of {self.challenges} challenges are posted")
        if self.reverted_transactions:
            found.append(f"{self.reverted_transactions} transactions reverted")
        if self.paid_again > self.allowed_again:
            found.append(f"{self.paid_again} answers were paid again, {self.allowed_again} were in flight at kills")
        if self.traces_verified != self.challenges:
            found.append(f"{self.traces_verified} of {self.challenges} traces verify")
        return found


class CountingEndpoint(FakeEndpoint):
    """The scripted judge behind HTTP; also knows what is in flight now, and when it last answered."""

    def __init__(self, *, latency: float) -> None:
        super().__init__(latency=latency, words=scripted_words)
        self.in_flight = 0
        self.answered: list[float] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        try:
            return await super()._answer(request)
        finally:
            # Also when the client was killed: such a request is over.
            self.in_flight -= 1
            self.answered.append(time.monotonic())


class Nursery:
    """One process that has imported everything and forks the workers (`chaos_worker --nursery`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pids: asyncio.Queue[int] = asyncio.Queue()
        self.ended: dict[int, int] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Nursery]:
        command = (sys.executable, "-m", "clara_eval.testing.chaos_worker", "--nursery")
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        made = cls(process)
        try:
            yield made
        finally:
            process.terminate()
            await process.wait()
            await made._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "pid" in said:
                self._pids.put_nowait(said["pid"])
            else:
                self.ended[said["ended"]] = said["code"]

    async def fork(self, environ: dict[str, str], log: Path) -> Forked:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"environ": environ, "log": str(log)}).encode() + b"\n")
        await self._process.stdin.drain()
        return Forked(await asyncio.wait_for(self._pids.get(), 120), self)


@dataclass(frozen=True, slots=True)
class Forked:
    """A worker's process, as its nursery knows it."""

    pid: int
    nursery: Nursery

    @property
    def returncode(self) -> int | None:
        return self.nursery.ended.get(self.pid)

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    async def wait(self) -> int:
        while (code := self.returncode) is None:  # noqa: ASYNC110 - another process's child
            await asyncio.sleep(0.02)
        return code


@dataclass(frozen=True, slots=True)
class Worker:
    process: Forked
    log: Path

    @property
    def is_turning(self) -> bool:
        return self.process.returncode is None and "engine_started" in self.log.read_text()


@dataclass(slots=True)
class World:
    plan: ChaosPlan
    chain: LocalChain
    endpoint: CountingEndpoint
    environ: dict[str, str]
    addresses: list[Address]
    logs: Path
    nursery: Nursery
    workers: list[Worker] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    points: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.environ)

    async def start_worker(self) -> None:
        """One more process; its log is kept for whoever has to look."""
        log = self.logs / f"worker-{len(list(self.logs.iterdir())):03}.log"
        log.touch()
        point = {"CHAOS_KILL_AT": self.points.pop(0)} if self.points else {}
        self.workers.append(Worker(await self.nursery.fork({**self.environ, **point}, log), log))

    async def kill_one(self, rng: random.Random) -> None:
        """SIGKILL a random worker that has begun to work, and start another in its place."""
        while not (turning := [worker for worker in self.workers if worker.is_turning]):  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.2)
        victim = rng.choice(turning)
        self.allow()
        victim.process.send_signal(signal.SIGKILL)
        await victim.process.wait()
        self.workers.remove(victim)
        self.report.kills += 1
        await self.start_worker()

    async def waiting(self) -> list[Address]:
        """Challenges without a post."""
        posted = [await self.chain.challenge(address).functions.scorePostedAt().call() for address in self.addresses]
        return [address for address, at in zip(self.addresses, posted, strict=True) if not at]

    async def replace_ended(self) -> None:
        """What a supervisor does: a worker that ended by itself, because it was declared dead, is started again."""
        for worker in [worker for worker in self.workers if worker.process.returncode is not None]:
            self.workers.remove(worker)
            if worker.process.returncode == -signal.SIGKILL:
                self.allow()
                self.report.kills += 1
            else:
                self.report.ended_themselves += 1
            await self.start_worker()

    def allow(self) -> None:
        """Whatever is in flight now, or was answered a moment ago, may be paid again."""
        now = time.monotonic()
        recent = sum(now - at < JUST_ANSWERED_SECONDS for at in self.endpoint.answered[-1000:])
        self.report.allowed_again += self.endpoint.in_flight + recent

    async def stop_workers(self) -> None:
        processes = [worker.process for worker in self.workers]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                await process.wait()

    def said(self, event: str) -> int:
        """How often the workers logged this event."""
        return sum(path.read_text().count(f'"event": "{event}"') for path in self.logs.iterdir())

    def tail(self) -> str:
        """The ends of the workers' logs."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.logs.iterdir()))


@asynccontextmanager
async def world(plan: ChaosPlan, database_url: str) -> AsyncIterator[World]:
    """Everything up and every challenge past its deadline; no worker yet."""
    async with AsyncExitStack() as stack:
        chain = await stack.enter_async_context(local_chain(AnvilOptions(accounts=plan.submissions + 3)))
        endpoint = CountingEndpoint(latency=plan.latency)
        await stack.enter_async_context(endpoint.running())
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clara-chaos-")))
        addresses = [await post_challenge(chain, plan, number) for number in range(plan.challenges)]
        await chain.move_time(HOUR + 1)
        judge = f"openai:scripted@{endpoint.url}"
        environ = {
            "CLARA_NETWORK": "local",
            "CLARA_RPC_URL": chain.rpc_url,
            "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
            "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
            "CLARA_EVALUATOR_KEY": chain.evaluator.key,
            "CLARA_DATABASE_URL": database_url,
            "CLARA_JUDGES": judge,
            "CLARA_PRICES": f"{judge}=1/2",
            "OPENAI_API_KEY": "not-a-real-key",
            "CLARA_MAX_CONCURRENCY": "8",
            "CLARA_BUDGET_PER_POSTER_DAY_USD": "1000000",
            "CLARA_BUDGET_PER_MONTH_USD": "1000000",
            "CLARA_PORT": "0",
        }
        nursery = await stack.enter_async_context(Nursery.running())
        made = World(plan, chain, endpoint, environ, addresses, logs, nursery)
        try:
            yield made
        finally:
            await made.stop_workers()


async def post_challenge(chain: LocalChain, plan: ChaosPlan, number: int) -> Address:
    """One challenge with its submissions; no two challenges ask the same questions."""
    names, source = (("words", "lines"), "measured") if plan.by_rules else (("depth", "clarity"), "llm")
    config = json.dumps(
        {
            "version": 1,
            "features": [
                {"name": name, "type": "integer", "min": 0, "max": 1000, "better": "higher", "source": source}
                for name in names
            ],
            "criteria": f"The deepest and clearest text of round {number} wins.",
            "submissionFormat": "text",
            **({"judge": "rules"} if plan.by_rules else {}),
        }
    )
    uri = build_metadata(title=f"Round {number}", problem_statement="Write.", skills=(), config_text=config)
    terms = Terms(
        challenge_uri=uri, eval_config_hash=config_hash(config.encode()), prize_pool=100 * USDC, payout_bps=(10000,),
        open_seconds=HOUR,
    )  # fmt: skip
    address = await chain.post_challenge(terms)
    await chain.submit_all(address, [_text(chain, plan, number, place) for place in range(plan.submissions)])
    return address


def _text(chain: LocalChain, plan: ChaosPlan, number: int, place: int) -> Handed:
    rng = random.Random(f"{plan.seed}:{number}:{place}")
    lines = [" ".join(rng.choices(_WORDS, k=12)) for _ in range(12 + place if plan.by_rules else 12)]
    text = "\n".join([*lines, f"depth: {100 + 10 * place}", f"clarity: {200 + 7 * place}"])
    from base64 import b64encode

    uri = "data:text/plain;base64," + b64encode(text.encode()).decode()
    return Handed(chain.agents[place], uri, keccak_hex(text.encode()))


async def run_chaos(made: World, restart_database: Callable[[], None] | None = None) -> Report:
    """Kill, restart, wait until everything is posted, then count."""
    plan, rng = made.plan, random.Random(made.plan.seed)
    started = time.monotonic()
    made.points = list(plan.kill_points)
    for _ in range(plan.workers):
        await made.start_worker()
    troubles = ["kill"] * plan.kills + ["database"] * (plan.database_restarts if restart_database else 0)
    rng.shuffle(troubles)
    until = started + plan.patience_seconds
    for trouble in troubles:
        if trouble == "database" and plan.restart_events:
            event = plan.restart_events[made.report.database_restarts % len(plan.restart_events)]
            await _more_said(made, event, until)
        else:
            await _more_answers(made, rng.randint(*plan.answers_between), until)
        if trouble == "kill":
            await made.kill_one(rng)
        elif restart_database is not None:
            made.allow()
            await asyncio.to_thread(restart_database)
            made.report.database_restarts += 1
    await _all_posted(made, until)
    await made.stop_workers()
    made.report.seconds = round(time.monotonic() - started, 1)
    async with open_app(made.settings) as app:
        await _count(made, app)
    return made.report


async def _more_answers(made: World, count: int, until: float) -> None:
    target = made.endpoint.paid + count
    while made.endpoint.paid < target and time.monotonic() < until:
        await made.replace_ended()
        if not await made.waiting():
            return
        await asyncio.sleep(0.05)


async def _more_said(made: World, event: str, until: float) -> None:
    """Wait until a worker says this once more."""
    before = made.said(event)
    while made.said(event) == before and time.monotonic() < until and await made.waiting():
        await made.replace_ended()
        await asyncio.sleep(0.01)


async def _all_posted(made: World, until: float) -> None:
    while await made.waiting() and time.monotonic() < until:
        await made.replace_ended()
        await asyncio.sleep(0.5)
    # The last post is on the chain; its worker still has to write that down.
    await asyncio.sleep(2)


async def _count(made: World, app: App) -> None:
    report, endpoint = made.report, made.endpoint
    report.challenges = len(made.addresses)
    report.chunks, report.takeovers = made.said("chunk_asked"), made.said("workflow_taken_over")
    report.requests, report.paid = len(endpoint.seen), endpoint.paid
    report.distinct = len(endpoint.paid_by_text)
    report.paid_again = sum(times - 1 for times in endpoint.paid_by_text.values())
    report.posts_on_chain, report.transactions, report.reverted_transactions = await _posts(made)
    report.posted = sum(count == 1 for count in report.posts_on_chain.values())
    for address in made.addresses:
        status = await read_document(app.store, app.chain_id, status_key(address)) or {"status": "none"}
        report.statuses[address] = f"{status['status']} {status.get('reason') or ''}".strip()
        report.traces_verified += await _verifies(app, address)


async def _posts(made: World) -> tuple[dict[str, int], int, int]:
    """Posts a challenge, and the evaluator's transactions, from every block of the chain."""
    web3, posts = made.chain.web3, dict.fromkeys(map(str, made.addresses), 0)
    sent = reverted = 0
    for number in range(made.chain.deployment.from_block, await web3.eth.block_number + 1):
        block = await web3.eth.get_block(number, full_transactions=True)
        for tx in _transactions(block["transactions"]):
            if tx["from"].lower() != made.chain.evaluator.address:
                continue
            sent += 1
            receipt = await web3.eth.get_transaction_receipt(tx["hash"])
            if not receipt["status"]:
                reverted += 1
            elif bytes(tx["input"])[:4] == scoring_function("postScores").selector:
                posts[tx["to"].lower()] += 1
    return posts, sent, reverted


def _transactions(listed: Sequence[Any]) -> Sequence[Any]:
    return listed


async def _verifies(app: App, address: Address) -> bool:
    pieces = [piece async for piece in stream_trace(app.store, app.chain_id, address)]
    try:
        checked = await check_trace("".join(pieces).splitlines(keepends=True), app.chain)
    except ClaraError:
        return False
    return checked.posted is not None
