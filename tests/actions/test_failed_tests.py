"""Which tests an entry failed, and why: said once scores are posted, and never of a harness that stays hidden."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.support.agents import agent_environment
from tests.support.executed_rounds import ENDLESS, GOOD, WRONG, hidden, post
from tests.support.rounds import opened, run
from typer.testing import CliRunner

from clara_eval.actions.harness import reveal_harness, reveal_message
from clara_eval.actions.published import ResultReader
from clara_eval.actions.results import score
from clara_eval.actions.submit import try_draft
from clara_eval.app import open_caller
from clara_eval.challenges.challenge_index import read_document
from clara_eval.config.settings import Settings
from clara_eval.core.address import sign_text
from clara_eval.core.errors import NotYet
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.documents.store_keys import scores_key
from clara_eval.interfaces import words
from clara_eval.interfaces.cli import app as program
from clara_eval.interfaces.mcp import text

FEATURES = ("tests_passed", "fuel_two")
NAMES = text.NAMES


async def test_score_names_what_failed_only_after_the_post(local_chain: LocalChain, tmp_path: Path) -> None:
    """Open, closed and revealed: no name of a hidden test. Posted: each with its end, in shell, tools and REST alike."""
    spec, document = hidden("fail")
    committed = document.private_set_hash
    address = await post(local_chain, spec, FEATURES, [GOOD, WRONG, ENDLESS], committed, close=False)
    environ = agent_environment(local_chain, local_chain.agents[1], tmp_path / "store.db")
    async with open_caller(Settings.from_env(environ)) as caller:
        with pytest.raises(NotYet) as early:
            await score(caller, address)
        tried = await try_draft(caller, address, WRONG)
        assert "minus" not in f"{early.value} {tried.model_dump_json()} {words.trial_text(tried)}"
        await local_chain.move_time(HOUR + 1)
        async with opened(local_chain, tmp_path) as app:
            signed = sign_text(SecretStr(local_chain.poster.key), reveal_message(31337, address, committed))
            await reveal_harness(app, address, document.content.decode(), signed)
            with pytest.raises(NotYet) as revealed:
                await score(caller, address)
            assert "minus" not in str(revealed.value)
            await run(app, address)
            rows = (await ResultReader(app.store, 31337, "after_post").leaderboard(address, admin=False)).rankings
        found = words.explain_score(await score(caller, address), NAMES)
    failed = {row.address: row.executed.failed for row in rows if row.executed}
    good, wrong, endless = (failed[agent.address] for agent in local_chain.agents[:3])
    assert (good, wrong) == ({}, {"test_minus": "failed"})
    assert endless == dict.fromkeys(("metric_work", "test_minus", "test_two"), "out of fuel")
    assert found.standing.executed
    assert found.standing.executed.failed == wrong
    assert "1 of 2 tests passed" in found.why
    assert "Test minus: failed" in text.score(found)
    done = await asyncio.to_thread(CliRunner().invoke, program, ["score", address], env=environ)
    assert "What did not pass\n  Test minus                   failed" in done.stdout
    assert not {"test_minus", "metric_work", "fuel_two", "tests_passed"} & set(done.stdout.split())
    assert "  Tests passed                 0.5\n" in done.stdout


async def test_private_traces_name_no_test(local_chain: LocalChain, tmp_path: Path) -> None:
    """With CLARA_TRACES_PUBLIC=never the scores tell how many tests passed, and no name from the harness's tests."""
    spec, document = hidden("fail")
    address = await post(local_chain, spec, ("tests_passed",), [GOOD, WRONG], document.private_set_hash)
    async with opened(local_chain, tmp_path, traces_public="never") as app:
        signed = sign_text(SecretStr(local_chain.poster.key), reveal_message(31337, address, document.private_set_hash))
        await reveal_harness(app, address, document.content.decode(), signed)
        await run(app, address)
        scores = await read_document(app.store, 31337, scores_key(address)) or {}
    passed = sorted(row["executed"]["testsPassed"] for row in scores["rankings"])
    assert (passed, "minus" in json.dumps(scores)) == ([1, 2], False)
