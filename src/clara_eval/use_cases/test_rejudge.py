"""Audit by sampling: what is drawn is the chain's choice, and what comes out is told with its uncertainty."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clara_eval.app import open_app
from clara_eval.demo.lifecycle import local_settings
from clara_eval.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.errors import BadInput
from clara_eval.hashing import sha256_hex
from clara_eval.testing.fake_endpoint import FakeEndpoint
from clara_eval.testing.scripted_judge import scripted_words
from clara_eval.testing.step_worker import PACE
from clara_eval.use_cases.evaluate import evaluate
from clara_eval.use_cases.rejudge import Foreseen, draw, rejudge
from clara_eval.use_cases.verify import verify_trace


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
    await local_chain.mine()
    rpc, told = local_chain.rpc_url, list[Foreseen]()
    checked = await verify_trace(address, settings, rpc=rpc)
    same = await rejudge(checked, settings, judge="rules", wanted=12, rpc=rpc, foreseen=told.append)
    assert (same.drawn, same.otherwise, same.unanswered) == (12, (), 0)
    assert same.disagreement.high is not None
    assert 0.2 < same.disagreement.high < 0.3, "twelve that agree leave a quarter open"
    assert (told[0].calls, told[0].micro_usd) == (0, 0)
    async with FakeEndpoint(words=scripted_words).running() as endpoint:
        judge = f"openai:fake@{endpoint.url}"
        priced = settings.model_copy(update={"prices": f"{judge}=1/2"})
        asked: list[int] = []

        def foreseen(cost: Foreseen) -> None:
            asked.append(endpoint.paid)
            told.append(cost)

        model = await rejudge(checked, priced, judge=judge, wanted=12, rpc=rpc, foreseen=foreseen)
        assert asked == [0], "the cost is told before anything is asked"
        assert told[-1].calls == 12
        assert (told[-1].micro_usd or 0) > 0
        assert endpoint.paid > 0
    assert model.seed == same.seed
    assert model.drawn == 12
    assert model.disagreement.value == pytest.approx(len(model.otherwise) / (12 - model.unanswered), abs=1e-6)
    with pytest.raises(BadInput, match="block after the post"):
        await rejudge(checked, settings, judge="rules", wanted=1, rpc=None, foreseen=told.append)
