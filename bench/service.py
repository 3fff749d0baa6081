"""Load the API during evaluations; target: no errors, and less than 10 % slower evaluations.

A real service process evaluates rounds on a local chain with a fake model (50 ms per answer). Every second round a
separate process requests its status 200 times per second. The figure is the ratio of the times within one run, so a
busy machine slows both sides. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from tests.support.chaos import ChaosPlan, World, post_challenge, world
from tests.support.web3_chain import as_web3

from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import HOUR

RATE = 200
TARGET = 1.10


@dataclass(frozen=True, slots=True)
class Round:
    seconds: float
    requests: int = 0
    errors: int = 0
    p99_ms: float = 0.0
    asked_seconds: float = 0.0


async def main(*, quick: bool) -> int:
    submissions, pairs = (14, 2) if quick else (24, 4)
    plan = ChaosPlan(challenges=0, submissions=submissions, workers=1, kills=0, latency=0.05)
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        async with world(plan, f"sqlite:///{place}/bench.db") as made:
            made.environ["CLARA_PORT"] = str(port)
            await made.start_worker()
            url = f"http://127.0.0.1:{port}"
            await _until(lambda: _answers(f"{url}/healthz"))
            await _round(made, url, 0, loaded=False)  # a warm-up for imports and caches
            rounds = [await _round(made, url, number, loaded=number % 2 == 0) for number in range(1, 2 * pairs + 1)]
    return _tell(rounds[0::2], rounds[1::2])


def _tell(quiet: list[Round], loaded: list[Round]) -> int:
    ratios = [busy.seconds / calm.seconds for calm, busy in zip(quiet, loaded, strict=True)]
    ratio = statistics.median(ratios)
    errors = sum(one.errors for one in loaded)
    asked = sum(one.requests for one in loaded)
    rate = asked / sum(one.asked_seconds for one in loaded)
    document = {
        "what": f"evaluation time with {RATE} requests/s on eval-status, over the time without",
        "ratio": round(ratio, 3),
        "target": TARGET,
        "ratios": [round(one, 3) for one in ratios],
        "quietSeconds": [round(one.seconds, 2) for one in quiet],
        "loadedSeconds": [round(one.seconds, 2) for one in loaded],
        "requests": asked,
        "requestsPerSecond": round(rate, 1),
        "errors": errors,
        "p99Ms": max(one.p99_ms for one in loaded),
        "ok": ratio < TARGET and errors == 0,
    }
    print(json.dumps(document, indent=2))
    return 0 if document["ok"] else 1


async def _round(made: World, url: str, number: int, *, loaded: bool) -> Round:
    """Time one challenge at the model's endpoint, from its first request to its last response."""
    address = await post_challenge(made.chain, made.plan, number)
    target = f"{url}/api/v1/challenges/{address}/eval-status"
    await _until(lambda: _answers(target))
    loading = await _load(target) if loaded else None
    before = len(made.endpoint.seen)
    await made.chain.move_time(HOUR + 1)
    await _until(lambda: _is_asked(made, before), 0.002)
    started = time.monotonic()
    await _until(lambda: _is_posted(made, address))
    seconds = made.endpoint.last_answer_at - started
    if loading is None:
        return Round(seconds)
    loading.terminate()
    output, _ = await loading.communicate()
    said: dict[str, Any] = json.loads(output)
    return Round(seconds, said["requests"], said["errors"], said["p99Ms"], said["seconds"])


async def _until(holds: Callable[[], Awaitable[bool]], pause: float = 0.05) -> None:
    for _ in range(int(300 / pause)):
        if await holds():
            return
        await asyncio.sleep(pause)
    raise SystemExit("a round does not end")


async def _answers(target: str) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(target) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _is_asked(made: World, before: int) -> bool:
    return len(made.endpoint.seen) > before


async def _is_posted(made: World, address: Address) -> bool:
    return bool(await as_web3(made.chain.challenge(address)).functions.scorePostedAt().call())


async def _load(target: str) -> asyncio.subprocess.Process:
    """Start the load process, and return once its first request was answered."""
    command = (sys.executable, __file__, "--load", target)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def load(target: str) -> None:
    """Send RATE requests per second until SIGTERM, then print the result."""
    import signal

    stop, times, errors = asyncio.Event(), list[float](), 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    running: set[asyncio.Task[None]] = set()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as http:

        async def ask() -> None:
            nonlocal errors
            began = time.monotonic()
            try:
                async with http.get(target) as answer:
                    await answer.read()
                    errors += answer.status != 200
            except aiohttp.ClientError:
                errors += 1
            times.append(time.monotonic() - began)

        await ask()
        print("ready", flush=True)
        began, asked = time.monotonic(), 0
        while not stop.is_set():
            while asked < (time.monotonic() - began) * RATE:
                task = asyncio.create_task(ask())
                running.add(task)
                task.add_done_callback(running.discard)
                asked += 1
            await asyncio.sleep(0.005)
        seconds = time.monotonic() - began
        await asyncio.gather(*running)
    times.sort()
    p99 = times[int(len(times) * 0.99) - 1] * 1000 if times else 0.0
    print(json.dumps({"requests": len(times), "errors": errors, "p99Ms": round(p99, 1), "seconds": seconds}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--load", metavar="URL", help="the asking process")
    given = parser.parse_args()
    if given.load:
        asyncio.run(load(given.load))
    else:
        sys.exit(asyncio.run(main(quick=given.quick)))
