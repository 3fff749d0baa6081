"""An independent client, the official inspector, lists the tools and calls all but `challenge_try`, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from eth_utils.address import to_checksum_address
from tests.support.agents import RULES_CONFIG, agent_environment, agent_settings
from tests.support.mcp_service import served
from tests.support.shell import Shell
from tests.support.web3_chain import as_web3

from clara_eval.challenges.review import DRAFT_FORM, AnnouncedDraft
from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.documents.rest import DraftPlaceRecord
from clara_eval.documents.store_keys import draft_key
from clara_eval.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[3]
INSPECTOR = ROOT / "node_modules" / ".bin" / "mcp-inspector"
AT_ONCE = 2

pytestmark = [
    pytest.mark.timeout(600),  # nine processes that load a protocol library each, on a machine that may be busy
    pytest.mark.skipif(
        shutil.which("node") is None or not INSPECTOR.exists(), reason="needs node and `npm ci` for the inspector"
    ),
]


@dataclass(frozen=True, slots=True)
class Inspector:
    """One server as the inspector reaches it."""

    target: tuple[str, ...]
    environment: dict[str, str]
    home: Path

    async def ask(self, method: str, *words: str) -> dict[str, Any]:
        """One request in a process of its own; what it prints is one JSON document."""
        pairs = [word for name, value in self.environment.items() for word in ("-e", f"{name}={value}")]
        process = await asyncio.create_subprocess_exec(
            str(INSPECTOR), "--cli", *pairs, *self.target, "--method", method, "--connect-timeout", "100000", *words,
            cwd=self.home, env={"PATH": _path(), "HOME": str(self.home)},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, complained = await asyncio.wait_for(process.communicate(), 120)
        try:
            found: dict[str, Any] = json.loads(said)
        except ValueError:
            raise AssertionError(f"{method} {words}: {said!r} {complained.decode()[-2000:]}") from None
        return found

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        words = [word for key, value in arguments.items() for word in ("--tool-arg", f"{key}={_argument(value)}")]
        result = await self.ask("tools/call", "--tool-name", name, *words)
        assert not result.get("isError"), result
        return result


def _path() -> str:
    node = shutil.which("node")
    assert node is not None
    return f"{Path(node).parent}:/usr/bin:/bin"


def _argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Rounds:
    """One open challenge, and one that waits only for its winners."""

    open: str
    done: str


async def prepare(chain: LocalChain) -> Rounds:
    first, second = chain.agents[:2]
    done = await chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    await chain.submit_all(done, [Handed(agent, f"data:,{agent.index}") for agent in (first, second)])
    await chain.move_time(DAY + 1)
    await chain.send(chain.owner, chain.challenge(done), "advanceToScoring")
    rows = [(first, 9000, 700), (second, 1000, 300)]
    winners = [
        (to_checksum_address(agent.address), await chain.register(agent), score, prize * USDC)
        for agent, score, prize in rows
    ]
    await chain.send(chain.evaluator, chain.challenge(done), "postScores", winners)
    await chain.move_time(12 * HOUR + 1)
    await chain.register(chain.poster)
    await chain.fund(first, 1000 * USDC)
    return Rounds(open=await chain.post_challenge(PostedTerms(payout_bps=(7000, 3000))), done=done)


def calls(rounds: Rounds, sender: str) -> dict[str, dict[str, Any]]:
    """One call for each tool; what moves money says so."""
    mine = {"sender": sender, "confirm": True}
    return {
        "challenge_browse": {"status": "any"},
        "config_check": {"evalConfigJSON": RULES_CONFIG},
        "challenge_detail": {"address": rounds.open},
        "challenge_eval_status": {"address": rounds.done},
        "challenge_leaderboard": {"address": rounds.done},
        "challenge_score": {"address": rounds.done, "submitter": sender},
        "challenge_post": {
            "title": "Sort", "problemStatement": "Sort numbers.", "prize": "100 USDC", "deadline": "7 days",
            "evalConfigJSON": RULES_CONFIG, "payout": "top3", "expectedEntries": 2, **mine,
        },
        "challenge_submit": {"address": rounds.open, "content": "x = 1", **mine},
        "challenge_object": {"address": rounds.done},
        "challenge_claim": {"address": rounds.done, **mine},
    }  # fmt: skip


async def announce(database: Path, rounds: Rounds) -> None:
    """A result as it is announced, in the store that the server reads."""
    store = await SqliteStore.open(str(database))
    draft = AnnouncedDraft(
        "0x" + "12" * 32, 1, 2_000_000_000, (DraftPlaceRecord(Address(rounds.done), 1, 9000, "ranked"),), ""
    )
    await store.put(31337, draft_key(rounds.done), DRAFT_FORM.text(draft))
    await store.close()


async def call_all(inspector: Inspector, rounds: Rounds, sender: str) -> dict[str, dict[str, Any]]:
    """The documents of all, each checked against the schema that the server published."""
    tools = {tool["name"]: tool for tool in (await inspector.ask("tools/list", "--strict"))["tools"]}
    wanted = calls(rounds, sender)
    elsewhere = {"challenge_try", "challenge_post_scores"}  # tried by test_tools and test_origin_client
    assert set(tools) - elsewhere == set(wanted)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> dict[str, Any]:
        async with gate:
            result = await inspector.call(name, **wanted[name])
        jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
        assert result["content"][0]["text"]
        found: dict[str, Any] = result["structuredContent"]
        return found

    reading = [name for name in wanted if tools[name]["annotations"]["readOnlyHint"]]
    found = dict(zip(reading, await asyncio.gather(*(one(name) for name in reading)), strict=True))
    for name in wanted:  # one wallet, one transaction after the other
        if name not in found:
            found[name] = await one(name)
    return found


def check_reading(found: dict[str, dict[str, Any]], rounds: Rounds, chain: LocalChain) -> None:
    assert [item["address"] for item in found["challenge_browse"]["challenges"]] == [rounds.open, rounds.done]
    assert found["challenge_detail"]["challenge"]["acceptsSubmissions"] is True
    assert found["challenge_eval_status"]["status"] == "complete"
    assert [row["prize"] for row in found["challenge_leaderboard"]["standings"]] == ["700 USDC", "300 USDC"]
    assert found["challenge_object"]["outcome"] == "announced"
    assert found["challenge_score"]["standing"]["address"] == chain.agents[0].address
    assert any("no result could be posted" in text for text in found["challenge_post"]["warnings"])


async def test_the_inspector_calls_every_tool_over_stdio(local_chain: LocalChain, shell: Shell, tmp_path: Path) -> None:
    """Over stdio with a local key all tools answer, and post, submit and claim really happen."""
    chain, agent = local_chain, local_chain.agents[0]
    rounds = await prepare(chain)
    environment = agent_environment(chain, agent, tmp_path / "none.db")
    await announce(tmp_path / "none.db", rounds)
    program = (shell.program, "mcp")
    before = await chain.balance(agent.address)
    found = await call_all(Inspector(program, environment, tmp_path), rounds, agent.address)
    check_reading(found, rounds, chain)
    assert {found[name]["outcome"] for name in ("challenge_post", "challenge_submit", "challenge_claim")} == {"sent"}
    assert await as_web3(chain.challenge(rounds.open)).functions.submissionCount().call() == 1  # type: ignore[arg-type]
    assert await as_web3(chain.challenge(found["challenge_post"]["challenge"])).functions.winnerCount().call() == 3
    assert await chain.balance(agent.address) - before == 700 * USDC - 105 * USDC


async def test_the_inspector_calls_every_tool_over_http(local_chain: LocalChain, tmp_path: Path) -> None:
    """Over HTTP all tools answer, and the writing ones hand back unsigned transactions."""
    chain, agent = local_chain, local_chain.agents[0]
    rounds = await prepare(chain)
    await announce(tmp_path / "store.db", rounds)
    async with served(agent_settings(chain, agent, tmp_path / "store.db"), tmp_path / "store.db") as url:
        inspector = Inspector((url, "--transport", "http"), {}, tmp_path)
        found = await call_all(inspector, rounds, agent.address)
        schema = await inspector.ask("resources/read", "--uri", "clara://eval-config/schema")
    check_reading(found, rounds, chain)
    for name in ("challenge_post", "challenge_submit", "challenge_claim"):
        assert found[name]["outcome"] == "unsigned"
        assert found[name]["transactions"]
    assert json.loads(schema["contents"][0]["text"])["type"] == "object"
