"""The long run of faults: `make soak`, or with counts `python tests/chaos/soak.py --kills 1000 --node 300 …`.

Prints one JSON report: what was done to the service, and what became of it. Exit 1 if anything does not hold; each
failure then stands in the report with its seed and the command that repeats it. Kills: workers on SQLite and Postgres,
at named steps and at random moments. Database: Postgres restarted whenever a worker says one of its notifications.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clara_eval.devnet.anvil import AnvilOptions
from clara_eval.devnet.local_chain import LocalChain, local_chain
from clara_eval.testing.chaos import ChaosPlan, Report, run_chaos, world
from clara_eval.testing.databases import running_postgres
from clara_eval.testing.kill_points import KILL_POINTS
from clara_eval.testing.scenarios import node_scenario, poison_scenario, reorg_scenario

Scenario = Callable[[LocalChain, Path, int], Awaitable[list[str]]]
SCENARIOS: dict[str, Scenario] = {"node": node_scenario, "reorgs": reorg_scenario, "poison": poison_scenario}
COUNTS = {"kills": 60, "node": 40, "database": 10, "reorgs": 12, "poison": 12}
"""What `make soak` does without options: about an hour on two cores."""
EVENTS = ("evaluation_queued", "engine_started", "chunk_asked", "tick_ended", "attempt_ended", "workflow_taken_over")
_KILLS_AT_ONCE = 8
_RESTARTS_AT_ONCE = 4


@dataclass(slots=True)
class Class:
    """What was done of one class of faults, and what came of it."""

    wanted: int
    done: int = 0
    rounds: int = 0
    posts: int = 0
    double: int = 0
    wrong: int = 0
    stuck: int = 0
    reverted: int = 0
    paid_again: int = 0
    in_flight_at_kills: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def failed(self, name: str, seed: int, problems: list[str]) -> None:
        command = f"python tests/chaos/soak.py --only {name} --{name} 1 --seed {seed}"
        self.failures.append({"seed": seed, "repeat": command, "problems": problems})

    def count(self, report: Report) -> None:
        self.rounds += report.challenges
        self.posts += sum(report.posts_on_chain.values())
        self.double += sum(count > 1 for count in report.posts_on_chain.values())
        self.stuck += sum(count == 0 for count in report.posts_on_chain.values())
        self.wrong += report.posted - min(report.posted, report.traces_verified)
        self.reverted += report.reverted_transactions
        self.paid_again += report.paid_again
        self.in_flight_at_kills += report.allowed_again


async def kills(found: Class, seed: int) -> None:
    """Half at named steps, half at random moments; SQLite and Postgres in turn."""
    while found.done < found.wanted:
        count = min(_KILLS_AT_ONCE, found.wanted - found.done)
        first = (seed * _KILLS_AT_ONCE) % len(KILL_POINTS)
        points = (KILL_POINTS[first:] + KILL_POINTS[:first])[: count // 2]
        plan = ChaosPlan(challenges=3, submissions=4, workers=1 + seed % 2, kills=count - len(points),
                         kill_points=points, seed=seed, patience_seconds=600)  # fmt: skip
        report, problems = await (_on_postgres if seed % 2 else _on_sqlite)(plan)
        found.done += max(1, report.kills)
        _end(found, "kills", seed, report, problems)
        seed += 1


async def database(found: Class, seed: int) -> None:
    """Restarts at every notification of the workers."""
    while found.done < found.wanted:
        count = min(_RESTARTS_AT_ONCE, found.wanted - found.done)
        first = seed % len(EVENTS)
        plan = ChaosPlan(challenges=4, submissions=4, workers=2, kills=0, database_restarts=count, seed=seed,
                    restart_events=EVENTS[first:] + EVENTS[:first], patience_seconds=600)  # fmt: skip
        report, problems = await _on_postgres(plan)
        found.done += max(1, report.database_restarts)
        _end(found, "database", seed, report, problems)
        seed += 1


def _end(found: Class, name: str, seed: int, report: Report, problems: list[str]) -> None:
    found.count(report)
    if problems:
        found.failed(name, seed, problems)
    _say(name, found)


async def scenarios(name: str, found: Class, seed: int) -> None:
    """One seed after the other, each with a store of its own, on one chain."""
    async with local_chain(AnvilOptions(accounts=14)) as chain:
        while found.done < found.wanted:
            with tempfile.TemporaryDirectory(prefix="clara-soak-") as place:
                snapshot = await chain.snapshot()
                problems = await SCENARIOS[name](chain, Path(place), seed)
                await chain.revert(snapshot)
            found.done, found.rounds = found.done + 1, found.rounds + 1
            found.double += any(" posts on the chain" in problem and ": 0 posts" not in problem for problem in problems)
            found.stuck += any("stuck" in problem or "not posted" in problem for problem in problems)
            found.wrong += any("trace" in problem for problem in problems)
            found.posts += not problems
            if problems:
                found.failed(name, seed, problems)
            _say(name, found)
            seed += 1


def _say(name: str, found: Class) -> None:
    sys.stderr.write(f"{name}: {found.done} of {found.wanted}, {len(found.failures)} failed\n")


async def _on_postgres(plan: ChaosPlan) -> tuple[Report, list[str]]:
    with running_postgres() as server:

        def restart() -> None:
            server.stop()
            server.start()

        return await _run(plan, server.get_uri(), restart)


async def _on_sqlite(plan: ChaosPlan) -> tuple[Report, list[str]]:
    with tempfile.TemporaryDirectory() as place:
        return await _run(plan, f"sqlite:///{place}/soak.db", None)


async def _run(plan: ChaosPlan, url: str, restart: Any) -> tuple[Report, list[str]]:
    async with world(plan, url) as made:
        report = await run_chaos(made, restart)
        problems = report.problems()
        if problems:
            sys.stderr.write(made.tail())
    return report, problems


async def _main(given: argparse.Namespace) -> int:
    started = time.monotonic()
    classes = {name: Class(getattr(given, name)) for name in COUNTS if given.only in (None, name)}
    for name, found in classes.items():
        if name == "kills":
            await kills(found, given.seed)
        elif name == "database":
            await database(found, given.seed)
        else:
            await scenarios(name, found, given.seed)
    is_good = not any(found.failures for found in classes.values())
    report = {"ok": is_good, "seed": given.seed, "seconds": round(time.monotonic() - started)}
    print(json.dumps({**report, **{name: asdict(found) for name, found in classes.items()}}, indent=1))
    return 0 if is_good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=tuple(COUNTS))
    parser.add_argument("--seed", type=int, default=1)
    for name, count in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    sys.exit(asyncio.run(_main(parser.parse_args())))
