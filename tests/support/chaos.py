"""A world for chaos: a real node, real databases, many due challenges, real worker processes that get killed.

Comes in: how many challenges, workers and kills. Goes out: a report of what happened on the chain and at the model's
endpoint. `problems` says what is wrong with it: every challenge posted exactly once, no answer paid twice but those in
flight at a kill, every trace verified. Nothing is faked but the model, and that answers over HTTP and counts.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.support.fake_endpoint import FakeEndpoint, Fault, Seen
from tests.support.nursery import Forked, Nursery
from tests.support.scripted_judge import scripted_words
from tests.support.together import submit_together
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.app import App, open_app
from clara_eval.chain.model import scoring_function
from clara_eval.challenges.challenge_index import read_document
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import (
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
    local_chain,
)
from clara_eval.documents.store_keys import status_key
from clara_eval.store.trace_archive import stream_trace

JUST_ANSWERED_SECONDS = 1.0
"""An answer that left the endpoint this shortly before a kill may not have reached the store."""
RANDOM = "random moment"
NAMED_SECONDS = 40.0
"""Who is to die at a named step has so long to come to it."""
EVENT_SECONDS = 10.0
"""So long an event is waited for before the next one's turn."""
AFTER_A_DEATH = frozenset({"engine_started", "workflow_taken_over"})
"""What workers say only when one has died before."""
GOES_ON = ("workflow_taken_over", "evaluation_queued", "attempt_ended")
"""What the process after a dead one says when it is at work."""
RESUME_SECONDS = 30.0
"""So soon after a kill the next process on the same machine is at work."""
_WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "juniper", "knoll", "lagoon",
          "meadow", "north", "ocean", "prairie", "quarry", "ridge", "summit", "tundra")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    challenges: int
    submissions: int
    workers: int
    kills: int
    """From outside, at random moments."""
    database_restarts: int = 0
    seed: int = 1
    latency: float = 0.15
    patience_seconds: float = 120
    kill_points: tuple[str, ...] = ()
    """Where workers kill themselves, each once: `kill_points.KILL_POINTS`."""
    restart_events: tuple[str, ...] = ()
    """The database is restarted at once when a worker says one of these, in turn."""
    life_seconds: tuple[float, float] = (20, 30)
    """A worker that is to die is killed from outside when it has turned for so long, wherever it is."""
    worker_only: bool = False
    """Without the API, which takes half of a start."""
    by_rules: bool = False
    """Rounds that no model is asked about."""
    answers_between: tuple[int, int] = (4, 20)
    """Random kills come after so many more answers, so that they hit work under way, whatever the machine's speed."""


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
    takeovers: int = 0
    seconds: float = 0.0
    statuses: dict[str, str] = field(default_factory=dict)
    resumed_after: list[float] = field(default_factory=list)
    """From a kill to the next process at work, in seconds, where there was one process and work left."""
    killed_at: Counter[str] = field(default_factory=Counter)
    restarted_at: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    """What kept us from counting."""

    def problems(self) -> list[str]:
        """What must hold and does not."""
        found = [f"{address}: posted {count} times" for address, count in self.posts_on_chain.items() if count != 1]
        if self.posted != self.challenges:
            found.append(f"{self.posted} of {self.challenges} challenges are posted")
        if self.reverted_transactions:
            found.append(f"{self.reverted_transactions} transactions reverted")
        if self.paid_again > self.allowed_again:
            found.append(
                f"{self.paid_again} answers were paid again, of which {self.allowed_again} were in flight at kills"
            )
        found += [f"went on {after:.0f} s after a kill" for after in self.resumed_after if after > RESUME_SECONDS]
        found += [self.broken] if self.broken else []
        found += [f"{address}: {status}" for address, status in self.statuses.items() if status != "complete"]
        if self.traces_verified != self.challenges:
            found.append(f"{self.traces_verified} of {self.challenges} traces verify")
        return found


class CountingEndpoint(FakeEndpoint):
    """The scripted judge behind HTTP; knows from when to when it worked on each answer that it delivered."""

    def __init__(self, *, latency: float) -> None:
        super().__init__(latency=latency, words=scripted_words)
        self._delivered: dict[str, list[tuple[float, float]]] = {}

    async def _deliver(self, request: web.Request, seen: Seen, fault: Fault | None) -> web.StreamResponse:
        response = await super()._deliver(request, seen, fault)
        now = time.monotonic()
        self._delivered.setdefault(seen.text, []).append((now - self.latency, now))
        return response

    @property
    def last_answer_at(self) -> float:
        return max(end for spans in self._delivered.values() for _, end in spans)

    def paid_again(self, troubles: Sequence[tuple[float, float]]) -> tuple[int, int]:
        """Answers that were paid once more, and of how many the earlier one had been on its way at a trouble."""
        earlier = [span for spans in self._delivered.values() for span in spans[:-1]]
        hit = sum(
            any(first <= end + JUST_ANSWERED_SECONDS and begin <= last for first, last in troubles)
            for begin, end in earlier
        )
        return len(earlier), hit


