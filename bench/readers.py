"""Measure the time from due to posted with 200 readers of pages, relative to that without.

A real service process (SQLite, pages and engine in one) evaluates rounds on a local chain with a fake model. During
every second round a separate process keeps 200 readers busy: each requests the next page as soon as it has the last
one. The figure is the ratio of the times within one run. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import aiohttp
from tests.support.chaos import ChaosPlan, World, post_challenge, world
from tests.support.web3_chain import as_web3

from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import HOUR

READERS = 200
TARGET = 2.0


async def main(*, quick: bool) -> int:
    plan = ChaosPlan(challenges=0, submissions=8, workers=1, kills=0, latency=0.05)
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        async with world(plan, f"sqlite:///{place}/bench.db") as made:
            made.environ["CLARA_PORT"] = str(port)
            await made.start_worker()
            address, _ = await _round(made, 0)  # a warm-up for imports and caches
            url = f"http://127.0.0.1:{port}"
            pages = [f"{url}/", f"{url}/challenges/{address}", f"{url}/api/v1/challenges/{address}/eval-trace"]
            quiet, loaded, read = [], [], 0
            for number in range(1, 2 if quick else 4):
                quiet.append((await _round(made, 2 * number))[1])
                readers = await _start_readers(pages)
                loaded.append((await _round(made, 2 * number + 1))[1])
                readers.terminate()
                read += int((await readers.communicate())[0])
    ratio = statistics.median(busy / calm for calm, busy in zip(quiet, loaded, strict=True))
    document = {
        "what": f"seconds from due to posted with {READERS} readers of pages and traces, over the seconds without",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "quietSeconds": [round(one, 2) for one in quiet],
        "loadedSeconds": [round(one, 2) for one in loaded],
        "pagesRead": read,
        "ok": ratio <= TARGET,
    }
    print(json.dumps(document, indent=2))
    return 0 if document["ok"] else 1


async def _round(made: World, number: int) -> tuple[Address, float]:
    address = await post_challenge(made.chain, made.plan, number)
    await made.chain.move_time(HOUR + 1)
    started = time.monotonic()
    posted = as_web3(made.chain.challenge(address)).functions.scorePostedAt()
    while not await posted.call():
        if time.monotonic() - started > 300:
            raise SystemExit(f"a round does not end\n{made.tail()}")
        await asyncio.sleep(0.05)
    return address, time.monotonic() - started


async def _start_readers(pages: Sequence[str]) -> asyncio.subprocess.Process:
    command = (sys.executable, __file__, "--read", *pages)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()  # the first pages are read
    return process


async def read_pages(pages: Sequence[str]) -> None:
    """Read pages until SIGTERM, then print their number."""
    stop, count = asyncio.Event(), 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=READERS)) as http:

        async def reader(number: int) -> None:
            nonlocal count
            while not stop.is_set():
                number += 1
                try:
                    async with http.get(pages[number % len(pages)]) as answer:
                        count += bool(await answer.read()) and answer.status == 200
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)

        tasks = [asyncio.create_task(reader(number)) for number in range(READERS)]
        await asyncio.sleep(3)
        print("ready", flush=True)
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--read", nargs="+", metavar="URL", help="the reading process")
    given = parser.parse_args()
    if given.read:
        asyncio.run(read_pages(given.read))
    else:
        sys.exit(asyncio.run(main(quick=given.quick)))
