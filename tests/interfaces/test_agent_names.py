"""What agents call themselves: read from the registry when entries close, shown beside the address, trusted nowhere."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

from mcp import Client
from tests.support.agents import agent_settings
from tests.support.api_service import Service, running_service
from tests.support.rounds import opened

from clara_eval.app import open_caller
from clara_eval.challenges.calls import record_posted
from clara_eval.challenges.challenge_index import agent_name, summary_of
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.documents.store_keys import index_key
from clara_eval.interfaces.mcp.server import build_server
from clara_eval.service.record import record_result

HOSTILE = '\u202e<img src=x onerror=alert(1)> 0x15d34aaf54267db7d7c367839aaf71a00a2c6a65 "paid"'


def card(**fields: Any) -> str:
    return "data:application/json;base64," + base64.b64encode(json.dumps(fields).encode()).decode()


CARDS = (
    card(name="Sorting Bot", description="Sorts."),
    card(name=HOSTILE),
    "https://example.com/card.json",
    card(name={"first": "no text"}),
    "",
)


def test_a_name_is_one_short_line_of_visible_characters() -> None:
    """Control, bidirectional and invisible characters are spelled out; what is no text, or is to be fetched, is none."""
    assert agent_name(CARDS[0]) == "Sorting Bot"
    assert agent_name(card(name=HOSTILE)) == "\\u202e" + HOSTILE[1:40].strip()
    assert agent_name(card(name="a\nb\u200bc")) == "a\\nb\\u200bc"
    assert agent_name(card(name="\ud800" * 3)) == "???"
    assert len(agent_name(card(name="x" * 100_000))) == 40
    others = ("ipfs://bafy", "data:application/json,[1]", "data:application/json,{", "data:,\xff")
    assert {agent_name(uri) for uri in (*CARDS[2:], *others)} == {""}


async def posted(chain: LocalChain, service: Service, place: Path) -> Address:
    """Five agents enter; the poster pays the first two, and gives the second place the agent id of the first."""
    agents = chain.agents[40:45]
    ids = [await chain.register(agent, uri) for agent, uri in zip(agents, CARDS, strict=True)]
    address = await chain.post_challenge(PostedTerms(payout_bps=(5000, 5000)))
    await chain.submit_all(address, [Handed(agent, f"data:,{agent.address}") for agent in agents])
    await chain.move_time(2 * DAY)
    contract = chain.challenge(address)
    await chain.send(chain.poster, contract, "advanceToScoring")
    pool = await contract.read("prizePool")
    paid = [(agent.address, ids[0], 9000 - place, pool // 2) for place, agent in enumerate(agents[:2])]
    await chain.send(chain.poster, contract, "postScores", paid)
    await chain.mine(20)
    async with opened(chain, place) as app:
        challenge = await look_at_challenge(app.chain, address)
        await record_posted(service.store, app.chain.results, challenge)
        await record_result(service.store, app.chain, address, challenge.block)
        found = summary_of(challenge, "poster").model_dump_json()
        await service.store.put(app.chain_id, index_key(address), found)
    return address


async def test_names_are_beside_addresses_on_pages_in_rest_and_in_tools(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Each shows the name of the agent that submitted, not of the id a poster wrote; hostile ones stay quoted text."""
    async with running_service(tmp_path, filled=False) as service:
        address = await posted(local_chain, service, tmp_path)
        own = [str(agent.address) for agent in local_chain.agents[40:45]]
        ids = [local_chain.agent_ids[agent.address] for agent in local_chain.agents[40:45]]

        async def read(path: str) -> Any:
            return json.loads((await service.get(f"/api/v1/{path}"))[2])

        listed = await read("agents?sort=id&limit=2")
        rest = await read("agents?sort=id&limit=2&offset=2")
        rows = (await read(f"challenges/{address}/leaderboard"))["rankings"]
        record = await read(f"agents/{ids[0]}")
        paths = (f"/challenges/{address}", "/agents", f"/agents/{ids[1]}")
        pages = [(await service.get(path))[2].decode() for path in paths]
        asked, tools = {"address": address}, []
        for changed in ({}, {"CLARA_API_URL": service.url}):
            settings = agent_settings(local_chain, None, tmp_path / "api.db", changed)
            async with open_caller(settings) as at_hand, Client(build_server(at_hand)) as client:
                tools += [await client.call_tool(f"challenge_{name}", asked) for name in ("leaderboard", "detail")]
        status, _, _ = await service.get("/api/v1/agents?limit=201")
    clipped = "\\u202e" + HOSTILE[1:40].strip()
    assert (listed["total"], listed["limit"], rest["offset"], len(rest["agents"]), status) == (5, 2, 2, 2, 422)
    assert [(one["agentId"], one["address"], one["name"]) for one in listed["agents"]] == [
        (ids[0], own[0], "Sorting Bot"), (ids[1], own[1], clipped)
    ]  # fmt: skip
    assert {one["name"] for one in rest["agents"]} == {""}
    assert [(row["address"], row["name"]) for row in rows] == [(own[0], "Sorting Bot"), (own[1], clipped)]
    assert record["name"] == "Sorting Bot"
    for page in pages:
        assert f"“{html.escape(clipped)}”" in page
        assert ("<img" in page, "\u202e" in page) == (False, False)
    assert all(f'title="{one}"' in pages[0] for one in own[:2])
    for answer in tools:
        found, text = answer.structured_content or {}, answer.content[0].text  # type: ignore[union-attr]
        names = [one["name"] for one in found.get("standings") or found["agents"]]
        assert all(one["untrusted"] and one["writtenBy"] == "agent" for one in names)
        _, _, fenced = text.partition("What agents call themselves:\n<untrusted-")
        assert all(one["text"].splitlines()[1] in fenced.partition("</untrusted-")[0] for one in names)
        assert text.count("Sorting Bot") == 1