@dataclass(slots=True)
class Worker:
    process: Forked
    log: Path
    death: str | None
    """The point at which it kills itself, or `RANDOM`; None lives."""
    answers: int = 0
    """Killed from outside when the endpoint has given so many answers."""
    life_seconds: float = 0.0
    """Or when it has turned for so long."""
    dies_at: float | None = None
    killed_before_at: float | None = None
    """When the process was killed whose work this one takes up, until it has."""

    def has_gone_on(self) -> bool:
        """Whether it says that it is at work."""
        said = self.log.read_text()
        return any(f'"event": "{event}"' in said for event in GOES_ON)

    def is_overdue(self, answers: int) -> bool:
        if self.death is None or self.process.end is not None:
            return False
        if self.dies_at is None and "engine_started" in self.log.read_text():
            self.dies_at = time.monotonic() + (self.life_seconds if self.death == RANDOM else NAMED_SECONDS)
        is_met = self.death == RANDOM and answers >= self.answers
        return self.dies_at is not None and (is_met or time.monotonic() >= self.dies_at)


@dataclass(slots=True)
class Ground:
    """What many worlds stand on, one after the other: a chain and a nursery."""

    chain: LocalChain
    nursery: Nursery


@dataclass(slots=True)
class World:
    plan: ChaosPlan
    ground: Ground
    endpoint: CountingEndpoint
    environ: dict[str, str]
    addresses: list[Address]
    logs: Path
    rng: random.Random
    first_block: int
    """The first at which anything could be posted."""
    workers: list[Worker] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    deaths: list[str] = field(default_factory=list)
    """What the next workers die of."""
    troubles: list[tuple[float, float]] = field(default_factory=list)
    """From when to when something was killed or restarted."""
    _posted: set[Address] = field(default_factory=set)

    @property
    def chain(self) -> LocalChain:
        return self.ground.chain

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.environ)

    async def start_worker(self, killed_before_at: float | None = None) -> None:
        """One more process; its log is kept for whoever has to look."""
        log = self.logs / f"worker-{len(list(self.logs.iterdir())):03}.log"
        log.touch()
        death = self.deaths.pop(0) if self.deaths else None
        point = {} if death in (None, RANDOM) else {"CHAOS_KILL_AT": str(death)}
        answers = self.endpoint.paid + self.rng.randint(*self.plan.answers_between)
        life = self.rng.uniform(*self.plan.life_seconds)
        process = await self.ground.nursery.fork({**self.environ, **point}, log)
        self.workers.append(Worker(process, log, death, answers, life, killed_before_at=killed_before_at))

    async def look_after(self) -> None:
        """Kill whose time has come; like a supervisor, start another in the place of each that ended."""
        for worker in list(self.workers):
            if worker.killed_before_at is not None and worker.has_gone_on():
                self.report.resumed_after.append(time.monotonic() - worker.killed_before_at)
                worker.killed_before_at = None
            if worker.is_overdue(self.endpoint.paid):
                await self.kill(worker)
            if (end := worker.process.end) is None:
                continue
            self.workers.remove(worker)
            was_killed = end.code == -signal.SIGKILL
            if was_killed:
                self.troubles.append((end.at, end.at))
                self.report.kills += 1
                self.report.killed_at[worker.death or RANDOM] += 1
            else:
                self.report.ended_themselves += 1
                self.deaths[:0] = [worker.death] if worker.death else []
            await self.start_worker(end.at if was_killed and self.plan.workers == 1 else None)

    async def kill(self, worker: Worker) -> None:
        """SIGKILL from outside, now."""
        worker.death = RANDOM
        worker.process.send_signal(signal.SIGKILL)
        await worker.process.wait()

    async def waiting(self) -> list[Address]:
        """Challenges without a post."""
        for address in self.addresses:
            if (
                address not in self._posted
                and await as_web3(self.chain.challenge(address)).functions.scorePostedAt().call()
            ):
                self._posted.add(address)
        return [address for address in self.addresses if address not in self._posted]

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
async def ground(submissions: int, nursery: Nursery) -> AsyncIterator[Ground]:
    """A chain for rounds of so many."""
    async with local_chain(AnvilOptions(accounts=submissions + 3)) as chain:
        for agent in chain.agents:
            await chain.register(agent)
        yield Ground(chain, nursery)


@asynccontextmanager
async def world(plan: ChaosPlan, database_url: str) -> AsyncIterator[World]:
    """Everything up and every challenge past its deadline; no worker yet."""
    async with (
        Nursery.running() as nursery,
        ground(plan.submissions, nursery) as base,
        world_on(base, plan, database_url) as made,
    ):
        yield made


