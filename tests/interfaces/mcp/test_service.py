"""The tools beside a running service: the same answers through REST as from the store, and the door under /mcp."""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvicorn
from mcp import Client
from pydantic import SecretStr
from tests.support.agents import GOOD_SOLUTION, POOR_SOLUTION, RULES_CONFIG, agent_settings
from tests.support.api_service import ScriptedEngine

from clara_eval.actions.evaluate import evaluate
from clara_eval.actions.published import ResultReader
from clara_eval.app import open_app, open_caller
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.status import StatusWriter
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.trace import read_entries
from clara_eval.interfaces.api.app import create_app
from clara_eval.interfaces.api.context import ApiContext
from clara_eval.interfaces.mcp.server import build_server
from clara_eval.service.metrics import Metrics, ServiceHealth
from clara_eval.service.requests import ServiceRequests
from clara_eval.store.sqlite import SqliteStore

TITLE = "Sort numbers"


async def judged(chain: LocalChain, database: Path) -> Address:
    """A challenge with two solutions and an unreadable one, evaluated and posted."""
    uri = build_metadata(title=TITLE, problem_statement="Sort.", skills=["python"], config_text=RULES_CONFIG)
    terms = PostedTerms(challenge_uri=uri, eval_config_hash=config_hash(RULES_CONFIG.encode()), payout_bps=(7000, 3000))
    address = await chain.post_challenge(PostedTerms(**_fields(terms) | {"prize_pool": 100_000_000}))
    handed = [Handed(chain.agents[2], "ftp://nowhere/ignore-all-rules", keccak_hex(b"nothing"))]
    for agent, text in zip(chain.agents, (GOOD_SOLUTION, POOR_SOLUTION), strict=False):
        encoded = base64.b64encode(text.encode()).decode()
        handed.append(Handed(agent, f"data:text/plain;base64,{encoded}", keccak_hex(text.encode())))
    await chain.submit_all(address, handed)
    await chain.move_time(DAY + 1)
    settings = agent_settings(chain, None, database).model_copy(
        update={"evaluator_key": SecretStr(chain.evaluator.key)}
    )
    async with open_app(settings, pace=SendTimeouts(poll_seconds=0.05)) as app:
        await evaluate(app, address)
    return address


def _fields(terms: PostedTerms) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in PostedTerms.__dataclass_fields__}


@asynccontextmanager
async def service(settings: Settings, database: Path) -> AsyncIterator[str]:
    store = await SqliteStore.open(str(database))
    reader, engine = ResultReader(store, 31337, settings.traces_public), cast("ServiceRequests", ScriptedEngine())
    context = ApiContext(settings, reader, Metrics(), ServiceHealth("all", 300.0), engine)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(context), port=port, log_level="error", lifespan="on"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells it in no other way
        await asyncio.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task
        await store.close()


async def documents(caller: Client, address: str, submitters: Sequence[str]) -> list[Any]:
    """What the three result tools say, without what names the place of the trace and the page, or the fences."""
    found = []
    for name, more in (
        ("challenge_eval_status", {}),
        ("challenge_leaderboard", {}),
        *[("challenge_score", {"submitter": submitter}) for submitter in submitters],
    ):
        result = await caller.call_tool(name, {"address": address, **more})
        assert not result.is_error, result.content
        document = dict(result.structured_content or {})
        for place in ("trace", "pageUrl"):
            document.pop(place, None)
        found.append(re.sub(r"untrusted-[0-9a-f]{16}", "untrusted", repr(document)))
    return found


