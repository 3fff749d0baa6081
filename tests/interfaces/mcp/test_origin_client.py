"""Calls as the origin's own client sent them, and a challenge that its poster scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.support.agents import RULES_CONFIG, agent_environment, agent_settings
from tests.support.api_service import running_service
from typer.testing import CliRunner

from clara_eval.actions.claim import read_places
from clara_eval.app import open_caller
from clara_eval.core.errors import BadInput
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import DevAccount
from clara_eval.devnet.local_chain import DAY, HOUR, USDC, LocalChain, PostedTerms
from clara_eval.interfaces.cli import app
from clara_eval.interfaces.mcp.server import build_server

ORIGIN_POST: dict[str, Any] = {
    "prizePool": "100",
    "token": "USDC",
    "deadline": "7 days",
    "scoringWindow": "48 hours",
    "problemStatement": "Sort a list of numbers in place. " * 6,
    "winnerCount": 3,
    "payoutSplit": "top3",
    "maxParticipants": 20,
    "skills": ["python"],
}


@asynccontextmanager
async def tools(chain: LocalChain, account: DevAccount | None, place: Path, **changed: str) -> AsyncIterator[Client]:
    settings = agent_settings(chain, account, place / "store.db", changed)
    async with open_caller(settings) as at_hand, Client(build_server(at_hand)) as client:
        yield client


async def ask(client: Client, name: str, **arguments: object) -> dict[str, Any]:
    found = await client.call_tool(name, arguments)
    assert not found.is_error, found.content
    return found.structured_content or {}


async def test_the_origins_calls_are_understood(local_chain: LocalChain, tmp_path: Path) -> None:
    """Post without title and config, browse by prize, submit with a numeric agent id: all as it sent them."""
    poster = local_chain.poster.address
    async with tools(local_chain, None, tmp_path) as client:
        plan = await ask(client, "challenge_post", **ORIGIN_POST, sender=poster)
        details = plan["details"]
        assert (details["evaluatorKind"], details["evalConfigHash"]) == ("self", "0x" + "00" * 32)
        assert (details["payoutBps"], details["scoringDeadline"] - details["deadline"]) == (
            [6000, 2500, 1500],
            48 * HOUR,
        )
        for count, shares in ((1, [10000]), (5, [4000, 2500, 1500, 1000, 1000]), (2, [5000, 5000])):
            given = {**ORIGIN_POST, "winnerCount": count}
            del given["payoutSplit"]
            told = await ask(client, "challenge_post", **given, sender=poster)
            assert told["details"]["payoutBps"] == shares
        address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
        agent = local_chain.agents[0]
        number = await local_chain.register(agent)
        sent = await ask(
            client,
            "challenge_submit",
            challengeAddress=address,
            solutionURI="data:,x",
            agentId=number,
            sender=agent.address,
        )
        assert sent["details"]["agentId"] == str(number)
        listed = await ask(client, "challenge_browse", status="OPEN", minPrize=500, maxPrize=2000, limit=10)
        assert [row["address"] for row in listed["challenges"]] == [address]
        assert (await ask(client, "challenge_browse", maxPrize=5))["challenges"] == []
        unknown = await client.call_tool("challenge_browse", {"sortDirectionOfResults": "down"})
        assert not unknown.is_error
        assert "has no `sortDirectionOfResults`" in unknown.content[-1].text  # type: ignore[union-attr]
        other = await client.call_tool("challenge_post", {**ORIGIN_POST, "token": "DOGE", "sender": poster})
        assert "'DOGE' is on local is not known" in other.content[0].text  # type: ignore[union-attr]


async def test_a_config_given_as_text_is_hashed_to_the_byte(local_chain: LocalChain, tmp_path: Path) -> None:
    """Spaces and line ends of the poster's text are what the chain commits to."""
    text = json.dumps(json.loads(RULES_CONFIG), indent=3) + "\n "
    async with tools(local_chain, None, tmp_path) as client:
        checked = await ask(client, "config_check", evalConfigJSON=text)
        given = {**ORIGIN_POST, "evalConfigJSON": text, "sender": local_chain.poster.address}
        plan = await ask(client, "challenge_post", **given)
        as_object = await ask(client, "config_check", evalConfigJSON=json.loads(RULES_CONFIG))
    assert checked["hash"] == plan["details"]["evalConfigHash"] == keccak_hex(text.encode())
    assert plan["details"]["evaluatorKind"] == "clara"
    assert as_object["ok"]


async def test_a_config_is_checked_for_the_service_that_evaluates_it(local_chain: LocalChain, tmp_path: Path) -> None:
    """Behind CLARA_API_URL is a service without a model: that it lacks one is told, and by its address."""
    config = '{"version": 1, "features": ["novelty"], "criteria": "The newest idea that works is the best one here."}'
    async with (
        running_service(tmp_path / "service") as service,
        tools(local_chain, None, tmp_path, CLARA_API_URL=service.url) as client,
    ):
        found = await client.call_tool("config_check", {"evalConfigJSON": config})
        free = await client.call_tool("config_check", {"evalConfigJSON": RULES_CONFIG})
    assert service.url in str((found.structured_content or {})["warnings"])
    assert "no known price here" in found.content[0].text  # type: ignore[union-attr]
    assert "20 entries is free" in free.content[0].text  # type: ignore[union-attr]


