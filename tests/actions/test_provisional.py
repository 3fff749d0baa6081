"""The provisional board of an open challenge: what tools measure of public entries, in bounded work."""

from __future__ import annotations

from pathlib import Path

from tests.support.executed_rounds import ENDLESS, GOOD, PUBLIC, SLOW, WRONG, post
from tests.support.rounds import opened
from tests.support.service import ticked

from clara_eval.actions.provisional import NOT_ON_CHAIN, measure_open
from clara_eval.actions.published import ResultReader
from clara_eval.challenges.challenge_index import summary_of
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.documents.store_keys import index_key

SPEC = {"language": "javascript", "source": PUBLIC, "reference": GOOD}
FEATURES = ("tests_passed", "fuel_two")


async def test_open_entries_are_measured_once_and_in_bounded_work(local_chain: LocalChain, tmp_path: Path) -> None:
    """Each entry is run once, at most so many at a time; the reference is a row, what is not on chain is not fetched, and
    nothing is shown once entries are closed.
    """
    address = await post(local_chain, SPEC, FEATURES, (WRONG, SLOW, ENDLESS), close=False)
    await local_chain.submit(local_chain.agents[3], address, "https://example.com/secret.js")
    async with opened(local_chain, tmp_path) as app:
        reader = ResultReader(app.store, app.chain_id, "after_post")
        await ticked(app)
        board = (await reader.detail(address, admin=False)).provisional
        assert board is not None
        names = {str(one.address): number for number, one in enumerate(local_chain.agents)}
        assert [names.get(row.address or "") for row in board.entries] == [None, 0, 1, 2, 3]
        facts = [row.facts.get("tests_passed") for row in board.entries]
        assert facts == [1.0, 1.0, 1.0, 0.0, None]
        assert (board.entries[-1].problem, board.entries[-1].facts) == (NOT_ON_CHAIN, {})
        challenge = await look_at_challenge(app.chain, address)
        assert await measure_open(app, challenge, challenge.block, 10) == (0, False)
        await local_chain.submit(local_chain.agents[4], address, "data:text/plain,%2F%2F one")
        await local_chain.submit(local_chain.agents[5], address, "data:text/plain,%2F%2F two")
        challenge = await look_at_challenge(app.chain, address)
        assert await measure_open(app, challenge, challenge.block, 1) == (1, True)
        closed = summary_of(challenge, None).model_copy(update={"deadline": 1})
        await app.store.put(app.chain_id, index_key(address), closed.model_dump_json())
        assert (await reader.detail(address, admin=False)).provisional is None
