"""Measure scale: a large round by rules, the cost of ticks, and posted rounds per minute.

Each part runs in its own process, so that its CPU seconds and memory can be read. `round`: 300 entries by rules
with everything on (copies, features, ranking, trace, documents, SQLite), then `verify` of its trace. `judge`: a folder
of 25 files by rules, over the evaluation alone. `tick`: a tick with ten thousand finished and ten thousand open
challenges over one without them. `discovery`: a tick with twenty new challenges among ten thousand of the factory, over
one without them. `service`: due challenges of 25 entries by rules, on SQLite with one worker and on
Postgres with one, two and three. Prints one JSON document with targets and measured values.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.chaos import World

ENTRIES = 300  # the written bound of scale
CPU_SECONDS, MEGABYTES, TRACE_MEGABYTES, VERIFY_SECONDS = 2.6, 180.0, 3.0, 2.6
JUDGE_TIMES = 2.0
TICK_MICROSECONDS = 25.0
"""Target per finished challenge, of which only the key in a list is read."""
FINISHED = 10_000
NEW, MORE_REQUESTS = 20, 2
"""New challenges in a tick, and how many more requests it may make with many open challenges."""
EVERY_STORE = "sqlite:1,postgres:1,postgres:2,postgres:3"
ALL_CORES, GROWTH = 0.9, 1.15
"""If a smaller share of the cores is busy, one more worker should post this many times the rounds."""
SECONDS_A_BLOCK = 2
"""As on Base."""


async def large_round(place: Path, entries_count: int) -> dict[str, Any]:
    """Evaluate, store and publish one round, as between reading the chain and the post."""
    from tests.support.large_round import PLAN_BY_RULES, large_challenge, run_large, trace_entries

    from clara_eval.chain.model import choose_winners
    from clara_eval.challenges.public_documents import public_keys, scores_document
    from clara_eval.core.hashing import plain_json
    from clara_eval.documents.store_keys import scores_key
    from clara_eval.evaluation.trace import TraceWriter, render
    from clara_eval.store.sqlite import SqliteStore
    from clara_eval.store.trace_archive import save_trace, stream_trace

    challenge = large_challenge(entries_count)
    store = await SqliteStore.open(place / "round.db")
    before = time.process_time()
    walked = await run_large(challenge)
    writer = TraceWriter()
    lines = [writer.line(key, body) for key, body in trace_entries(challenge, PLAN_BY_RULES, walked)]
    await save_trace(store, challenge.chain_id, challenge.address, render(lines, writer.digest), writer.digest)
    keys = list(public_keys(challenge.address, 1, walked))
    scores = scores_document(challenge, walked, choose_winners(challenge, walked.placed), writer.digest)
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
    from clara_eval.challenges.replay import check_trace

    before = time.process_time()
    with (place / "trace.json").open(encoding="utf-8", newline="\n") as lines:
        checked = await check_trace(lines)
    return {"cpuSeconds": round(time.process_time() - before, 2), "entries": checked.entries}


async def judged(place: Path, entries_count: int) -> dict[str, Any]:
    """Measure CPU of `judge` on small files by rules, in total and of the evaluation alone."""
    from tests.support.large_round import no_listener, program

    from clara_eval.actions.judge import JudgeRequest, judge_entries
    from clara_eval.config.settings import Settings
    from clara_eval.core.codec import to_camel_json
    from clara_eval.evaluation.folder import FolderVenue, NamedContent
    from clara_eval.evaluation.round import EvaluationPlan
    from clara_eval.evaluation.run import evaluate_round
    from clara_eval.evaluation.sources import Received, TraceSources
    from clara_eval.submissions.model import Fetched

    contents = [NamedContent(f"{n}.py", program(n).encode()) for n in range(entries_count)]
    features = [
        {"name": name, "source": "measured", "better": "lower"}
        for name in ("lines", "max_complexity", "documented_share")
    ]
    config = json.dumps({"version": 1, "judge": "rules", "features": features, "criteria": "Simple."}).encode()
    venue = FolderVenue.of(contents, config, (5000, 3000, 2000), "", "")
    by_uri = {one.uri: Received.of(Fetched(one.content, one.media_type, immutable=False)) for one in contents}
    evidence: dict[str, Any] = {
        f"solution/{one.account}": {"received": to_camel_json(by_uri[one.solution_uri])} for one in venue.folder.entries
    }
    bare, whole = list[float](), list[float]()
    for number in range(6):
        before = time.process_time()
        sources = TraceSources({**evidence, "rulings": []})
        await evaluate_round(venue.given, EvaluationPlan(("rules",)), sources, no_listener)
        between = time.process_time()
        await judge_entries(JudgeRequest(contents, config, "rules"), Settings.from_env({}), place / f"judged{number}")
        if number:  # the first run of each also imports and compiles
            bare.append(between - before)
            whole.append(time.process_time() - between)
    ratio = round(statistics.median(whole) / statistics.median(bare), 2)
    return {"entries": entries_count, "bareCpuMs": [round(1000 * one) for one in bare],
            "cpuMs": [round(1000 * one) for one in whole], "ratio": ratio}  # fmt: skip


async def ticks(place: Path, finished_count: int) -> dict[str, Any]:
    """Measure CPU seconds of ticks with so many finished and open challenges, and without them."""
    from tests.support.faulty_node import FaultyNode
    from tests.support.service import finished, still_open, ticked

    from clara_eval.app import open_app
    from clara_eval.devnet.demo.lifecycle import local_settings
    from clara_eval.devnet.demo.round import post_round
    from clara_eval.devnet.local_chain import local_chain

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
            await still_open(app, finished_count)
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


async def discovery(place: Path, count: int) -> dict[str, Any]:
    """Measure a tick with a few new challenges, before and after the factory has many open ones."""
    from tests.support.faulty_node import FaultyNode
    from tests.support.service import ticked
    from tests.support.together import post_many

    from clara_eval.app import open_app
    from clara_eval.devnet.demo.lifecycle import local_settings
    from clara_eval.devnet.local_chain import DAY, USDC, PostedTerms, local_chain

    terms = PostedTerms(open_seconds=10 * DAY)
    async with local_chain() as chain, FaultyNode(chain.rpc_url) as node:
        await chain.fund(chain.poster, 2 * count * terms.prize_pool + 1_000 * USDC)
        settings = local_settings(chain, place / "discovery.db", place).model_copy(update={"rpc_url": node.url})
        async with open_app(settings) as app:

            async def cost(new: int) -> dict[str, float]:
                await post_many(chain, terms, new)
                node.calls.clear()
                node.requests, before = 0, time.process_time()
                report, _ = await ticked(app)
                if report.problems:
                    raise SystemExit(f"the tick has problems: {report.problems[:3]}")
                cpu = round(time.process_time() - before, 2)
                return {"new": new, "cpuSeconds": cpu, "requests": node.requests, "calls": node.calls.total()}

            await cost(NEW)  # a warm-up: the first tick makes extra requests
            return {
                "challenges": count,
                "newBefore": await cost(NEW),
                "quietBefore": await cost(0),
                "all": await cost(count),
                "quiet": await cost(0),
                "new": await cost(NEW),
            }


async def service(place: Path, challenges: int, entries_count: int, wanted: str) -> dict[str, Any]:
    """Measure rounds per minute from the first post to the last, with real workers on a real chain.

    `wanted` is a list such as `sqlite:1,postgres:2`. Each set-up works on equal challenges: the chain is reverted after
    each. The workers have the shipped settings, except for a tick every 15 seconds; blocks come as on Base.
    """
    from tests.support.chaos import ChaosPlan, world

    plan = ChaosPlan(challenges, entries_count, workers=1, kills=0, by_rules=True)
    rows: list[dict[str, Any]] = []
    async with world(plan, f"sqlite:///{place}/unused.db") as made:
        made.environ |= {"CHAOS_AS_SHIPPED": "1", "CLARA_TICK_SECONDS": "15"}
        await made.chain.node.rpc("evm_setIntervalMining", SECONDS_A_BLOCK)
        for number, (kind, _, workers) in enumerate(one.partition(":") for one in wanted.split(",")):
            snapshot = await made.chain.snapshot()
            with database(kind, place / f"service-{number}.db") as url:
                made.environ["CLARA_DATABASE_URL"] = url
                rows.append({"store": kind, "workers": int(workers), **await served(made, int(workers))})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            await made.chain.revert(snapshot)
    return {"challenges": challenges, "entries": entries_count, "cores": os.cpu_count(), "runs": rows}


@contextmanager
def database(kind: str, file: Path) -> Iterator[str]:
    """Create an empty database and yield its URL."""
    from tests.support.databases import running_postgres

    if kind == "sqlite":
        yield f"sqlite:///{file}"
        return
    with running_postgres() as server:
        yield server.get_uri()


async def served(made: World, workers: int) -> dict[str, Any]:
    """Run so many workers until everything is posted."""
    started = time.monotonic()
    made.workers.clear()
    for _ in range(workers):
        await made.start_worker()
    pids = [worker.process.pid for worker in made.workers]
    count, first = await _posted(made, 1)
    node = _children("anvil")
    before, node_before, machine, load = _cpu_seconds(pids), _cpu_seconds(node), _busy_seconds(), os.getloadavg()[0]
    everything, last = await _posted(made, len(made.addresses))
    cpu, node_cpu, busy = _cpu_seconds(pids) - before, _cpu_seconds(node) - node_before, _busy_seconds() - machine
    await made.stop_workers()
    minutes, rounds = max(last - first, 1e-9) / 60, max(everything - count, 1)
    return {
        "roundsPerMinute": round(rounds / minutes, 1),
        "workersCpuSecondsPerRound": round(cpu / rounds, 3),
        "nodeCpuSecondsPerRound": round(node_cpu / rounds, 3),
        "coresBusy": round(busy / max(last - first, 1e-9), 2),
        "secondsToFirst": round(first - started, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Return user and system time of these processes."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def _children(name: str) -> list[int]:
    """Return the child processes of this name."""
    threads = Path("/proc/self/task").iterdir()
    children = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
    return [pid for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def _busy_seconds() -> float:
    """Return busy seconds of all cores, which shows whether more workers could do more."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