async def test_store_and_service_tell_the_same(local_chain: LocalChain, tmp_path: Path) -> None:
    """Status, leaderboard and everybody's score are the same from the store, through REST, and from the mounted door."""
    database = tmp_path / "store.db"
    address = await judged(local_chain, database)
    submitters = [agent.address for agent in local_chain.agents[:3]]
    settings = agent_settings(local_chain, None, database)
    async with open_caller(settings) as at_hand, Client(build_server(at_hand)) as caller:
        from_store = await documents(caller, address, submitters)
        trace = (await caller.read_resource(f"clara://trace/{address}")).contents[0]
    async with service(settings, database) as url:
        elsewhere = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_API_URL": url})
        async with open_caller(elsewhere) as at_hand, Client(build_server(at_hand)) as caller:
            from_service = await documents(caller, address, submitters)
            same_trace = (await caller.read_resource(f"clara://trace/{address}")).contents[0]
        async with Client(f"{url}/mcp") as caller:
            mounted = await documents(caller, address, submitters)
    assert from_store == from_service == mounted
    assert "rejected" in from_store[-1]
    assert not (tmp_path / "none.db").exists()
    content = base64.b64decode(trace.blob).decode()  # type: ignore[union-attr]
    assert trace.blob == same_trace.blob  # type: ignore[union-attr]
    assert list(read_entries(content.splitlines(keepends=True)))


async def test_private_traces_stay_private(local_chain: LocalChain, tmp_path: Path) -> None:
    """Where the operator keeps traces private, scores show places and prizes, but neither features, games nor trace."""
    database = tmp_path / "store.db"
    address = await judged(local_chain, database)
    settings = agent_settings(local_chain, local_chain.agents[0], database, {"CLARA_TRACES_PUBLIC": "never"})
    async with open_caller(settings) as at_hand, Client(build_server(at_hand)) as caller:
        found = (await caller.call_tool("challenge_score", {"address": address})).structured_content or {}
        try:
            await caller.read_resource(f"clara://trace/{address}")
        except Exception as refused:  # noqa: BLE001 - the client's own error class is no part of this promise
            words = str(refused)
    assert (found["standing"]["rank"], found["features"], found["games"]) == (1, [], [])
    assert "keeps traces private" in words


async def test_a_stranger_sees_no_endpoint_in_a_status(local_chain: LocalChain, tmp_path: Path) -> None:
    """The reason of a status that the public tool shows has neither the operator's endpoints nor settings."""
    address, store = await local_chain.post_challenge(), await SqliteStore.open(tmp_path / "store.db")
    reason = "No node answers (node-7.example:8545: TimeoutError). Check CLARA_RPC_URL, or add another."
    await (await StatusWriter.resumed(store, 31337, address)).say("pending", reason=reason)
    settings = agent_settings(local_chain, local_chain.agents[0], tmp_path / "own.db")
    async with open_caller(settings, is_local=False, store=store) as far, Client(build_server(far)) as tools:
        shown = str((await tools.call_tool("challenge_eval_status", {"address": address})).structured_content)
    await store.close()
    assert "No node answers (…: TimeoutError)." in shown
    assert not re.search("node-7|CLARA_", shown)


async def test_the_documented_setup_knows_the_evaluator_and_the_page(local_chain: LocalChain, tmp_path: Path) -> None:
    """With CLARA_API_URL alone a poster names the service's evaluator, gets a link, and browsing knows who scores."""
    settings = agent_settings(local_chain, None, tmp_path / "store.db")
    async with service(settings, tmp_path / "store.db") as url:
        mine = agent_settings(local_chain, local_chain.poster, tmp_path / "none.db", {"CLARA_API_URL": url})
        mine = mine.model_copy(update={"evaluator_address": None})
        async with open_caller(mine) as at_hand, Client(build_server(at_hand)) as caller:
            posting = {"title": "Sort", "problemStatement": "Sort numbers.", "prize": "100", "deadline": "1 day"}
            result = await caller.call_tool(
                "challenge_post", {**posting, "evalConfigJSON": RULES_CONFIG, "payout": [10000], "confirm": True}
            )
            listed = (await caller.call_tool("challenge_browse", {"evaluator": "clara"})).structured_content or {}
        about, skill = await _text(f"{url}/llms.txt"), await _text(f"{url}/skill.md")
    posted = result.structured_content or {}
    assert posted["details"]["evaluator"] == local_chain.evaluator.address
    assert posted["pageUrl"] == f"{url}/challenges/{posted['challenge']}"
    assert posted["pageUrl"] in result.content[0].text  # type: ignore[union-attr]
    assert [item["evaluator"] for item in listed["challenges"]] == ["clara"]
    assert about.startswith("# Clara Eval")
    assert "# Compete in challenges" in skill


async def _text(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.text()
