"""A hidden harness through the real service: signed, hashed, in time; and drafts measured before they are submitted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from pydantic import SecretStr
from tests.support.agents import agent_environment
from tests.support.executed_rounds import FEATURES, GOOD, HIDDEN, PUBLIC, TEXTS, WRONG, hidden, post
from tests.support.service_cases import FAST, free_socket
from tests.support.shell import Shell

from clara_eval.actions.harness import reveal_message
from clara_eval.actions.results import eval_status, leaderboard
from clara_eval.app import open_caller
from clara_eval.challenges.challenge_index import read_document
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, sign_text
from clara_eval.devnet.demo.lifecycle import local_settings, write_trace
from clara_eval.devnet.local_chain import DAY, HOUR, LocalChain
from clara_eval.documents.store_keys import scores_key, status_key
from clara_eval.evaluation.execution import WITHHELD
from clara_eval.harness import Harness, Language, Machine, MissingEngine
from clara_eval.harness.model import hide
from clara_eval.interfaces import words
from clara_eval.interfaces.mcp import text as tool_text
from clara_eval.interfaces.serve import serving
from clara_eval.service.engine import Engine


async def settled(engine: Engine, address: Address) -> dict[str, Any]:
    """The status in which the service leaves this challenge."""
    await engine.requests.request(address)
    for _ in range(1200):
        found = await read_document(engine.app.store, 31337, status_key(address)) or {}
        if found.get("status") in {"complete", "failed", "review"}:
            break
        await asyncio.sleep(0.1)
    return found


async def test_a_reveal_through_the_service(local_chain: LocalChain, tmp_path: Path) -> None:
    """Wrong signers and wrong documents are refused, the right one is taken, and the service posts with its tests."""
    spec, document = hidden("fail")
    address = await post(local_chain, spec, FEATURES, TEXTS, document.private_set_hash)
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    other = hide(Harness("javascript", HIDDEN))

    def signed(key: str) -> str:
        return sign_text(SecretStr(key), reveal_message(31337, address, document.private_set_hash))

    by_poster, by_agent = signed(local_chain.poster.key), signed(local_chain.agents[0].key)
    with free_socket() as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/challenges/{address}/harness"
        async with serving(settings, listening, mode="all", options=FAST) as engine, aiohttp.ClientSession() as http:

            async def reveal(text: str, signature: str) -> tuple[int, dict[str, Any]]:
                async with http.post(url, json={"document": text, "signature": signature}) as answer:
                    return answer.status, await answer.json()

            assert (await reveal(document.content.decode(), by_agent))[0] == 409
            status, problem = await reveal(other.content.decode(), by_poster)
            assert status == 409
            assert "committed to" in json.dumps(problem)
            assert (await reveal("not a document", by_poster))[0] == 409
            malformed = ("0x" + "f" * 130, "0x" + "0" * 130, by_poster[:-2] + "05", by_poster[:-2])
            assert {(await reveal(document.content.decode(), bad))[0] for bad in malformed} <= {409, 422}
            assert await read_document(engine.app.store, 31337, scores_key(address)) is None
            status, said = await reveal(document.content.decode(), by_poster)
            assert (status, said["privateSetHash"]) == (200, document.private_set_hash)
            found = await settled(engine, address)
            scores = await read_document(engine.app.store, 31337, scores_key(address)) or {}
    assert found["status"] == "complete", found
    assert scores["rankings"][0]["address"] == local_chain.agents[0].address


@pytest.mark.parametrize(("if_not_revealed", "ends"), [("public", "complete"), ("fail", "failed")])
async def test_a_harness_that_is_not_revealed_in_time_through_the_service(
    local_chain: LocalChain, tmp_path: Path, if_not_revealed: str, ends: str
) -> None:
    """The service goes on with the public harness, or posts nothing, as the config said beforehand."""
    spec, document = hidden(if_not_revealed, **({"source": PUBLIC} if if_not_revealed == "public" else {}))
    address = await post(local_chain, spec, FEATURES, TEXTS, document.private_set_hash)
    await local_chain.move_time(2 * DAY)
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    with free_socket() as listening:
        async with serving(settings, listening, mode="all", options=FAST) as engine:
            found = await settled(engine, address)
            scores = await read_document(engine.app.store, 31337, scores_key(address))
            await _seen_by_everybody(settings, f"http://127.0.0.1:{listening.getsockname()[1]}", address, ends)
    assert found["status"] == ends, found
    assert found["warning"] == WITHHELD
    if ends == "failed":
        assert scores is None
        assert "not revealed in time" in found["reason"]
    else:
        assert scores is not None
        assert scores["rankings"][0]["executed"]["tests"] == 1


async def _seen_by_everybody(settings: Settings, url: str, address: Address, ends: str) -> None:
    """REST, page and tools say that the harness was withheld; where nothing is posted, the status does."""
    posted = ends == "complete"
    async with aiohttp.ClientSession() as http:
        paths = [f"/challenges/{address}", f"/api/v1/challenges/{address}/eval-status"]
        for path in [*paths, *([f"/api/v1/challenges/{address}/leaderboard"] if posted else [])]:
            async with http.get(url + path) as answer:
                assert WITHHELD in await answer.text(), path
    async with open_caller(settings) as caller:
        told = [tool_text.status(words.explain_status(await eval_status(caller, address), tool_text.NAMES))]
        told += (
            [tool_text.leaderboard(words.add_trace(await leaderboard(caller, address), tool_text.NAMES))]
            if posted
            else []
        )
    assert all(f"Warning: {WITHHELD}" in text for text in told), told


ROUNDS: dict[str, tuple[str, str, str]] = {
    "python": (
        "def test_two(s):\n    assert s.double(2) == 4\n\ndef metric_work(s):\n    assert s.double(3) == 6\n    return 1\n",
        "def double(n):\n    return n + n\n",
        "def double(n):\n    return n * n + 1  # neither doubled nor squared\n",
    ),
    "javascript": (PUBLIC, GOOD, "export const double = (n) => n * n + 1; // neither doubled nor squared"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", ROUNDS)
async def test_a_round_of_scripts_through_the_service_holds_in_a_clean_process(
    local_chain: LocalChain, tmp_path: Path, language: str
) -> None:
    """What the service ran and posted is run again from the trace alone, by a program that knows nothing else."""
    try:
        Machine().require(cast("Language", language))
    except MissingEngine as missing:
        pytest.skip(missing.message)
    harness, good, wrong = ROUNDS[language]
    spec = {"language": language, "source": harness}
    address = await post(local_chain, spec, ("tests_passed", "fuel_two", "loads"), (wrong, good))
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    with free_socket() as listening:
        async with serving(settings, listening, mode="all", options=FAST) as engine:
            found = await settled(engine, address)
            scores = await read_document(engine.app.store, 31337, scores_key(address)) or {}
            trace = await write_trace(engine.app, address)
    assert found["status"] == "complete", found
    assert [row["executed"]["testsPassed"] for row in scores["rankings"]] == [1, 0]
    assert scores["rankings"][0]["address"] == local_chain.agents[1].address
    clean = tmp_path / "clean"
    clean.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "clara_eval", "verify", str(trace), "--json"),
        cwd=clean,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert "measures what is recorded" not in out.decode()


async def test_a_harness_is_not_taken_before_the_deadline(
    local_chain: LocalChain, shell: Shell, tmp_path: Path
) -> None:
    """While submissions are open, a reveal by the command is refused with the reason."""
    spec, document = hidden("public", source=PUBLIC)
    snapshot = await post(local_chain, spec, FEATURES, [GOOD], document.private_set_hash, close=False)
    file = tmp_path / "harness.json"
    file.write_bytes(document.content)
    code, _, said = await command(shell, local_chain, tmp_path, "harness", "reveal", snapshot, str(file))
    assert code == 1
    assert re.search(r"are open until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said)
    await local_chain.move_time(HOUR + 1)
    code, out, _ = await command(shell, local_chain, tmp_path, "harness", "reveal", snapshot, str(file), "--json")
    assert code == 0
    assert json.loads(out)["privateSetHash"] == document.private_set_hash


async def test_a_draft_is_measured_before_it_is_submitted(
    local_chain: LocalChain, shell: Shell, tmp_path: Path
) -> None:
    """`challenge try` gives what an evaluation would measure, for right and for wrong drafts, without a wallet."""
    features = ("tests_passed", "test_two", "fuel_two", "max_nesting")
    address = await post(local_chain, {"language": "javascript", "source": PUBLIC}, features, [GOOD], close=False)
    found = {}
    for name, text in (("good", GOOD), ("wrong", WRONG.replace("n * n", "n * 3"))):
        file = tmp_path / f"{name}.js"
        file.write_text(text, encoding="utf-8")
        code, out, said = await command(
            shell, local_chain, tmp_path, "challenge", "try", address, "--file", str(file), "--json", wallet=False
        )
        assert code == 0, said
        found[name] = json.loads(out)
    assert found["good"]["outcome"] == "passed"
    assert found["good"]["features"]["tests_passed"] == 1.0
    assert found["good"]["features"]["max_nesting"] == 0
    assert found["good"]["harness"] == "public"
    assert (found["wrong"]["outcome"], found["wrong"]["features"]["test_two"]) == ("failed", False)


async def command(
    shell: Shell, chain: LocalChain, place: Path, *words: str, wallet: bool = True
) -> tuple[int, str, str]:
    env = {**os.environ, **agent_environment(chain, chain.poster if wallet else None, place / "store.db")}
    process = await asyncio.create_subprocess_exec(
        shell.program, *words, stdout=-1, stderr=-1, env=env, cwd=Path(__file__).parents[2]
    )
    out, said = await process.communicate()
    return process.returncode or 0, out.decode(), said.decode()
