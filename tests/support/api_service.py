"""A running API over a real SQLite store on a real port, with a scripted engine behind it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import aiohttp

from clara_eval.actions.published import ResultReader
from clara_eval.actions.review import Decree
from clara_eval.challenges.review import Objection
from clara_eval.config.settings import Settings, listed
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.core.hashing import keccak_hex
from clara_eval.documents.store_keys import (
    features_key,
    index_key,
    scores_key,
    status_key,
)
from clara_eval.evaluation.trace import TraceWriter, render
from clara_eval.interfaces.api.app import create_app
from clara_eval.interfaces.api.context import ApiContext
from clara_eval.interfaces.api.limits import Rates
from clara_eval.interfaces.serve import REQUEST_SECONDS, api_running
from clara_eval.service.metrics import Metrics, ServiceHealth
from clara_eval.service.requests import ServiceRequests
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import save_trace

Decision = Literal["approve", "reject"]
ADMIN = "admin-key-0123456789abcdef"
CHAIN = 31337
POSTED = Address("0x71c7656ec7ab88b098defb751b7401b5f6d8976f")
"""The address of the examples in the OpenAPI document, so that generated requests meet it."""
REVIEWED = Address("0x" + "b2" * 20)
QUIET = Address("0x" + "c3" * 20)
UNKNOWN = Address("0x" + "00" * 19 + "01")


@dataclass
class ScriptedEngine:
    """Knows the three challenges; remembers what it was asked."""

    asked: list[Address] = field(default_factory=list)
    decided: list[tuple[Address, Decision, str]] = field(default_factory=list)
    decided_by: list[str] = field(default_factory=list)
    ruled: list[Decree] = field(default_factory=list)

    async def request(self, address: Address) -> str:
        if address not in (POSTED, REVIEWED, QUIET):
            raise NotFound(f"No challenge {address} is on this chain.")
        self.asked.append(address)
        return f"evaluate:{CHAIN}:{address}:1"

    async def decide(
        self, address: Address, decision: Decision, reason: str, digest: str | None = None, by: str = ""
    ) -> None:
        if address != REVIEWED:
            raise BadInput(f"Challenge {address} does not wait for a review.")
        if digest is not None and digest != "0x" + "ab" * 32:
            raise BadInput("Another result waits.")
        self.decided.append((address, decision, reason))
        self.decided_by.append(by)

    async def object(self, address: Address, about: str, reason: str, signature: str) -> Objection:
        return Objection(address, about, reason, signature)

    async def reveal(self, address: Address, document: str, signature: str) -> str:
        if address != REVIEWED or not signature.startswith("0x"):
            raise BadInput(f"Challenge {address} has no hidden harness.")
        return keccak_hex(document.encode())

    async def rule(self, address: Address, decree: Decree, digest: str | None) -> None:
        if address != REVIEWED or digest is None:
            raise BadInput(f"Challenge {address} does not wait for a review of this result.")
        self.ruled.append(decree)


@dataclass
class Service:
    url: str
    store: SqlStore
    engine: ScriptedEngine
    health: ServiceHealth
    metrics: Metrics
    http: aiohttp.ClientSession
    listening: socket.socket

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        async with self.http.get(self.url + path, headers=headers) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **headers}
        async with self.http.post(self.url + path, data=data, headers=sent) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()


def summary(address: Address, title: str, deadline: int) -> dict[str, Any]:
    return {
        "address": address,
        "chainId": CHAIN,
        "title": title,
        "problemStatement": "Sort it.",
        "poster": "0x" + "11" * 20,
        "evaluator": "0x" + "22" * 20,
        "token": {"address": "0x" + "33" * 20, "symbol": "USDC", "decimals": 6},
        "prizePool": "1000000000",
        "winnerCount": 1,
        "payoutBps": [10000],
        "deadline": deadline,
        "scoringDeadline": deadline + 86400,
        "submissionCount": 2,
        "chainStatus": "scoring",
        "scorePostedAt": None,
        "postedBy": None,
        "block": 7,
    }


def scores(*, posted: bool) -> dict[str, Any]:
    row = {"agentId": 1, "score": 6000, "elo": 1550.5, "low": 1500.0, "high": 1600.0, "pTop": 0.9}
    return {
        "rankings": [
            {"address": "0x" + "44" * 20, "rank": 1, "wins": 2, "losses": 0, "ties": 0, "prizeAmount": "1000000000",
             "status": "ranked", "reason": None, **row},
        ],
        "winners": [{"account": "0x" + "44" * 20, "prizeAmount": "1000000000"}],
        "margin": {"place": 1, "probability": 0.9, "word": "clear", "sentence": "<b>one</b> over two at place 1."},
        "consistency": {"swap": 1.0},
        "flags": [
            {"code": "toss_up", "severity": "warn", "sentence": "<i>A toss-up</i>", "account": None, "evidence": {}}
        ],
        "traceDigest": "0x" + "ab" * 32,
        "txHash": "0x" + "cd" * 32 if posted else None,
        "postedBy": "evaluator" if posted else None,
        "outcome": "confirmed" if posted else None,
        "publishedAt": 1790000000 if posted else None,
    }  # fmt: skip


def status(name: str, progress: int) -> dict[str, Any]:
    return {
        "status": name,
        "progress": progress,
        "startedAt": 1,
        "updatedAt": 2,
        "reason": None,
        "retryAt": None,
        "stage": None,
    }


async def fill(store: SqlStore) -> None:
    """One posted challenge, one that waits for a review, and one that nobody evaluated yet."""
    rows: list[tuple[str, Any]] = [
        (index_key(POSTED), summary(POSTED, "<script>alert(1)</script>", 300)),
        (status_key(POSTED), status("complete", 100)),
        (scores_key(POSTED), scores(posted=True)),
        (features_key(POSTED, "0x" + "44" * 20), {"features": {"parses": True, "tests": 3, "style": "<u>flat</u>"}}),
        (index_key(REVIEWED), summary(REVIEWED, "Waits", 200)),
        (status_key(REVIEWED), status("review", 95)),
        (scores_key(REVIEWED), scores(posted=False)),
        (index_key(QUIET), summary(QUIET, "", 100)),
    ]
    await store.put_many(CHAIN, [(key, json.dumps(value)) for key, value in rows])
    for address in (POSTED, REVIEWED):
        writer = TraceWriter()
        lines = [writer.line(f"entry/{number}", {"text": "x" * 1000}) for number in range(3000)]
        await save_trace(store, CHAIN, address, render(lines, writer.digest), writer.digest)


async def _beat(health: ServiceHealth) -> None:
    while True:
        await asyncio.sleep(5)
        health.beating()


@asynccontextmanager
async def running_service(
    folder: Path,
    *,
    rates: Rates | None = None,
    request_seconds: float = REQUEST_SECONDS,
    filled: bool = True,
    **environ: str,
) -> AsyncIterator[Service]:
    settings = Settings.from_env({"CLARA_ADMIN_API_KEY": ADMIN, **environ})
    store = await SqliteStore.open(folder / "api.db")
    if filled:
        await fill(store)
    engine, health, metrics = ScriptedEngine(), ServiceHealth("all", 300), Metrics("test")
    reader = ResultReader(store, CHAIN, settings.traces_public)
    app = create_app(ApiContext(settings, reader, metrics, health, cast("ServiceRequests", engine)), rates=rates)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        proxies = listed(settings.trusted_proxies)
        async with (
            api_running(app, listening, proxies=proxies, request_seconds=request_seconds),
            aiohttp.ClientSession() as http,
        ):
            beating = asyncio.create_task(_beat(health))
            yield Service(url, store, engine, health, metrics, http, listening)
            beating.cancel()
    await store.close()
