"""A large round by rules stores no pairs: each comparison is made when it is asked for, the same from store and trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import permutations
from pathlib import Path

import pytest
from tests.support.large_round import large_challenge, large_lines, run_large

from clara_eval.chain.model import Challenge
from clara_eval.challenges.public_documents import public_keys
from clara_eval.challenges.stored_results import comparisons_among, comparisons_of, documents_in
from clara_eval.documents.results import Pairwise
from clara_eval.documents.store_keys import verdicts_key
from clara_eval.evaluation.result import EvaluationResult
from clara_eval.store.sql_store import SqlStore
from clara_eval.store.sqlite import SqliteStore


@pytest.fixture(scope="module")
async def large() -> tuple[Challenge, EvaluationResult]:
    challenge = large_challenge(101)
    return challenge, await run_large(challenge)


@pytest.fixture
async def store(large: tuple[Challenge, EvaluationResult], tmp_path: Path) -> AsyncIterator[SqlStore]:
    """The public documents of the round, as an evaluation leaves them."""
    challenge, walked = large
    opened = await SqliteStore.open(tmp_path / "large.db")
    await opened.put_many(challenge.chain_id, list(public_keys(challenge.address, 1, walked)))
    yield opened
    await opened.close()


async def comparison(store: SqlStore, address: str, first: str, second: str) -> Pairwise | None:
    return (await comparisons_of(store, 31337, address, first, [second])).get((first, second))


async def test_a_large_round_stores_one_document_instead_of_its_pairs(
    large: tuple[Challenge, EvaluationResult], store: SqlStore
) -> None:
    """A hundred and one vectors and one document of verdicts, where ten thousand pairs would stand."""
    challenge, _ = large
    keys = await store.keys(challenge.chain_id, f"challenges:{challenge.address}:")
    assert len(keys) == 102
    assert verdicts_key(challenge.address) in keys


async def test_games_of_a_large_round_are_those_that_were_played(
    large: tuple[Challenge, EvaluationResult], store: SqlStore, tmp_path: Path
) -> None:
    """Read from the store and from the trace, a comparison has the verdict, the confidence and the reason of the round."""
    challenge, walked = large
    told = documents_in(large_lines(101), challenge.address)
    service = await SqliteStore.open(tmp_path / "told.db")
    await service.put_many(challenge.chain_id, list(told.items()))
    for played in walked.comparisons[::997]:
        asked = (played.first, played.second)
        stored = await comparison(store, challenge.address, *asked)
        assert stored is not None
        assert stored == await comparison(service, challenge.address, *asked)
        winner = {"first": "A", "second": "B", "tie": "tie", None: None}[played.winner]
        assert (stored.winner, stored.confidence, stored.reason) == (winner, played.confidence, played.reason)
        assert [vote.judge for vote in stored.votes] == ["rules"]
    await service.close()


async def test_the_games_of_a_few_are_read_at_once(large: tuple[Challenge, EvaluationResult], store: SqlStore) -> None:
    """Among three entries there are six looks, and of one against two others four."""
    challenge, walked = large
    three = [place.account for place in walked.placed[:3]]
    among = await comparisons_among(store, challenge.chain_id, challenge.address, three)
    assert set(among) == set(permutations(three, 2))
    of_one = await comparisons_of(store, challenge.chain_id, challenge.address, three[0], three[1:])
    assert of_one == {pair: comparison for pair, comparison in among.items() if three[0] in pair}
    assert among[three[0], three[2]].outcome(shown_first=True) == "won"


async def test_who_did_not_play_has_no_game(large: tuple[Challenge, EvaluationResult], store: SqlStore) -> None:
    """A stranger, an entry against itself, and another challenge have no comparisons."""
    challenge, walked = large
    one, two = walked.comparisons[0].first, walked.comparisons[0].second
    for first, second in ((one, "0x" + "11" * 20), (one, one)):
        assert await comparison(store, challenge.address, first, second) is None
    assert await comparison(store, "0x" + "22" * 20, one, two) is None
