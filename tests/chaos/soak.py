"""The long chaos run: `python tests/chaos/soak.py`. Prints one JSON report; exit 1 if anything does not hold.

Postgres: 3 workers, 20 challenges, random SIGKILLs, one restart of the database. SQLite: one process, killed at random.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from typing import Any

from clara_eval.testing.chaos import ChaosPlan, run_chaos, world
from clara_eval.testing.databases import running_postgres

POSTGRES = ChaosPlan(
    challenges=20, submissions=6, workers=3, kills=12, database_restarts=1, patience_seconds=900, latency=0.3
)
SQLITE = ChaosPlan(challenges=8, submissions=6, workers=1, kills=8, patience_seconds=600, latency=0.3)


async def _on_postgres(plan: ChaosPlan) -> dict[str, Any]:
    with running_postgres() as server:

        def restart() -> None:
            server.stop()
            server.start()

        return await _run(plan, server.get_uri(), restart)


async def _on_sqlite(plan: ChaosPlan) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        return await _run(plan, f"sqlite:///{place}/soak.db", None)


async def _run(plan: ChaosPlan, url: str, restart: Any) -> dict[str, Any]:
    async with world(plan, url) as made:
        report = await run_chaos(made, restart)
        problems = report.problems()
        if problems:
            sys.stderr.write(made.tail())
    return {"plan": asdict(plan), "report": asdict(report), "problems": problems}


async def _main(which: str, seed: int) -> int:
    found: dict[str, Any] = {}
    if which in ("both", "postgres"):
        found["postgres"] = await _on_postgres(_seeded(POSTGRES, seed))
    if which in ("both", "sqlite"):
        found["sqlite"] = await _on_sqlite(_seeded(SQLITE, seed))
    found["ok"] = not any(part["problems"] for part in found.values())
    print(json.dumps(found, indent=1))
    return 0 if found["ok"] else 1


def _seeded(plan: ChaosPlan, seed: int) -> ChaosPlan:
    return ChaosPlan(**{**asdict(plan), "seed": seed})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("both", "postgres", "sqlite"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.only, given.seed)))
