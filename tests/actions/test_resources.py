"""What the service needs is said in one sentence, checked, and small."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.support.rounds import closed_round
from tests.support.service import PACE, settings_of, turning

from clara_eval.actions.operator import CONNECTIONS, check_resources
from clara_eval.app import open_app
from clara_eval.devnet.local_chain import LocalChain

_UNDER_A_LIMIT = """
import asyncio, sys
from types import SimpleNamespace
from clara_eval.actions.operator import check_resources
app = SimpleNamespace(settings=SimpleNamespace(database_url="sqlite:///x.db"))
try:
    print(asyncio.run(check_resources(app)))
except Exception as bad:
    sys.exit(str(bad))
"""


def limited(limit: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'ulimit {limit} && exec "$0" -c "$1"', sys.executable, _UNDER_A_LIMIT]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_too_few_descriptors_and_too_little_memory_are_named() -> None:
    """Each limit that is too low is named with what is needed and the remedy; enough of all is one sentence."""
    enough = limited("-n 1024")
    assert enough.stdout.startswith("needs 256 file descriptors (1,024 allowed), 512 MB of memory ("), enough.stderr
    few, small = limited("-n 128"), limited("-v 1900000")
    assert "256 file descriptors (128 allowed)" in few.stderr
    assert "Raise `ulimit -n`" in few.stderr
    assert "2,048 MB of address space (1,855 allowed)" in small.stderr
    assert "Raise `ulimit -v`" in small.stderr


async def test_a_service_stays_within_the_connections_it_names(
    local_chain: LocalChain, postgres_url: str, tmp_path: Path
) -> None:
    """During a round on Postgres there are never more connections than the check says."""
    settings, most = settings_of(local_chain, tmp_path, CLARA_DATABASE_URL=postgres_url), 0
    address = await closed_round(local_chain)
    ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    async with open_app(settings, pace=PACE) as watcher:

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, (await watcher.store.driver.fetch(ours))[0][0] - 1)
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        async with turning(settings) as world:
            await world.until(address, "complete")
            assert f"{CONNECTIONS} Postgres connections" in await check_resources(world.app)
        watching.cancel()
        assert 0 < most <= CONNECTIONS
