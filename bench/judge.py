"""Compare the cost of our judging layer with the bare SDK and raw HTTP, on a fake endpoint.

The endpoint responds to every request after 50 ms in its own process. Each client runs in its own process too: 4,950
pairs, 64 in flight. `bare` is the official OpenAI SDK on its aiohttp transport with ready-made requests; `ours` is the
tournament with everything on: schedule, prompts, request hashes, look-up, budget, SQLite journal, strict reading of
verdicts; `raw` is aiohttp with these requests as ready-made bytes, and its responses are not parsed. The runs
alternate, and the medians count. Prints one JSON document; targets: CPU per call <= 1.3 x bare and <= 3 x raw, wall
time <= 1.25 x raw.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from clara_eval.config.eval_config import compile_schema, parse_eval_config
from clara_eval.judge.comparison import JudgeVector, ModelJudge, make_vector
from clara_eval.judge.port import Asker, PaidAnswer, Prompt
from clara_eval.judge.structured_llm import StructuredLlm

LATENCY = 0.05
AT_ONCE = 64
MODEL = "bench"
TARGET = 1.3
RAW_CPU_TARGET, RAW_WALL_TARGET = 3.0, 1.25
"""Ratios to raw aiohttp with ready-made bodies, which hashes, stores and checks nothing."""
LEFT_OVER_TARGET = 64.0
"""Bytes per pair that may stay allocated after the results are deleted."""
CRITERIA = "The best solution minimises gas while it stays correct. Novel approaches count; trivial ones do not."
CONFIG = {
    "version": 1,
    "features": ["correctness", "gas_efficiency", "novelty", "edge_case_handling", "code_readability", "has_tests",
                 {"name": "throughput", "type": "number", "min": 0, "max": 1000, "better": "higher"}],
    "criteria": CRITERIA,
}  # fmt: skip


def vectors(items: int) -> dict[str, JudgeVector]:
    """Return distinct typed vectors, so that every pair is a distinct request."""
    schema, _ = compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))
    return {
        f"0x{number:040x}": make_vector(
            schema,
            {
                "correctness": number % 5,
                "gas_efficiency": number // 5 % 5,
                "novelty": number // 25 % 5,
                "edge_case_handling": number % 3,
                "code_readability": number % 4,
                "has_tests": number % 2 == 0,
                "throughput": number,
            },
        )
        for number in range(items)
    }


class _Listening(Asker):
    """An asker that only records the prompts, so that the bare client sends equal texts."""

    name = "bench"

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt, attempt: int = 0) -> PaidAnswer:  # noqa: ARG002 - the port's shape
        self.prompts.append(prompt)
        raise _Noted


class _Noted(Exception):
    pass


async def prompts_of(items: int) -> list[Prompt]:
    schema, _ = compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))
    listening = _Listening()
    judge = ModelJudge(StructuredLlm(listening), CRITERIA, schema)
    shown = list(vectors(items).values())
    for place, first in enumerate(shown):
        for second in shown[place + 1 :]:
            try:
                await judge.compare(first, second)
            except _Noted:
                continue
    return listening.prompts


def requests_of(prompts: list[Prompt]) -> list[dict[str, Any]]:
    """Return request bodies equal to those of our adapter."""
    return [
        {
            "model": MODEL,
            "messages": [{"role": "system", "content": p.system}, {"role": "user", "content": p.user}],
            "max_tokens": p.max_tokens,
            "temperature": 0,
            "seed": 1,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "v", "strict": True, "schema": json.loads(p.schema_json)},
            },
        }
        for p in prompts
    ]


async def bare(root: str, items: int) -> tuple[int, float, float]:
    """Run the SDK as its documentation shows it."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    requests = requests_of(await prompts_of(items))
    client: Any = AsyncOpenAI(api_key="k", base_url=f"{root}/v1", http_client=DefaultAioHttpClient(), max_retries=0)

    async def one(request: dict[str, Any]) -> int:
        answer = await client.chat.completions.create(**request)
        return len(answer.choices[0].message.content)

    await one(requests[0])
    try:
        return await _timed(requests, one)
    finally:
        await client.close()


