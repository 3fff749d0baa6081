"""The long run of faults: `make soak`, or with counts `python tests/chaos/soak.py --kills 1000 --node 300 …`.

Prints one JSON report: what was done to the service, and what became of it. Exit 1 if anything does not hold; each
failure then stands in the report with its seed and the command that repeats it. `--report FILE` keeps every run with
its commit and sums them; the file is written after each round, so that a run that is stopped counts as far as it came.

Kills: one round takes a dozen, each process resuming what the last one left and dying at its own named step or at a
random moment; SQLite and Postgres in turn. Database: Postgres restarted whenever a worker says one of its events.
Node, reorgs, poison, connections: one round each, under a fault that its seed chooses.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import count as count_from
from pathlib import Path
from typing import Any

from tests.support.chaos import (
    ChaosPlan,
    Ground,
    Report,
    ground,
    run_chaos,
    world_on,
)
from tests.support.databases import fresh_database, running_postgres
from tests.support.kill_points import KILL_POINTS
from tests.support.nursery import Nursery
from tests.support.scenarios import (
    closed_round,
    connections_scenario,
    node_scenario,
    poison_scenario,
    reorg_scenario,
)

from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError
from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import LocalChain, local_chain
from clara_eval.service.logs import configure_logs

Scenario = Callable[[LocalChain, Address, Path, int], Awaitable[list[str]]]
SCENARIOS: dict[str, Scenario] = {
    "node": node_scenario, "reorgs": reorg_scenario, "poison": poison_scenario, "connections": connections_scenario,
}  # fmt: skip
COUNTS = {"kills": 1000, "node": 300, "database": 100, "reorgs": 50, "poison": 50, "connections": 1}
"""What `make soak` does without options: an hour or two on two cores."""
SMALL = {"kills": 24, "node": 24, "database": 6, "reorgs": 4, "poison": 8, "connections": 1}
"""What `make soak SMALL=1` does, in some ten minutes; docs/operations.md has its table."""
EVENTS = ("evaluation_queued", "tick_ended", "attempt_ended", "engine_started", "workflow_taken_over")
_ONE_RESTART = threading.Lock()
"""The servers of all lanes share one lock of their package, which threads must not share."""
_SUBMISSIONS = 3
_KILLS_AT_ONCE = 12
_RESTARTS_AT_ONCE = 6


@dataclass(slots=True)
class Class:
    """What was done of one class of faults, and what came of it."""

    wanted: int
    begun: int = 0
    done: int = 0
    rounds: int = 0
    posts: int = 0
    double: int = 0
    wrong: int = 0
    stuck: int = 0
    reverted: int = 0
    paid: int = 0
    paid_again: int = 0
    paid_again_in_flight: int = 0
    resumed: int = 0
    """How often the next process was seen at work after a kill, and how many seconds it took at most."""
    slowest_resume: float = 0.0
    at: dict[str, int] = field(default_factory=dict)
    """How often at which step, event or kind."""
    failures: list[dict[str, Any]] = field(default_factory=list)

    def take(self, most: int) -> int:
        """How many of what is wanted the caller may do now; what it does not do in the end it gives back."""
        taken = min(most, self.wanted - self.begun)
        self.begun += taken
        return taken

    def failed(self, name: str, seed: int, count: int, problems: list[str]) -> None:
        command = f"python tests/chaos/soak.py --only {name} --{name} {count} --seed {seed}"
        self.failures.append({"seed": seed, "repeat": command, "problems": problems})

    def count(self, report: Report) -> None:
        self.rounds += report.challenges
        self.posts += sum(report.posts_on_chain.values())
        self.double += sum(count > 1 for count in report.posts_on_chain.values())
        self.stuck += sum(count == 0 for count in report.posts_on_chain.values())
        self.wrong += report.posted - min(report.posted, report.traces_verified)
        self.reverted += report.reverted_transactions
        self.paid += report.paid
        self.paid_again += report.paid_again
        self.paid_again_in_flight += report.allowed_again
        self.resumed += len(report.resumed_after)
        self.slowest_resume = round(max([self.slowest_resume, *report.resumed_after]), 1)

    def count_at(self, at: dict[str, int]) -> None:
        self.at = dict(sorted((Counter(self.at) + Counter(at)).items()))

    def count_scenario(self, problems: list[str]) -> None:
        self.done, self.rounds = self.done + 1, self.rounds + 1
        self.double += any(" posts on the chain" in problem and ": 0 posts" not in problem for problem in problems)
        self.stuck += any("stuck" in problem or "not posted" in problem for problem in problems)
        self.wrong += any("trace" in problem for problem in problems)
        self.posts += not problems


@dataclass(slots=True)
class Run:
    """One run of this program: its classes, and where they are told."""

    seed: int
    commit: str
    started: float
    lanes: int
    report: Path | None
    classes: dict[str, Class]

    @property
    def is_good(self) -> bool:
        return not any(found.failures for found in self.classes.values())

    def document(self) -> dict[str, Any]:
        seconds = round(time.time() - self.started)
        head = {"ok": self.is_good, "commit": self.commit, "seed": self.seed, "started": self.started}
        return {**head, "seconds": seconds, **{name: asdict(found) for name, found in self.classes.items()}}

    def tell(self, name: str) -> None:
        """A line for who watches; the report as far as it is."""
        found = self.classes[name]
        sys.stderr.write(f"{name}: {found.done} of {found.wanted}, {len(found.failures)} failed\n")
        if self.report is not None:
            _merge(self.report, self.document())


def _merge(place: Path, run: dict[str, Any]) -> None:
    """This run in the place of its earlier state, beside all others, and the sums; other runs may write, too."""
    with place.open("a+", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.seek(0)
        runs = json.loads(held.read() or '{"runs": []}')["runs"]
        runs = [*(other for other in runs if other["started"] != run["started"]), run]
        held.truncate(0)
        held.write(json.dumps({"ok": all(one["ok"] for one in runs), "sums": _sums(runs), "runs": runs}, indent=1))


def _sums(runs: list[dict[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for name in COUNTS:
        told = [run[name] for run in runs if name in run and run[name]["done"]]
        keys = [key for key in asdict(Class(0)) if key not in ("wanted", "begun", "slowest_resume", "at", "failures")]
        at = sum((Counter(one["at"]) for one in told), Counter())
        totals = {key: sum(one[key] for one in told) for key in keys}
        slowest = max((one["slowest_resume"] for one in told), default=0.0)
        sums[name] = {
            **totals,
            "slowest_resume": slowest,
            "failures": sum(len(one["failures"]) for one in told),
            "at": dict(sorted(at.items())),
        }
    return sums


async def kills(run: Run, found: Class, seeds: Iterator[int], nursery: Nursery, server: Any) -> None:
    """Half at named steps, half at random moments; mostly one process on SQLite, each fourth round two on Postgres."""
    async with ground(_SUBMISSIONS, nursery) as base:
        while count := found.take(_KILLS_AT_ONCE):
            seed = next(seeds)
            first, on_postgres = (seed * 7) % len(KILL_POINTS), seed % 4 == 3
            points = (KILL_POINTS[first:] + KILL_POINTS[:first])[: (count + 1) // 2]
            plan = ChaosPlan(challenges=3, submissions=_SUBMISSIONS, workers=1 + on_postgres, seed=seed,
                kills=count - len(points), kill_points=points, patience_seconds=900, answers_between=(0, 6),
                life_seconds=(0.1, 3), worker_only=seed % 8 != 0)  # fmt: skip
            report = await (_on_postgres(base, plan, server) if on_postgres else _on_sqlite(base, plan))
            _end(run, "kills", (seed, count), report, report.kills, report.killed_at)


async def database(run: Run, found: Class, seeds: Iterator[int], nursery: Nursery) -> None:
    """Restarts at every event that the workers tell, of a server of its own."""
    with running_postgres() as server:
        async with ground(_SUBMISSIONS + 1, nursery) as base:
            while count := found.take(_RESTARTS_AT_ONCE):
                seed = next(seeds)
                first = seed % len(EVENTS)
                plan = ChaosPlan(challenges=4, submissions=_SUBMISSIONS + 1, workers=2, kills=0, seed=seed,
                    database_restarts=count, restart_events=EVENTS[first:] + EVENTS[:first], patience_seconds=900,
                    worker_only=True)  # fmt: skip
                report = await _on_postgres(base, plan, server)
                _end(run, "database", (seed, count), report, report.database_restarts, report.restarted_at)


def _end(run: Run, name: str, which: tuple[int, int], report: Report, done: int, at: dict[str, int]) -> None:
    found, (seed, count) = run.classes[name], which
    found.done += done
    found.begun -= count - max(1, done)
    found.count(report)
    found.count_at(at)
    if problems := report.problems():
        found.failed(name, seed, count, problems)
    run.tell(name)


async def scenarios(run: Run, name: str, found: Class, seeds: Iterator[int]) -> None:
    """One seed after the other, each with a store of its own, on one chain; each reorg on a chain of its own.

    anvil forgets the states of old blocks after some hundred, and a reorg back to such a block leaves an empty chain.
    """
    while found.begun < found.wanted:
        async with local_chain(AnvilOptions(accounts=6)) as chain:
            address = await closed_round(chain)
            while found.take(1):
                seed = next(seeds)
                with tempfile.TemporaryDirectory(prefix="clara-soak-") as place:
                    snapshot = await chain.snapshot()
                    try:
                        problems = await SCENARIOS[name](chain, address, Path(place), seed)
                    except ClaraError as bad:
                        problems = [f"broken off: {bad}"]
                found.count_scenario(problems)
                if problems:
                    found.failed(name, seed, 1, problems)
                run.tell(name)
                if name == "reorgs":
                    break
                await chain.revert(snapshot)


async def _on_postgres(base: Ground, plan: ChaosPlan, server: Any) -> Report:
    def restart() -> None:
        with _ONE_RESTART:
            server.stop()
            server.start()

    async with fresh_database(server.get_uri()) as url:
        return await _run(base, plan, url, restart if plan.database_restarts else None)


async def _on_sqlite(base: Ground, plan: ChaosPlan) -> Report:
    with tempfile.TemporaryDirectory() as place:
        return await _run(base, plan, f"sqlite:///{place}/soak.db", None)


async def _run(base: Ground, plan: ChaosPlan, url: str, restart: Callable[[], None] | None) -> Report:
    async with world_on(base, plan, url) as made:
        try:
            await run_chaos(made, restart)
        except ClaraError as bad:
            made.report.broken = f"broken off: {bad}"
        if made.report.problems():
            sys.stderr.write(made.tail())
    return made.report


def _commit() -> str:
    """Which code this is; with a sign where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(("git", *words), capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain") else "")


async def _main(given: argparse.Namespace) -> int:
    usual = SMALL if given.small else COUNTS
    wanted = {name: usual[name] if (asked := getattr(given, name)) is None else asked for name in COUNTS}
    classes = {name: Class(wanted[name]) for name in COUNTS if given.only in (None, name)}
    run = Run(given.seed, _commit(), time.time(), given.lanes, given.report, classes)
    configure_logs(level="ERROR")
    async with Nursery.running() as nursery:
        for name in classes:
            await _all_lanes(run, name, nursery)
    print(json.dumps(run.document(), indent=1))
    return 0 if run.is_good else 1


async def _all_lanes(run: Run, name: str, nursery: Nursery) -> None:
    found, seeds = run.classes[name], count_from(run.seed)
    with running_postgres() if name == "kills" else nullcontext() as server:
        async with asyncio.TaskGroup() as lanes:
            # An engine in this process is the only one: DBOS is one for a process.
            for _ in range(1 if name in {"poison", "connections"} else run.lanes):
                match name:
                    case "kills":
                        lanes.create_task(kills(run, found, seeds, nursery, server))
                    case "database":
                        lanes.create_task(database(run, found, seeds, nursery))
                    case _:
                        lanes.create_task(scenarios(run, name, found, seeds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(COUNTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1, help="rounds at once, each on a chain of its own")
    parser.add_argument("--report", type=Path, help="keep this run in that file, with the sums of all runs in it")
    parser.add_argument("--small", action="store_true", help="the small form")
    for name in COUNTS:
        parser.add_argument(f"--{name}", type=int)
    sys.exit(asyncio.run(_main(parser.parse_args())))
