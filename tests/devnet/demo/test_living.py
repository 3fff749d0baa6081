"""The living demo: what it shows, that it goes on, and that it speaks before it works."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from typing import Any

import aiohttp
import pytest

from clara_eval.chain.sender import SendTimeouts
from clara_eval.config.settings import Settings
from clara_eval.devnet.demo.living import Tempo, living_world
from clara_eval.devnet.local_chain import DAY
from clara_eval.interfaces.serve import serving
from clara_eval.service.due import EngineOptions

QUICK = EngineOptions(tick_cron="*/2 * * * * *", tick_seconds=2, poll_seconds=0.1)
TEMPO = Tempo(answer_seconds=0.02, open_seconds=20)
_SECONDS = 120


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("living")
async def test_every_state_is_shown_and_rounds_go_on() -> None:
    """One round is final with its claims, others wait, failed and are open; running ones follow, by the real clock."""
    said: list[str] = []
    async with living_world(Settings.from_env({}), said.append, TEMPO) as settings:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with serving(settings, listening, mode="all", options=QUICK, pace=SendTimeouts(poll_seconds=0.05)):
                rows = await until_next_round(url)
                judges = {row["title"]: await judges_of(url, row) for row in rows if row["status"] == "complete"}
    states = {row["title"]: row["status"] for row in rows}
    assert states["Explain a network partition to a product manager"] == "review"
    assert states["Gas golf: a token to many addresses in one call"] == "complete"
    assert judges["Gas golf: a token to many addresses in one call"] == ["rules"]
    assert states["Rate limiter whose config was changed after the post"] == "failed"
    assert states["Rate limiter for a public API, open for entries"] == "pending"
    by_title = {row["title"]: row for row in rows}
    assert by_title["Gas golf: a token to many addresses in one call"]["chain"] == "finalized"
    open_until = by_title["Rate limiter for a public API, open for entries"]["deadline"]
    assert time.time() + 3 * DAY - 150 < open_until < time.time() + 3 * DAY + 30
    running = [title for title, state in states.items() if ", round " in title and state == "complete"]
    assert judges[running[0]][0].startswith("openai:demo-judge@http://127.0.0.1:")
    assert said[0].startswith("A local chain")


async def until_next_round(url: str) -> list[dict[str, Any]]:
    """Look until one of the running rounds is posted and another is there."""
    rows: list[dict[str, Any]] = []
    async with aiohttp.ClientSession() as http:
        for _ in range(_SECONDS):
            async with http.get(f"{url}/api/v1/challenges") as answer:
                found = (await answer.json())["challenges"]
            rows = [{"title": row["title"], "address": row["address"], "status": row["evaluation"]["status"],
                     "chain": row["chainStatus"], "deadline": row["deadline"]} for row in found]  # fmt: skip
            running = [row["status"] for row in rows if ", round " in row["title"]]
            if "complete" in running and len(running) > 1:
                return rows
            await asyncio.sleep(1)
    raise AssertionError(f"The demo did not go on: {rows}")


async def judges_of(url: str, row: dict[str, Any]) -> list[str]:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/api/v1/challenges/{row['address']}") as answer:
        consistency = (await answer.json())["leaderboard"]["consistency"]
    return [judge["judge"] for judge in consistency["judges"]]


def test_the_first_line_needs_nothing_heavy() -> None:
    """The command's own module loads neither the web framework nor the engine nor a client of the chain."""
    script = (
        "import sys; import clara_eval.interfaces.cli.serve; "
        "print([name for name in ('fastapi', 'dbos', 'web3', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