async def post(root: str, items: int) -> tuple[int, float, float]:
    """Run the SDK's `post` as our adapter uses it; the difference to `ours` is the cost of our layer."""
    from httpx2 import Response
    from openai import AsyncOpenAI, DefaultAioHttpClient

    requests = requests_of(await prompts_of(items))
    client = AsyncOpenAI(api_key="k", base_url=f"{root}/v1", http_client=DefaultAioHttpClient(), max_retries=0)

    async def one(request: dict[str, Any]) -> int:
        answer = await client.post("/chat/completions", cast_to=Response, body=request)
        return len(json.loads(answer.content)["choices"][0]["message"]["content"])

    await one(requests[0])
    try:
        return await _timed(requests, one)
    finally:
        await client.close()


async def raw(root: str, items: int) -> tuple[int, float, float]:
    import aiohttp

    bodies = [json.dumps(request).encode() for request in requests_of(await prompts_of(items))]
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as session:

        async def one(body: bytes) -> int:
            async with session.post(f"{root}/v1/chat/completions", data=body) as response:
                return len(await response.read())

        return await _timed(bodies, one)


async def inspect(root: str, items: int) -> tuple[int, float, float]:
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig, get_model

    config = GenerateConfig(max_connections=AT_ONCE, temperature=0, seed=1, max_tokens=300)
    model = get_model(f"openai/{MODEL}", base_url=f"{root}/v1", api_key="k", config=config, responses_api=False)
    asked = [[ChatMessageSystem(content=p.system), ChatMessageUser(content=p.user)] for p in await prompts_of(items)]

    async def one(messages: list[Any]) -> int:
        return len((await model.generate(messages)).completion)

    return await _timed(asked, one)


async def _timed(requests: list[Any], one: Callable[[Any], Awaitable[int]]) -> tuple[int, float, float]:
    """Run 64 workers over the requests; return calls, wall seconds and CPU seconds."""
    waiting = iter(requests)

    async def work() -> None:
        for request in waiting:
            assert await one(request) > 0

    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return len(requests), time.perf_counter() - wall, time.process_time() - cpu


async def ours(root: str, items: int) -> tuple[int, float, float]:
    """Run the tournament as in the service, with its GC settings, on an empty journal."""
    with tempfile.TemporaryDirectory() as folder:
        hold = await tournament(root, items, Path(folder))
        gc.freeze()  # as the service does
        gc.set_threshold(20_000, 10, 10)
        wall, cpu = time.perf_counter(), time.process_time()
        played = await hold()
        return len(played), time.perf_counter() - wall, time.process_time() - cpu


async def tournament(root: str, items: int, folder: Path) -> Callable[[], Awaitable[Any]]:
    from clara_eval.evaluation.play import play_tournament
    from clara_eval.judge.costs.budgets import PriceCard, RunBudget
    from clara_eval.judge.providers.openai import OpenAiLlm
    from clara_eval.judge.retrying_llm import Gate, RetryingLlm, RetryPolicy
    from clara_eval.judge.structured_llm import CachedLlm
    from clara_eval.ranking.results import Field
    from clara_eval.ranking.schedule import Fixed
    from clara_eval.store.sqlite import SqliteStore

    schema, _ = compile_schema(parse_eval_config(json.dumps(CONFIG).encode()))
    shown = vectors(items)
    store = await SqliteStore.open(folder / "bench.db")
    llm = OpenAiLlm(MODEL, api_key="k", base_url=f"{root}/v1")
    card = PriceCard(3_000_000, 15_000_000, 300_000, 3_750_000)
    budget = RunBudget(cap_micro_usd=1_000_000_000)
    policy = RetryPolicy(deadline=asyncio.get_running_loop().time() + 3600)
    line = CachedLlm(RetryingLlm(llm, budget, card, policy, Gate(AT_ONCE)), store, "bench")
    judge = ModelJudge(StructuredLlm(line), CRITERIA, schema)

    async def run() -> Any:
        played = await play_tournament(Fixed(Field(tuple(shown), ("j",))), {"j": judge}, shown, at_once=AT_ONCE)
        assert all(comparison.winner for comparison in played)
        assert line.llm.answered == len(played)
        await llm.close()
        await store.close()
        return played

    return run


