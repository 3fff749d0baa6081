"""A factory with many challenges: what is over costs a tick nothing, whatever their number."""

from __future__ import annotations

from pathlib import Path

from tests.support.service import finished, settings_of, ticked

from clara_eval.app import open_app
from clara_eval.devnet.demo.round import post_round
from clara_eval.devnet.local_chain import HOUR, LocalChain
from clara_eval.documents.results import PaidWinner, RoundResult, Summary, read
from clara_eval.documents.store_keys import index_key, result_key
from clara_eval.service.record import RECORDED

MANY = 300


async def test_what_is_over_costs_later_ticks_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Three hundred finished challenges are read once; then a tick asks the store as often as without them, looks at
    none of them on the chain, and still counts them.
    """
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        await post_round(local_chain)
        await ticked(app)
        before, alone = await ticked(app)
        await finished(app, MANY)
        first, noting = await ticked(app)
        later, beside = await ticked(app)
    assert noting["put"] >= MANY
    assert beside == alone
    assert first.problems == later.problems == before.problems
    assert later.statuses.get("complete", 0) == before.statuses.get("complete", 0) + MANY // 2
    assert sum(later.statuses.values()) == sum(before.statuses.values()) + MANY


async def test_a_result_waits_for_no_others_that_have_no_news(local_chain: LocalChain, tmp_path: Path) -> None:
    """However many challenges wait to be finalized with their results written down, a new result is recorded next."""
    async with open_app(settings_of(local_chain, tmp_path)) as app:
        address_of_new = await post_round(local_chain)
        await local_chain.move_time(HOUR + 1)
        await finished(app, 30)
        for number in range(30):  # they come first in the index, and nothing of them can be read on the chain
            address = f"0x{number + 1:040x}"
            summary = await read(app.store, app.chain_id, Summary, index_key(address))
            assert summary is not None
            waiting = summary.model_copy(update={"chainStatus": "scoring", "scorePostedAt": 5})
            winner = PaidWinner(agentId=1, address="0x" + "cc" * 20, score=1, prizeAmount="1")
            known = RoundResult(chainStatus="scoring", token=summary.token, entrants=[], winners=[winner], isOver=False)
            rows = [(index_key(address), waiting.model_dump_json()), (result_key(address), known.model_dump_json())]
            await app.store.put_many(app.chain_id, rows)
            await app.store.driver.fetch("DELETE FROM public_keys WHERE key = ?", (RECORDED + address,))
        await ticked(app, starts=True)
        found = await read(app.store, app.chain_id, RoundResult, result_key(address_of_new))
    assert found is not None
    assert (found.chainStatus, found.entrants) == ("open", [])