async def test_a_challenge_is_scored_by_its_poster_with_tools_alone(local_chain: LocalChain, tmp_path: Path) -> None:
    """Too early, by a stranger and twice are refused in words; in time the named winners are paid and claim."""
    chain = local_chain
    best = [chain.agents[2].address, f"{chain.agents[0].address}=100"]
    terms = {"prizePool": "1000", "deadline": "1 day", "payoutSplit": [7000, 3000], "winnerCount": 2}
    async with (
        tools(chain, chain.poster, tmp_path) as poster,
        tools(chain, chain.agents[0], tmp_path / "other") as stranger,
        tools(chain, chain.agents[2], tmp_path / "third") as third,
    ):
        posted = await ask(poster, "challenge_post", **{**ORIGIN_POST, **terms}, confirm=True)
        address = posted["challenge"]
        scores = {"address": address, "winners": best, "confirm": True}
        for client in (stranger, third):
            await ask(
                client,
                "challenge_submit",
                address=address,
                content=f"def sort(xs): xs.sort() # {client}",
                register=True,
                confirm=True,
            )
        early = await poster.call_tool("challenge_post_scores", scores)
        assert "are open until" in early.content[0].text  # type: ignore[union-attr]
        await chain.move_time(DAY + 1)
        theirs = await stranger.call_tool("challenge_post_scores", scores)
        assert "is not the poster" in theirs.content[0].text  # type: ignore[union-attr]
        few = await poster.call_tool("challenge_post_scores", {**scores, "winners": best[:1]})
        assert "2 places are paid, but 1 submitters are named" in few.content[0].text  # type: ignore[union-attr]
        sent = await ask(poster, "challenge_post_scores", **scores)
        assert [(row["address"], row["prize"]) for row in sent["details"]["winners"]] == [
            (chain.agents[2].address, "700 USDC"),
            (chain.agents[0].address, "300 USDC"),
        ]
        again = await poster.call_tool("challenge_post_scores", scores)
        assert "cannot be changed" in again.content[0].text  # type: ignore[union-attr]
        await chain.move_time(DAY)
        before = await chain.balance(chain.agents[0].address)
        await ask(stranger, "challenge_claim", address=address, confirm=True)
    assert await chain.balance(chain.agents[0].address) - before == 300 * USDC


async def test_a_challenge_is_scored_from_a_file_in_a_shell(local_chain: LocalChain, tmp_path: Path) -> None:
    """By commands alone, from post to claims: `challenge score` reads a CSV whole, orders it by score, shows the plan."""
    chain = local_chain

    async def shell(account: DevAccount, *words: str) -> dict[str, Any]:
        environ = agent_environment(chain, account, tmp_path / f"{account.index}.db")
        told = await asyncio.to_thread(CliRunner().invoke, app, ["challenge", *words, "--json"], env=environ)
        assert told.exit_code == 0, repr(told.exception)
        found: dict[str, Any] = json.loads(told.stdout)
        return found

    terms = ("--prize", "1000", "--deadline", "1 day", "--payout", "7000,3000", "--evaluator", "self")
    about = ("--title", "Sort", "--problem", "Sort a list of numbers in place. " * 6)
    posted = await shell(chain.poster, "post", *about, *terms, "--send", "--yes")
    assert posted["outcome"] == "sent", posted
    address = posted["challenge"]
    for agent in chain.agents[:3]:
        (tmp_path / "draft.py").write_text(f"def sort_{agent.index}(xs):\n    xs.sort()\n    return xs\n")
        entered = await shell(
            agent, "submit", address, "--file", str(tmp_path / "draft.py"), "--register", "--send", "--yes"
        )
        assert entered["outcome"] == "sent", entered
    await chain.move_time(DAY + 1)
    rows = [f"{agent.address},{score}" for agent, score in zip(chain.agents, (10, 9000, 8000), strict=False)]
    (tmp_path / "scores.csv").write_text("\n".join(["address,score", *rows]))
    (tmp_path / "half.csv").write_text("\n".join(["address,score", rows[0], f"{chain.agents[1].address}, ", rows[2]]))
    environ = agent_environment(chain, chain.poster, tmp_path / "half.db")
    half = ["challenge", "score", address, "--scores", str(tmp_path / "half.csv"), "--json"]
    refused = await asyncio.to_thread(CliRunner().invoke, app, half, env=environ)
    assert "2 of 3 submitters have a score" in str(refused.exception)
    words = ("score", address, "--scores", str(tmp_path / "scores.csv"))
    assert (await shell(chain.poster, *words))["outcome"] == "needs_confirmation"
    found = await shell(chain.poster, *words, "--send", "--yes")
    assert (found["outcome"], len(found["sent"])) == ("sent", 2)
    assert [row["score"] for row in found["details"]["winners"]] == [9000, 8000]
    await chain.move_time(DAY)
    for agent, prize in ((chain.agents[1], 700), (chain.agents[2], 300)):
        before = await chain.balance(agent.address)
        claimed = await shell(agent, "claim", address, "--send", "--yes")
        assert (claimed["outcome"], await chain.balance(agent.address) - before) == ("sent", prize * USDC), claimed


def test_scores_are_read_from_what_people_have() -> None:
    """A result's rankings, a list, and lines by hand name the same places; nonsense is refused."""
    accounts = ["0x" + f"{number:040x}" for number in (1, 2)]
    by_hand = f"{accounts[0]}=90\n{accounts[1]}"
    rankings = json.dumps({"rankings": [{"address": accounts[0], "score": 90}, {"address": accounts[1]}]})
    assert read_places(by_hand) == read_places(rankings) == read_places(json.dumps(by_hand.split()))
    for wrong in ("{}", "[1]", "0x12", f"{accounts[0]}=10001", f"{accounts[0]}=x"):
        with pytest.raises(BadInput):
            read_places(wrong)
