"""The whole lifecycle through MCP calls alone: one poster, two agents, each with its own server and key."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from pydantic import SecretStr
from tests.support.agents import GOOD_SOLUTION, POOR_SOLUTION, RULES_CONFIG, agent_settings

from clara_eval.actions.evaluate import evaluate
from clara_eval.app import open_app, open_caller
from clara_eval.chain.sender import SendTimeouts
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.untrusted import bare
from clara_eval.devnet.local_chain import DAY, HOUR, LocalChain
from clara_eval.interfaces.mcp.server import build_server

VERBS = ("browse", "detail", "try", "submit", "eval_status", "object", "score", "leaderboard", "claim")


@asynccontextmanager
async def client(settings: Settings, **options: Any) -> AsyncIterator[Client]:
    async with open_caller(settings) as at_hand, Client(build_server(at_hand), **options) as opened:
        yield opened


async def call(caller: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A successful call, whose document fits the schema that the server published."""
    result = await caller.call_tool(name, arguments)
    assert not result.is_error, result.content
    listed = {tool.name: tool for tool in (await caller.list_tools()).tools}
    jsonschema.validate(result.structured_content, listed[name].output_schema or {})
    assert result.content[0].text  # type: ignore[union-attr]
    return dict(result.structured_content or {})


async def evaluate_now(settings: Settings, chain: LocalChain, address: str) -> None:
    key = settings.model_copy(update={"evaluator_key": SecretStr(chain.evaluator.key), "wallet_key": None})
    async with open_app(key, pace=SendTimeouts(poll_seconds=0.05)) as app:
        await evaluate(app, to_address(address))


@pytest.mark.specification("8", "challenge_post, challenge_eval_status and challenge_score: the whole life by tools")
async def test_a_challenge_lives_from_post_to_claim_through_tools_alone(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Post, two submissions, evaluation, status, score, leaderboard and claim work through MCP, and the money moves."""
    database = tmp_path / "store.db"
    poster = agent_settings(local_chain, local_chain.poster, database)
    good, poor = local_chain.agents[:2]
    async with client(poster) as caller:
        posted = await call(
            caller, "challenge_post", title="Sort numbers", problemStatement="Sort a list of numbers in Python.",
            prize="100 USDC", deadline="1 day", evalConfigJSON=RULES_CONFIG, payout=[7000, 3000], confirm=True,
        )  # fmt: skip
        assert posted["outcome"] == "sent"
        address = posted["challenge"]
        assert [item["description"][:6] for item in posted["sent"]] == ["Create"]
        listed = await call(caller, "challenge_browse")
        assert [item["address"] for item in listed["challenges"]] == [address]
    for account, solution in ((good, GOOD_SOLUTION), (poor, POOR_SOLUTION)):
        async with client(agent_settings(local_chain, account, database)) as caller:
            detail = await call(caller, "challenge_detail", address=address)
            assert detail["configProblem"] is None
            handed = await call(
                caller, "challenge_submit", address=address, content=solution, register=True, confirm=True
            )
            assert [item["description"][:6] for item in handed["sent"]] == ["Regist", "Submit"]
            assert (await call(caller, "challenge_eval_status", address=address))["status"] == "none"
    await local_chain.move_time(DAY + 1)
    await evaluate_now(poster, local_chain, address)
    async with client(agent_settings(local_chain, good, database)) as caller:
        status = await call(caller, "challenge_eval_status", address=address, waitSeconds=1)
        assert (status["status"], status["progress"]) == ("complete", 100)
        score = await call(caller, "challenge_score", address=address)
        assert (score["standing"]["rank"], score["standing"]["prize"]) == (1, "70 USDC")
        assert score["closestRival"]["address"] == poor.address
        assert {item["name"] for item in score["features"]} == {"parses", "functions", "max_complexity"}
        assert {game["result"] for game in score["games"]} == {"won"}
        said = (await caller.call_tool("challenge_score", {"address": address})).content[0].text  # type: ignore[union-attr]
        assert "What decided, in the judge's words" in said
        assert all(bare(game["reason"]) in said for game in score["games"])
        board = await call(caller, "challenge_leaderboard", address=address)
        assert [row["address"] for row in board["standings"]] == [good.address, poor.address]
        assert (board["source"], board["postedBy"]) == ("evaluation", "evaluator")
        trace = (await caller.read_resource(f"clara://trace/{address}")).contents[0]
        assert trace.mime_type == "application/json"
        await local_chain.move_time(12 * HOUR + 1)
        before = await local_chain.balance(good.address)
        claimed = await call(caller, "challenge_claim", address=address, confirm=True)
        assert [item["description"][:5] for item in claimed["sent"]] == ["Final", "Claim"]
        assert await local_chain.balance(good.address) - before == 70_000_000


async def test_an_agent_that_knows_only_the_skill_page_competes_and_is_paid(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Every call of skill.md as it is written there, with the address and the solution put in, from browsing to money."""
    page = (files("clara_eval.interfaces.mcp") / "skill.md").read_text(encoding="utf-8")
    steps = re.findall(r"^   `([a-z_]+) (\{.*\})`$", page, re.MULTILINE)
    assert {name for name, _ in steps} == {f"challenge_{verb}" for verb in VERBS}
    database, (mine, other) = tmp_path / "store.db", local_chain.agents[:2]
    poster = agent_settings(local_chain, local_chain.poster, database)
    posting = {"title": "Sort", "problemStatement": "Sort numbers in Python.", "prize": "100 USDC", "deadline": "1 day"}
    async with client(poster) as caller:
        posted = await call(
            caller, "challenge_post", **posting, evalConfigJSON=RULES_CONFIG, payout=[10000], confirm=True
        )
        address = posted["challenge"]
    async with client(agent_settings(local_chain, other, database)) as caller:
        await call(caller, "challenge_submit", address=address, content=POOR_SOLUTION, register=True, confirm=True)
    before = await local_chain.balance(mine.address)
    async with client(agent_settings(local_chain, mine, database)) as caller:
        for name, text in steps:
            if name == "challenge_eval_status":
                await local_chain.move_time(DAY + 1)
                await evaluate_now(poster, local_chain, address)
            if name == "challenge_claim":
                await local_chain.move_time(12 * HOUR + 1)
            solution = json.dumps(GOOD_SOLUTION)[1:-1]
            told = json.loads(text.replace("ADDRESS", address).replace("SOLUTION", solution))
            result = await caller.call_tool(name, told)
            assert not result.is_error or name == "challenge_object", result.content  # nothing is announced here
    assert await local_chain.balance(mine.address) - before == 100_000_000