@asynccontextmanager
async def world_on(base: Ground, plan: ChaosPlan, database_url: str) -> AsyncIterator[World]:
    """The same on a chain that is there, which is afterwards as it was."""
    chain = base.chain
    async with AsyncExitStack() as stack:
        snapshot = await chain.snapshot()
        stack.push_async_callback(chain.revert, snapshot)
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
            **({"CHAOS_WORKER_ONLY": "1"} if plan.worker_only else {}),
        }
        made = World(
            plan,
            base,
            endpoint,
            environ,
            addresses,
            logs,
            random.Random(plan.seed),
            await web3_of(chain).eth.block_number,
        )
        stack.push_async_callback(made.stop_workers)
        yield made


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
    terms = PostedTerms(
        challenge_uri=uri, eval_config_hash=config_hash(config.encode()), prize_pool=100 * USDC, payout_bps=(10000,),
        open_seconds=HOUR,
    )  # fmt: skip
    address = await chain.post_challenge(terms)
    handed = [_text(chain, plan, number, place) for place in range(plan.submissions)]
    await (submit_together(chain, address, handed) if plan.by_rules else chain.submit_all(address, handed))
    return address


def _text(chain: LocalChain, plan: ChaosPlan, number: int, place: int) -> Handed:
    rng = random.Random(f"{plan.seed}:{number}:{place}")
    # Short where there are hundreds of rounds: the node writes its whole state down with each block.
    words, count = (3, 2 + place) if plan.by_rules else (12, 12)
    lines = [" ".join(rng.choices(_WORDS, k=words)) for _ in range(count)]
    text = "\n".join([*lines, f"depth: {100 + 10 * place}", f"clarity: {200 + 7 * place}"])
    from base64 import b64encode

    uri = "data:text/plain;base64," + b64encode(text.encode()).decode()
    return Handed(chain.agents[place], uri, keccak_hex(text.encode()))


async def run_chaos(made: World, restart_database: Callable[[], None] | None = None) -> Report:
    """Kill, restart, wait until everything is posted and written down, then count."""
    plan = made.plan
    started = time.monotonic()
    until = started + plan.patience_seconds
    made.deaths = [*plan.kill_points, *[RANDOM] * plan.kills]
    made.rng.shuffle(made.deaths)
    for _ in range(plan.workers):
        await made.start_worker()
    if restart_database is not None:
        await _restarts(made, restart_database, until)
    async with open_app(made.settings) as app:
        while not await _is_written_down(made, app) and time.monotonic() < until:
            await _looking_after(made, 0.5)
        await made.stop_workers()
        made.report.seconds = round(time.monotonic() - started, 1)
        await _count(made, app)
    return made.report


async def _looking_after(made: World, seconds: float) -> None:
    """Look after the workers for a moment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await made.look_after()
        await asyncio.sleep(0.05)


async def _restarts(made: World, restart_database: Callable[[], None], until: float) -> None:
    """Restart the database as soon as a worker says what it waits for, again and again, while there is work."""
    events, plan = made.plan.restart_events or ("tick_ended",), made.plan
    turns = cycle(events)
    while made.report.database_restarts < plan.database_restarts and time.monotonic() < until and await made.waiting():
        event = next(turns)
        if event in AFTER_A_DEATH and made.report.database_restarts:
            await made.kill(made.rng.choice(made.workers))
        if not await _more_said(made, event):
            continue
        began = time.monotonic()
        await asyncio.to_thread(restart_database)
        made.troubles.append((began, time.monotonic()))
        made.report.database_restarts += 1
        made.report.restarted_at[event] += 1


async def _more_said(made: World, event: str) -> bool:
    """Wait until a worker says this once more; False where none does for a while."""
    before, until = made.said(event), time.monotonic() + EVENT_SECONDS
    while made.said(event) == before:
        await made.look_after()
        await asyncio.sleep(0.01)
        if time.monotonic() > until:
            return False
    return True


async def _is_written_down(made: World, app: App) -> bool:
    """The last post is on the chain, and its worker says so."""
    found = [await read_document(app.store, app.chain_id, status_key(address)) for address in made.addresses]
    return all(status is not None and status["status"] == "complete" for status in found)


async def _count(made: World, app: App) -> None:
    report, endpoint = made.report, made.endpoint
    report.challenges = len(made.addresses)
    report.takeovers = made.said("workflow_taken_over")
    report.requests, report.paid = len(endpoint.seen), endpoint.paid
    report.distinct = len(endpoint.paid_by_text)
    report.paid_again, report.allowed_again = endpoint.paid_again(made.troubles)
    report.posts_on_chain, report.transactions, report.reverted_transactions = await _posts(made)
    report.posted = sum(count == 1 for count in report.posts_on_chain.values())
    for address in made.addresses:
        status = await read_document(app.store, app.chain_id, status_key(address)) or {"status": "none"}
        report.statuses[address] = f"{status['status']} {status.get('reason') or ''}".strip()
        report.traces_verified += await _verifies(app, address)


async def _posts(made: World) -> tuple[dict[str, int], int, int]:
    """Posts a challenge, and the evaluator's transactions, from every block of the chain."""
    web3, posts = web3_of(made.chain), dict.fromkeys(map(str, made.addresses), 0)
    sent = reverted = 0
    for number in range(made.first_block, await web3.eth.block_number + 1):
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
