"""The service in one process, with a real chain and a model endpoint that stumbles: what it counts is what happened."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import aiohttp

from clara_eval.engine.board import read_document
from clara_eval.engine.options import EngineOptions
from clara_eval.publish.send import Pace
from clara_eval.service import serving
from clara_eval.settings import Settings
from clara_eval.testing.chaos import Plan, world
from clara_eval.testing.fake_endpoint import Fault
from clara_eval.trace.names import status_key

FAST = EngineOptions(tick_cron="0 0 1 1 *", tick_seconds=300, poll_seconds=0.05, beat_seconds=0.2, lease_seconds=5)


async def test_every_call_to_a_model_is_counted_with_how_it_ended_and_how_long_it_took(tmp_path: Path) -> None:
    """Two rate limits and one outage stand beside the answers in /metrics, and the histogram holds all of them."""
    async with world(Plan(challenges=1, submissions=3, workers=0, kills=0), f"sqlite:///{tmp_path}/service.db") as made:
        limit = Fault("status", 429, {"retry-after": "0"})
        faults = {0: limit, 1: Fault("status", 500), 2: limit}
        made.endpoint.script = lambda seen: faults.get(seen.number)
        settings = Settings.from_env(made.environ)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            async with serving(settings, listening, mode="all", options=FAST, pace=Pace(poll_seconds=0.02)) as engine:
                address = made.addresses[0]
                for _ in range(600):
                    status = await read_document(engine.app.store, engine.app.chain_id, status_key(address)) or {}
                    if status.get("status") == "complete":
                        break
                    await asyncio.sleep(0.05)
                url = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
                async with aiohttp.ClientSession() as http, http.get(url) as answer:
                    text = await answer.text()
    counted: dict[str, float] = {}
    for result, value in re.findall(r'clara_llm_calls_total\{.*result="(\w+)"\} ([\d.]+)', text):
        counted[result] = counted.get(result, 0) + float(value)
    assert status["status"] == "complete"
    assert (counted["rate_limited"], counted["failed"]) == (2, 1)
    assert counted["end"] == made.endpoint.paid
    (timed,) = re.findall(r"clara_llm_seconds_count\{.*\} ([\d.]+)", text)
    assert float(timed) == made.endpoint.paid + 3
