"""Scale: a large round by rules, the looks of a tick, and how many rounds a minute a service posts.

Each part runs in a process of its own, so that its CPU seconds and memory can be read. `round`: 1,000 entries by rules
with everything on (copies, features, ranking, trace, documents, SQLite), then `verify` of its trace. `tick`: a tick
beside ten thousand finished and ten thousand open challenges over one without them. `service`: due challenges of 25
entries by rules, on SQLite with one worker and on Postgres with one, two and three. Prints one JSON document,
target beside measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

CPU_SECONDS, MEGABYTES, TRACE_MEGABYTES, VERIFY_SECONDS = 12.0, 300.0, 10.0, 10.0
TICK_MICROSECONDS = 25.0
"""To read its key in a list of keys; nothing of it is looked at."""
FINISHED = 10_000


async def large_round(place: Path, entries_count: int) -> dict[str, Any]:
    """Walk, file and publish one round, as an evaluation does between the chain and the post."""
    from clara_eval.hashing import plain_json
    from clara_eval.pipeline.public_documents import plots_document, public_keys, scores_document
    from clara_eval.pipeline.record import entries
    from clara_eval.store.sqlite import SqliteStore
    from clara_eval.testing.large_round import PLAN_BY_RULES, large_challenge, walk_large
    from clara_eval.trace.archive import save_trace, stream_trace
    from clara_eval.trace.document import TraceWriter, render
    from clara_eval.trace.store_keys import plots_key, scores_key

    challenge = large_challenge(entries_count)
    store = await SqliteStore.open(place / "round.db")
    before = time.process_time()
    walked = await walk_large(challenge)
    writer = TraceWriter()
    lines = [writer.line(key, body) for key, body in entries(challenge, PLAN_BY_RULES, walked)]
    await save_trace(store, challenge.chain_id, challenge.address, render(lines, writer.digest), writer.digest)
    keys = public_keys(challenge, walked, extracted_at=1)
    keys.append((plots_key(challenge.address), plain_json(plots_document(walked, writer.digest))))
    scores = scores_document(challenge, walked, writer.digest, None)
    keys.append((scores_key(challenge.address), plain_json(scores)))
    await store.put_many(challenge.chain_id, keys)
    cpu = time.process_time() - before
    with (place / "trace.json").open("w", encoding="utf-8", newline="\n") as file:
        async for piece in stream_trace(store, challenge.chain_id, challenge.address):
            file.write(piece)
    await store.close()
    return {
        "entries": entries_count,
        "ranked": len(walked.ranking.standings) if walked.ranking else 0,
        "comparisons": len(walked.comparisons),
        "cpuSeconds": round(cpu, 2),
        "traceMegabytes": round((place / "trace.json").stat().st_size / 1e6, 2),
        "documents": len(keys),
    }


async def verified(place: Path) -> dict[str, Any]:
    from clara_eval.pipeline.replay import check_trace

    before = time.process_time()
    with (place / "trace.json").open(encoding="utf-8", newline="\n") as lines:
        checked = await check_trace(lines)
    return {"cpuSeconds": round(time.process_time() - before, 2), "entries": checked.entries}


async def ticks(place: Path, finished_count: int) -> dict[str, Any]:
    """CPU seconds of ticks beside so many finished and as many open challenges, and of the same without them."""
    from clara_eval.app import open_app
    from clara_eval.demo.lifecycle import local_settings
    from clara_eval.demo.round import post_round
    from clara_eval.devnet.local_chain import local_chain
    from clara_eval.engine.test_many import finished, ticked
    from clara_eval.engine.test_resting import at_rest
    from clara_eval.testing.faulty_node import FaultyNode

    async with local_chain() as chain, FaultyNode(chain.rpc_url) as node:
        await post_round(chain)
        settings = local_settings(chain, place / "tick.db", place).model_copy(update={"rpc_url": node.url})
        async with open_app(settings) as app:

            async def mean() -> tuple[float, int, int]:
                await ticked(app)
                before, count = time.process_time(), 5
                calls = [sum((await ticked(app))[1].values()) for _ in range(count)]
                cpu = (time.process_time() - before) / count
                node.calls.clear()
                await ticked(app)
                return cpu, calls[-1], node.calls.total()

            alone, calls_alone, requests_alone = await mean()
            await finished(app, finished_count)
            beside, calls_beside, _ = await mean()
            await at_rest(app, finished_count)
            beside_open, _, requests_open = await mean()
    return {
        "finished": finished_count,
        "open": finished_count,
        "cpuMsWithOpen": round(1000 * beside_open, 1),
        "requests": requests_open,
        "requestsWithout": requests_alone,
        "cpuMs": round(1000 * beside, 1),
        "cpuMsWithout": round(1000 * alone, 1),
        "storeCalls": calls_beside,
        "storeCallsWithout": calls_alone,
    }


async def service(place: Path, challenges: int, entries_count: int, workers: int, kind: str) -> dict[str, Any]:
    """Rounds a minute from the first post to the last, with real worker processes on a real chain."""
    from clara_eval.testing.chaos import ChaosPlan, world
    from clara_eval.testing.databases import running_postgres

    plan = ChaosPlan(challenges, entries_count, workers, kills=0, by_rules=True)
    with ExitStack() as stack:
        if kind == "postgres":
            url = stack.enter_context(running_postgres()).get_uri()
        else:
            url = f"sqlite:///{place}/service.db"
        async with world(plan, url) as made:
            started = time.monotonic()
            for _ in range(workers):
                await made.start_worker()
            first = await _posted(made, 1)
            last = await _posted(made, challenges)
    minutes = max(last - first, 1e-9) / 60
    return {
        "store": kind,
        "workers": workers,
        "challenges": challenges,
        "entries": entries_count,
        "roundsPerMinute": round((challenges - 1) / minutes, 1),
        "secondsToFirst": round(first - started, 1),
    }


async def _posted(made: Any, count: int) -> float:
    """The moment at which so many of the challenges have scores on the chain."""
    waiting = set(made.addresses)
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        for address in sorted(waiting):
            if await made.chain.challenge(address).functions.scorePostedAt().call():
                waiting.remove(address)
        if len(made.addresses) - len(waiting) >= count:
            return time.monotonic()
        await asyncio.sleep(0.5)
    raise SystemExit("the service does not post")


def part(name: str, *arguments: object) -> dict[str, Any]:
    """One part in a process of its own; with its largest memory."""
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


PARTS: dict[str, Callable[..., Any]] = {
    "round": lambda place, count: large_round(Path(place), int(count)),
    "verify": lambda place: verified(Path(place)),
    "tick": lambda place, count: ticks(Path(place), int(count)),
    "service": lambda place, challenges, count, workers, kind: service(
        Path(place), int(challenges), int(count), int(workers), kind
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller fields, for a first look")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("rest", nargs="*")
    asked = parser.parse_args()
    if asked.part:
        result = asyncio.run(PARTS[asked.part](*asked.rest))
        result["megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory(prefix="clara-scale-") as place:
        walked = part("round", place, 200 if asked.quick else 1000)
        checked = part("verify", place)
        tick = part("tick", place, 500 if asked.quick else FINISHED)
    document = told(walked, checked, tick)
    document["service"] = services(*((8, 6, (1,)) if asked.quick else (200, 25, (1, 2, 3))))
    print(json.dumps(document, indent=2))


def services(challenges: int, entries_count: int, workers: tuple[int, ...]) -> list[dict[str, Any]]:
    """SQLite is for one process; Postgres for several."""
    found = []
    for kind, count in (("sqlite", 1), *(("postgres", count) for count in workers)):
        with tempfile.TemporaryDirectory(prefix="clara-scale-") as place:
            found.append(part("service", place, challenges, entries_count, count, kind))
    return found


def told(walked: dict[str, Any], checked: dict[str, Any], tick: dict[str, Any]) -> dict[str, Any]:
    """Every figure beside its target."""
    more = round(1000 * (tick["cpuMs"] - tick["cpuMsWithout"]) / tick["finished"], 1)
    calls = tick["storeCalls"] - tick["storeCallsWithout"]
    asked = tick["requests"] - tick["requestsWithout"]
    rows = [
        ("a round by rules, CPU seconds", CPU_SECONDS, walked["cpuSeconds"]),
        ("a round by rules, megabytes of memory", MEGABYTES, walked["megabytes"]),
        ("its trace, megabytes", TRACE_MEGABYTES, walked["traceMegabytes"]),
        ("its verification, CPU seconds", VERIFY_SECONDS, checked["cpuSeconds"]),
        (f"{tick['finished']:,} finished challenges: more calls of the store in a tick", 0, calls),
        (f"{tick['open']:,} open challenges that said nothing: more requests to the node in a tick", 0, asked),
        ("one finished challenge: more CPU of a tick, microseconds", TICK_MICROSECONDS, more),
    ]
    figures = [{"what": what, "target": most, "measured": got, "pass": got <= most} for what, most, got in rows]
    return {"figures": figures, "round": walked, "verify": checked, "tick": tick}


if __name__ == "__main__":
    main()
