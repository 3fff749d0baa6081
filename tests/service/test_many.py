"""A factory with many challenges: what is over costs a tick nothing, whatever their number."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.service.test_engine import settings_of

from clara_eval.app import App, open_app
from clara_eval.chain.model import Challenge
from clara_eval.core.address import Address
from clara_eval.devnet.demo.round import post_round
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.documents.results import Summary, Token, read
from clara_eval.documents.rounds import PaidWinner, RoundResult
from clara_eval.documents.store_keys import index_key, result_key, status_key
from clara_eval.service.alerts import Alerts
from clara_eval.service.metrics import Metrics
from clara_eval.service.tick import ANNOUNCED, RECORDED, Ticker, TickReport

MANY = 300


class Counted:
    """The real store, with a count of what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)


async def finished(app: App, count: int) -> None:
    """So many challenges that are over: half of them ours, half another evaluator's. No contract stands there."""
    for number in range(count):
        address = f"0x{number + 1:040x}"
        ours = number % 2 == 0
        summary = Summary(
            address=address,
            chainId=app.chain_id,
            title="Over",
            problemStatement="",
            poster="0x" + "aa" * 20,
            evaluator=app.evaluator if ours else "0x" + "ee" * 20,
            token=Token(address="0x" + "bb" * 20, symbol="USDC", decimals=6, isKnown=True),
            prizePool="1",
            winnerCount=1,
            payoutBps=[10_000],
            deadline=1,
            scoringDeadline=2,
            submissionCount=0,
            chainStatus="finalized",
            scorePostedAt=None,
            postedBy=None,
            block=1,
        )
        rows = [(ANNOUNCED + address, "1"), (index_key(address), summary.model_dump_json())]
        told = [(status_key(address), json.dumps({"status": "complete", "progress": 100}))] if ours else []
        await app.store.put_many(app.chain_id, [*rows, *told, (RECORDED + address, "")])


async def ticked(app: App, *, starts: bool = False) -> tuple[TickReport, Counter[str]]:
    started: list[Address] = []

    async def start(challenge: Challenge) -> None:
        started.append(challenge.address)

    counted = Counted(app.store)
    store: Any = counted
    metrics = Metrics()
    report = await Ticker(replace(app, store=store), Alerts(metrics), metrics, start).tick()
    assert bool(started) == starts
    return report, counted.calls


async def test_what_is_over_costs_later_ticks_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Three hundred finished challenges are read once; then a tick asks the store as often as without them, looks at
    none of them on the chain, and still counts them.
    """
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await post_round(local_chain)
        await ticked(app)
        before, alone = await ticked(app)
        await finished(app, MANY)
        first, noting = await ticked(app)
        later, beside = await ticked(app)
    assert noting["get"] >= MANY
    assert beside == alone
    assert first.problems == later.problems == before.problems
    assert later.statuses.get("complete", 0) == before.statuses.get("complete", 0) + MANY // 2
    assert sum(later.statuses.values()) == sum(before.statuses.values()) + MANY


async def test_a_result_waits_for_no_others_that_have_no_news(local_chain: LocalChain, tmp_path: Path) -> None:
    """However many challenges wait to be finalized with their results written down, a new result is recorded next."""
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        address_of_new = await post_round(local_chain)
        await local_chain.move_time(HOUR + 1)
        await finished(app, 30)
        for number in range(30):  # they come first in the index, and nothing of them can be read on the chain
            address = f"0x{number + 1:040x}"
            summary = await read(app.store, app.chain_id, Summary, index_key(address))
            assert summary is not None
            waiting = summary.model_copy(update={"chainStatus": "scoring", "scorePostedAt": 5})
            winner = PaidWinner(agentId=1, address="0x" + "cc" * 20, score=1, prizeAmount="1")
            known = RoundResult(chainStatus="scoring", token=summary.token, entrants=[], winners=[winner], isOver=False)
            rows = [(index_key(address), waiting.model_dump_json()), (result_key(address), known.model_dump_json())]
            await app.store.put_many(app.chain_id, rows)
            await app.store.driver.fetch("DELETE FROM public_keys WHERE key = ?", (RECORDED + address,))
        await ticked(app, starts=True)
        found = await read(app.store, app.chain_id, RoundResult, result_key(address_of_new))
    assert found is not None
    assert (found.chainStatus, found.entrants) == ("open", [])
