"""Audit by sampling: what is drawn is the chain's choice, and what comes out is told with its uncertainty."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.scripted_judge import scripted_words
from tests.support.step_worker import PACE
from tests.support.verified import verify_trace
from typer.testing import CliRunner

from clara_eval.actions.calibrate import CostEstimate, draw, rejudge
from clara_eval.actions.evaluate import evaluate
from clara_eval.app import open_app
from clara_eval.challenges.replay import Checked
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, Temporary
from clara_eval.core.hashing import sha256_hex
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.evaluation.play import Comparison, RuledComparisons
from clara_eval.interfaces.cli import app as command
from clara_eval.judge.comparison import RulesJudge
from clara_eval.ranking import Tally


def test_the_draw_is_fair_and_the_same_for_everybody() -> None:
    """All different, the longer draw begins with the shorter one, and no number is preferred."""
    seeds = [sha256_hex(str(number).encode()) for number in range(2000)]
    assert sorted(draw(seeds[0], 50, 50)) == list(range(50))
    assert draw(seeds[0], 50, 99)[:7] == draw(seeds[0], 50, 7)
    assert draw(seeds[0], 0, 5) == []
    counts = Counter(number for seed in seeds for number in draw(seed, 10, 3))
    assert all(520 < counts[number] < 680 for number in range(10)), counts


async def test_comparisons_are_asked_again_and_the_disagreement_is_told(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The rules agree with themselves; a model that decides otherwise is counted, with its cost said before."""
    address = await post_round(local_chain)
    await submit_round(local_chain, address)
    await local_chain.move_time(HOUR + 1)
    settings = local_settings(local_chain, tmp_path / "store.db", tmp_path)
    async with open_app(settings, pace=PACE) as app:
        await evaluate(app, address)
    rpc, told = local_chain.rpc_url, list[CostEstimate]()
    checked = await verify_trace(address, settings, rpc=rpc)
    with pytest.raises(Temporary, match="No node has block"):
        await rejudge(checked, settings, judge="rules", wanted=1, rpc=rpc, on_estimate=told.append)
    await local_chain.mine()
    same = await rejudge(checked, settings, judge="rules", wanted=12, rpc=rpc, on_estimate=told.append)
    assert (same.drawn, same.otherwise, same.unanswered) == (12, (), 0)
    assert same.disagreement.high is not None
    assert 0.2 < same.disagreement.high < 0.3, "twelve that agree leave a quarter open"
    assert (told[0].calls, told[0].micro_usd) == (0, 0)
    async with FakeEndpoint(words=scripted_words).running() as endpoint:
        judge = f"openai:fake@{endpoint.url}"
        priced = settings.model_copy(update={"prices": f"{judge}=1/2"})
        asked: list[int] = []

        def on_estimate(cost: CostEstimate) -> None:
            asked.append(endpoint.paid)
            told.append(cost)

        model = await rejudge(checked, priced, judge=judge, wanted=12, rpc=rpc, on_estimate=on_estimate)
        assert asked == [0], "the cost is told before anything is asked"
        assert told[-1].calls == 12
        assert (told[-1].micro_usd or 0) > 0
        paid = endpoint.paid
        assert paid > 0
        await _asked_in_a_shell(address, priced, judge, rpc, endpoint)
    assert model.seed == same.seed
    assert model.drawn == 12
    await _sampled_in_a_large_round(checked, rpc, settings.database_url)
    assert model.disagreement.value == pytest.approx(len(model.otherwise) / (12 - model.unanswered), abs=1e-6)
    with pytest.raises(BadInput, match="block after the post"):
        await rejudge(checked, settings, judge="rules", wanted=1, rpc=None, on_estimate=told.append)


async def _asked_in_a_shell(address: Address, settings: Settings, judge: str, rpc: str, endpoint: FakeEndpoint) -> None:
    """Nobody to ask and no --yes: the trace is checked, the cost is told, nothing is asked; with --yes it is."""
    environment = {
        "CLARA_DATABASE_URL": settings.database_url, "CLARA_NETWORK": "local", "CLARA_PRICES": settings.prices,
    }  # fmt: skip
    words, paid = ["verify", address, "--rpc", rpc, "--rejudge", "30", "--judge", judge], endpoint.paid
    refused = await asyncio.to_thread(CliRunner().invoke, command, words, env=environment)
    assert (str(refused.exception), endpoint.paid) == (
        "Nothing was asked: there is no terminal to confirm the cost. Add --yes to accept it.",
        paid,
    )
    assert all(said in refused.output for said in ("every entry holds", "30 times, for about $")), refused.output
    agreed = await asyncio.to_thread(CliRunner().invoke, command, [*words, "--yes", "--json"], env=environment)
    assert agreed.exit_code == 0, agreed.output
    assert endpoint.paid > paid
    assert json.loads(agreed.stdout)["rejudged"]["drawn"] == 30


class Counted(RuledComparisons):
    """Counts which comparisons are made."""

    made: Sequence[int] = ()

    def __getitem__(self, number: int | slice) -> Comparison | list[Comparison]:  # type: ignore[override]
        self.made = [*self.made, *(range(len(self))[number] if isinstance(number, slice) else [number])]
        return super().__getitem__(number)


async def _sampled_in_a_large_round(checked: Checked, rpc: str, database: str) -> None:
    """Only what is drawn is made; the node is one of the trace's network, whatever that of the settings is."""
    vectors = {str(account): facts.vector for account, facts in checked.result.features.items()}
    pairs = np.array(list(permutations(range(len(vectors)), 2)))
    nothing = np.zeros(len(pairs), dtype=np.int64)
    table = Tally(tuple(vectors), ("rules",), pairs[:, 0], pairs[:, 1], nothing, nothing)
    counted = Counted(RulesJudge(checked.result.schema), vectors, table)
    large = replace(checked, result=replace(checked.result, comparisons=counted))
    elsewhere = Settings.from_env({"CLARA_NETWORK": "base", "CLARA_DATABASE_URL": database})
    found = await rejudge(large, elsewhere, judge="rules", wanted=7, rpc=rpc, on_estimate=lambda _cost: None)
    assert (found.decided, found.drawn, found.otherwise) == (len(pairs), 7, ())
    assert list(counted.made) == draw(found.seed, len(pairs), 7)
