"""A service on a local chain and a real store, and rounds for it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eth_utils.address import to_checksum_address
from tests.support.rounds import closed_round

from clara_eval.app import App, open_app
from clara_eval.chain.model import Challenge
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.challenge_index import read_document
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import HOUR, USDC, LocalChain
from clara_eval.documents.results import Summary, Token
from clara_eval.documents.store_keys import index_key, status_key
from clara_eval.service.due import EngineOptions, TickReport
from clara_eval.service.engine import Engine
from clara_eval.service.loop import run_tick
from clara_eval.service.metrics import Alerts, Metrics
from clara_eval.service.record import RECORDED
from clara_eval.service.survey import ANNOUNCED

FAST = EngineOptions(
    tick_cron="0 0 1 1 *", tick_seconds=300, poll_seconds=0.15, beat_seconds=0.2, lease_seconds=2, retry_seconds=1,
    worker_evaluations=4,
)  # fmt: skip
PACE = SendTimeouts(poll_seconds=0.02, lease_seconds=2)


@dataclass
class Turning:
    engine: Engine
    app: App

    async def status(self, address: Address) -> dict[str, Any]:
        return await read_document(self.app.store, self.app.chain_id, status_key(address)) or {"status": "none"}

    async def until(self, address: Address, *wanted: str) -> dict[str, Any]:
        """Wait for one of these statuses; there is always another tick."""

        async def reached() -> bool:
            return (await self.status(address))["status"] in wanted

        await eventually(reached)
        return await self.status(address)


def raised(metrics: Metrics) -> set[str]:
    """The alerts that were counted at least once."""
    return alerts_in(metrics.render().decode())


def alerts_in(page: str) -> set[str]:
    lines = [line for line in page.splitlines() if line.startswith("clara_alerts_total{")]
    assert lines, "every alert is listed, most of them with 0"
    return {line.split('"')[1] for line in lines if not line.endswith(" 0.0")}


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    for _ in range(int(seconds / 0.05)):
        if await holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


def settings_of(chain: LocalChain, place: Path, **environ: str) -> Settings:
    return Settings.from_env(
        {
            "CLARA_NETWORK": "local",
            "CLARA_RPC_URL": chain.rpc_url,
            "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
            "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
            "CLARA_EVALUATOR_KEY": chain.evaluator.key,
            "CLARA_DATABASE_URL": f"sqlite:///{place}/engine.db",
            **environ,
        }
    )


@asynccontextmanager
async def turning(settings: Settings, **options: Any) -> AsyncIterator[Turning]:
    metrics = Metrics()
    async with open_app(settings, pace=PACE) as app:
        engine = Engine(app, metrics, Alerts(metrics), options=FAST, **options)
        async with engine.running():
            yield Turning(engine, app)


def checksum_of(chain: LocalChain, index: int) -> Any:
    return to_checksum_address(chain.agents[index].address)


async def posted_round(chain: LocalChain) -> Address:
    """A due round whose poster has posted the scores."""
    address = await closed_round(chain)
    contract = chain.challenge(address)
    await chain.send(chain.poster, contract, "advanceToScoring")
    prizes = zip(range(3), (300 * USDC, 125 * USDC, 75 * USDC), strict=True)
    winners = [(checksum_of(chain, index), 0, 1, prize) for index, prize in prizes]
    await chain.send(chain.poster, contract, "postScores", winners)
    return address


class Counted:
    """The real store, with a count of what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)


def summary_of(app: App, address: str, *, ours: bool = True, **changes: Any) -> Summary:
    """What the index says about a challenge; no contract is there."""
    token = Token(address="0x" + "bb" * 20, symbol="USDC", decimals=6, isKnown=True)
    base = Summary(
        address=address, chainId=app.chain_id, title="Listed", problemStatement="", poster="0x" + "aa" * 20,
        evaluator=app.evaluator if ours else "0x" + "ee" * 20, token=token, prizePool="1", winnerCount=1,
        payoutBps=[10_000], deadline=1, scoringDeadline=2, submissionCount=0, chainStatus="finalized", postedBy=None,
        block=1,
    )  # fmt: skip
    return base.model_copy(update=changes)


async def finished(app: App, count: int) -> None:
    """List so many challenges that are over: half of them ours, half another evaluator's."""
    for number in range(count):
        address, ours = f"0x{number + 1:040x}", number % 2 == 0
        summary = summary_of(app, address, ours=ours)
        rows = [(ANNOUNCED + address, "1"), (index_key(address), summary.model_dump_json())]
        told = [(status_key(address), json.dumps({"status": "complete", "progress": 100}))] if ours else []
        await app.store.put_many(app.chain_id, [*rows, *told, (RECORDED + address, "")])


async def still_open(app: App, count: int) -> None:
    """List so many challenges of ours that were read before and are open."""
    deadline = (await app.chain.blocks.head()).timestamp + 24 * HOUR
    rows: list[tuple[str, str]] = []
    for address in (f"0x{2**80 + number:040x}" for number in range(count)):
        summary = summary_of(app, address, chainStatus="open", deadline=deadline, scoringDeadline=deadline + HOUR)
        rows += [(ANNOUNCED + address, "1"), (index_key(address), summary.model_dump_json())]
    await app.store.put_many(app.chain_id, rows)


async def ticked(app: App, *, starts: bool = False) -> tuple[TickReport, Counter[str]]:
    started: list[Address] = []

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    counted = Counted(app.store)
    store: Any = counted
    metrics = Metrics()
    report = await run_tick(replace(app, store=store), Alerts(metrics), metrics, start)
    assert bool(started) == starts
    return report, counted.calls