async def _posted(made: World, count: int) -> tuple[int, float]:
    """Poll every second until so many challenges have scores on the chain; return number and time."""
    from tests.support.web3_chain import web3_of

    from clara_eval.chain.contracts.abi import abi

    wanted: Any = {"fromBlock": made.first_block, "topics": [abi("Challenge").event("ScoresPosted").topic]}
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        logs = await web3_of(made.chain).eth.get_logs(wanted)
        found = len({log["address"].lower() for log in logs})
        if found >= count:
            return found, time.monotonic()
        await asyncio.sleep(1.0)
    raise SystemExit(f"the service does not post\n{made.tail()}")


def part(name: str, *arguments: object) -> dict[str, Any]:
    """Run one part in its own process, and add its peak memory."""
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


PARTS: dict[str, Callable[..., Any]] = {
    "round": lambda place, count: large_round(Path(place), int(count)),
    "verify": lambda place: verified(Path(place)),
    "judge": lambda place, count: judged(Path(place), int(count)),
    "tick": lambda place, count: ticks(Path(place), int(count)),
    "discovery": lambda place, count: discovery(Path(place), int(count)),
    "service": lambda place, challenges, count, wanted: service(Path(place), int(challenges), int(count), wanted),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller fields, for a first look")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--rounds", type=int, default=200, help="due challenges of the service")
    parser.add_argument("--only-service", action="store_true", help="nothing but rounds a minute")
    asked = parser.parse_args()
    if asked.only_service:
        print(json.dumps(services(asked.rounds, 25, EVERY_STORE), indent=2))
        return
    if asked.part:
        gc.set_threshold(20_000, 10, 10)  # as the program does
        result = asyncio.run(PARTS[asked.part](*asked.rest))
        result["megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory(prefix="clara-scale-") as place:
        walked = part("round", place, ENTRIES)
        checked = part("verify", place)
        folder = part("judge", place, 25)
        tick = part("tick", place, 500 if asked.quick else FINISHED)
        found = part("discovery", place, 300 if asked.quick else FINISHED)
    document = compare_targets(walked, checked, folder, tick, found)
    document["service"] = services(8, 6, "sqlite:1") if asked.quick else services(asked.rounds, 25, EVERY_STORE)
    print(json.dumps(document, indent=2))


def services(challenges: int, entries_count: int, wanted: str) -> dict[str, Any]:
    """Return the set-ups: SQLite with one process, Postgres with several."""
    with tempfile.TemporaryDirectory(prefix="clara-scale-") as place:
        found = part("service", place, challenges, entries_count, wanted)
    runs = [run for run in found["runs"] if run["store"] == "postgres"]
    grows = [
        after["roundsPerMinute"] / before["roundsPerMinute"]
        for before, after in pairwise(runs)
        if before["coresBusy"] < ALL_CORES * found["cores"]
    ]
    if grows:
        least = round(min(grows), 2)
        what = "one more worker while cores are free: rounds a minute, at least times"
        found["figures"] = [{"what": what, "target": GROWTH, "measured": least, "pass": least >= GROWTH}]
    return found


def compare_targets(
    walked: dict[str, Any],
    checked: dict[str, Any],
    folder: dict[str, Any],
    tick: dict[str, Any],
    found: dict[str, Any],
) -> dict[str, Any]:
    """Compare every figure with its target."""
    more = round(1000 * (tick["cpuMs"] - tick["cpuMsWithout"]) / tick["finished"], 1)
    calls = tick["storeCalls"] - tick["storeCallsWithout"]
    asked = tick["requests"] - tick["requestsWithout"]
    discovered = f"{found['challenges']:,} open challenges of a real factory: more requests in a tick with {NEW} new"
    rows = [
        ("a round by rules, CPU seconds", CPU_SECONDS, walked["cpuSeconds"]),
        ("a round by rules, megabytes of memory", MEGABYTES, walked["megabytes"]),
        ("its trace, megabytes", TRACE_MEGABYTES, walked["traceMegabytes"]),
        ("its verification, CPU seconds", VERIFY_SECONDS, checked["cpuSeconds"]),
        (f"`judge` of {folder['entries']} files by rules, times the evaluation alone", JUDGE_TIMES, folder["ratio"]),
        (f"{tick['finished']:,} finished challenges: more calls of the store in a tick", 0, calls),
        (f"{tick['open']:,} open challenges that said nothing: more requests to the node in a tick", 0, asked),
        ("one finished challenge: more CPU of a tick, microseconds", TICK_MICROSECONDS, more),
        (discovered, MORE_REQUESTS, found["new"]["requests"] - found["newBefore"]["requests"]),
    ]
    figures = [{"what": what, "target": most, "measured": got, "pass": got <= most} for what, most, got in rows]
    return {"figures": figures, "round": walked, "verify": checked, "judge": folder, "tick": tick, "discovery": found}


if __name__ == "__main__":
    main()
