"""The service in one process, with a real chain and a model endpoint: it counts what happened, and it keeps its time."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from tests.support.chaos import ChaosPlan, World, world
from tests.support.collector import collecting, facts
from tests.support.fake_endpoint import Fault
from tests.support.half_open import half_open
from tests.support.service_cases import FAST, free_socket
from tests.support.web3_chain import as_web3

from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.challenge_index import read_document
from clara_eval.config.settings import Settings
from clara_eval.documents.store_keys import scores_key, status_key
from clara_eval.interfaces.serve import serving
from clara_eval.service.engine import Engine


@asynccontextmanager
async def service_of(made: World, **environ: str) -> AsyncIterator[tuple[Engine, str]]:
    settings = Settings.from_env({**made.environ, **environ})
    with free_socket() as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with serving(
            settings, listening, mode="all", options=FAST, pace=SendTimeouts(poll_seconds=0.02)
        ) as engine:
            yield engine, url


async def metrics_at_the_end(made: World, engine: Engine, url: str) -> str:
    """The page of metrics once the first challenge is complete."""
    for _ in range(1200):
        status = await read_document(engine.app.store, engine.app.chain_id, status_key(made.addresses[0])) or {}
        if status.get("status") == "complete":
            break
        await asyncio.sleep(0.05)
    assert status["status"] == "complete", status
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        return await answer.text()


async def test_every_call_to_a_model_is_counted_with_how_it_ended_and_how_long_it_took(tmp_path: Path) -> None:
    """Two rate limits and one outage stand beside the answers in /metrics, and the histogram holds all of them; each
    call and the evaluation are a span at the collector that CLARA_OTLP_URL names.
    """
    plan = ChaosPlan(challenges=1, submissions=3, workers=0, kills=0)
    async with world(plan, f"sqlite:///{tmp_path}/service.db") as made, collecting() as collector:
        limit = Fault("status", 429, {"retry-after": "0"})
        faults = {0: limit, 1: Fault("status", 500), 2: limit}
        made.endpoint.script = lambda seen: faults.get(seen.number)
        async with service_of(made, CLARA_OTLP_URL=collector.url) as (engine, url):
            ended = asyncio.Event()
            engine.metrics.evaluation_listeners.append(lambda *_: ended.set())
            text = await metrics_at_the_end(made, engine, url)
            await asyncio.wait_for(ended.wait(), 60)
    counted: Counter[str] = Counter()
    for result, value in re.findall(r'clara_llm_calls_total\{.*result="(\w+)"\} ([\d.]+)', text):
        counted[result] += int(float(value))
    assert counted == {"rate_limited": 2, "failed": 1, "end": made.endpoint.paid}
    (timed,) = re.findall(r"clara_llm_seconds_count\{.*\} ([\d.]+)", text)
    assert float(timed) == made.endpoint.paid + 3
    spans = Counter(span.name for span in collector.spans)
    assert spans == {"chat scripted": made.endpoint.paid + 3, "evaluate": 1}
    (evaluated,) = [facts(span) for span in collector.spans if span.name == "evaluate"]
    assert (evaluated["clara.challenge"], evaluated["clara.result"]) == (made.addresses[0], "complete")


async def test_short_of_time_it_asks_less_and_posts_with_a_quarter_of_the_window_left(tmp_path: Path) -> None:
    """Found four minutes before the quarter line, twelve entries are ranked by fewer games and posted before it."""
    plan = ChaosPlan(challenges=1, submissions=12, workers=0, kills=0, latency=0.0)
    async with world(plan, f"sqlite:///{tmp_path}/service.db") as made:
        contract = made.chain.challenge(made.addresses[0])
        closes = await as_web3(contract).functions.deadline().call()
        ends = await as_web3(contract).functions.scoringDeadline().call()
        quarter_line = ends - (ends - closes) // 4
        await made.chain.move_time(quarter_line - 240 - await made.chain.now())
        async with service_of(made, CLARA_MAX_CONCURRENCY="2", CLARA_REVIEW_DOUBT_USD="none") as (engine, url):
            text = await metrics_at_the_end(made, engine, url)
            scores = await read_document(engine.app.store, engine.app.chain_id, scores_key(made.addresses[0]))
            posted = await as_web3(contract).functions.scorePostedAt().call()
    assert 'clara_degraded_total{how="fewer_pairs"} 1.0' in text
    assert scores is not None
    assert scores["schedule"]["name"] == "fours"
    assert 11 <= scores["schedule"]["games"] <= 12 * 11 // 2
    assert closes < posted <= quarter_line


async def test_a_round_is_posted_while_hundreds_of_requests_are_half_sent(tmp_path: Path) -> None:
    """Whoever opens connections and never ends a request keeps nobody from a post, nor from an answer."""
    plan = ChaosPlan(challenges=1, submissions=3, workers=0, kills=0, by_rules=True)
    async with (
        world(plan, f"sqlite:///{tmp_path}/service.db") as made,
        service_of(made) as (engine, url),
        half_open(url, 300),
    ):
        assert "clara_ticks_total" in await metrics_at_the_end(made, engine, url)