async def memory(root: str, items: int) -> tuple[int, float, float]:
    """Return traced bytes of the results, and those that stay allocated after their deletion."""
    with tempfile.TemporaryDirectory() as folder:
        hold = await tournament(root, items, Path(folder))
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        played = await hold()
        gc.collect()
        full = tracemalloc.get_traced_memory()[0]
        pairs = len(played)
        del played
        gc.collect()
        return pairs, full - before, tracemalloc.get_traced_memory()[0] - before


PARTS = {"bare": bare, "post": post, "raw": raw, "ours": ours, "inspect": inspect, "memory": memory}


def run_part(part: str, root: str, items: int) -> None:
    calls, first, second = asyncio.run(PARTS[part](root, items))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"calls": calls, "first": first, "second": second, "rssMb": round(peak, 1)}))


def measured(part: str, root: str, items: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--root", root, "--items", str(items)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def row(runs: list[dict[str, Any]]) -> dict[str, Any]:
    calls = runs[0]["calls"]
    wall = statistics.median(run["first"] for run in runs)
    cpu = statistics.median(run["second"] for run in runs)
    return {
        "calls": calls,
        "wallSeconds": round(wall, 3),
        "efficiency": round(calls * LATENCY / AT_ONCE / wall, 3),
        "cpuMsPerCall": round(1000 * cpu / calls, 3),
        "rssMb": max(run["rssMb"] for run in runs),
    }


def compare(root: str, items: int, repeats: int) -> dict[str, Any]:
    clients = ["raw", "post", "bare", "ours"] + (["inspect"] if importlib.util.find_spec("inspect_ai") else [])
    runs: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
    for _ in range(repeats):
        for client in clients:
            print(f"  {client} …", file=sys.stderr, flush=True)
            runs[client].append(measured(client, root, items))
    table = {client: row(found) for client, found in runs.items()}
    # Consecutive runs see a similar load of the machine, so ratios are taken pair by pair.
    ratio, layer = (_ratio(runs["ours"], runs[other]) for other in ("bare", "post"))
    cpu, wall = _ratio(runs["ours"], runs["raw"]), _ratio(runs["ours"], runs["raw"], "first")
    return {
        "clients": table,
        "cpuRatioToBare": ratio,
        "cpuRatioToBarePost": layer,
        "target": TARGET,
        "pass": ratio <= TARGET,
        "beside raw aiohttp": [
            {"what": "CPU a call", "target": RAW_CPU_TARGET, "measured": cpu, "pass": cpu <= RAW_CPU_TARGET},
            {"what": "wall time", "target": RAW_WALL_TARGET, "measured": wall, "pass": wall <= RAW_WALL_TARGET},
        ],
    }


def _ratio(these: list[dict[str, Any]], those: list[dict[str, Any]], of: str = "second") -> float:
    ratios = [float(a[of] * b["calls"] / (b[of] * a["calls"])) for a, b in zip(these, those, strict=True)]
    return round(statistics.median(ratios), 3)


def growth(root: str, small: int, large: int) -> dict[str, Any]:
    """Return the bytes that each pair adds: in its result, and beyond it."""
    few, many = measured("memory", root, small), measured("memory", root, large)
    more = many["calls"] - few["calls"]
    results, left = ((many[key] - few[key]) / more for key in ("first", "second"))
    return {
        "pairs": [few["calls"], many["calls"]],
        "bytesPerPairInResults": round(results - left),
        "bytesPerPairBeyond": round(left, 1),
        "target": LEFT_OVER_TARGET,
        "pass": left <= LEFT_OVER_TARGET,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer pairs and repeats")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--root", default="")
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    if asked.part:
        run_part(asked.part, asked.root, asked.items)
        return
    command = [sys.executable, "-m", "tests.support.fake_endpoint", "0", str(LATENCY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            root = json.loads(server.stdout.readline())["root"]
            items, repeats = (30, 1) if asked.quick else (asked.items, asked.repeats)
            result = {"latencySeconds": LATENCY, "inFlight": AT_ONCE, **compare(root, items, repeats)}
            result["memory"] = growth(root, *((30, 50) if asked.quick else (30, 90)))
            print(json.dumps(result, indent=2))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
