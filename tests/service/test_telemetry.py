"""Spans arrive at a collector as OTLP, with the GenAI names and without anybody's words; an absent collector is harmless."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from tests.support.collector import Collector, collecting, facts

from clara_eval.service.metrics import Telemetry


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as made:
        yield made


async def test_calls_and_evaluations_become_spans(collector: Collector) -> None:
    """Their names, durations and results are there; a failure is an error; the endpoint of a model is not told."""
    telemetry = Telemetry(collector.url, "1.2.3", 84532)
    telemetry.record_call("openai:qwen3@https://secret.example/v1", "comparison", "end", 0.5)
    telemetry.record_call("anthropic:claude-x", "features", "rate_limited", 0.1)
    telemetry.record_evaluation("0xabc", "confirmed", 12.5)
    await asyncio.to_thread(telemetry.close)
    asked, limited, round_ = collector.spans
    assert (asked.name, facts(asked)["gen_ai.request.model"]) == ("chat qwen3", "qwen3")
    assert (facts(asked)["gen_ai.provider.name"], facts(asked)["clara.purpose"]) == ("openai", "comparison")
    assert (limited.status.code, asked.status.code) == (2, 0)
    assert (asked.end_time_unix_nano - asked.start_time_unix_nano) // 10**6 == 500
    assert (round_.name, facts(round_)["clara.challenge"]) == ("evaluate", "0xabc")
    assert [event.name for event in round_.events] == ["gen_ai.evaluation.result"]
    assert (collector.service["service.name"], collector.service["service.version"]) == ("clara-eval", "1.2.3")
    assert "secret.example" not in str(collector.spans)


async def test_a_collector_that_is_away_costs_nothing() -> None:
    """A call waits less than 0.1 s for it, the end of the process at most 40 s, and nothing is raised."""
    telemetry = Telemetry("http://127.0.0.1:9/v1/traces", "1", 1)
    telemetry.record_call("openai:m", "comparison", "end", 0.1)  # the first one also imports
    begun = time.perf_counter()
    telemetry.record_call("openai:m", "comparison", "end", 0.1)
    assert time.perf_counter() - begun < 0.1
    await asyncio.wait_for(asyncio.to_thread(telemetry.close), 40)
