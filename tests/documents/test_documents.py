"""What evaluations write and what every door reads are the same documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.rounds import closed_round, opened, run

from clara_eval.challenges.challenge_index import save_summary
from clara_eval.core.address import Address
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.documents.results import (
    Document,
    EvalStatus,
    Features,
    Pairwise,
    Scores,
    Summary,
    read,
)
from clara_eval.documents.store_keys import (
    features_key,
    index_key,
    pairwise_key,
    scores_key,
    status_key,
)
from clara_eval.store.sqlite import SqliteStore

SPECIFIED: dict[type[Document], set[str]] = {
    EvalStatus: {"status", "progress", "startedAt"},
    Features: {"features", "extractedAt"},
    Pairwise: {"winner", "confidence", "reason"},
    Scores: {"rankings", "publishedAt"},
}


def unknown_fields(value: Any, path: str = "") -> list[str]:
    """Everything below a document that its model does not define."""
    if isinstance(value, BaseModel):
        found = [f"{path}.{name}" for name in value.model_extra or {}]
        return found + [one for name in type(value).model_fields for one in _inside(value, name, path)]
    if isinstance(value, list):
        return [one for item in value for one in unknown_fields(item, f"{path}[]")]
    return []


def _inside(value: BaseModel, name: str, path: str) -> list[str]:
    return unknown_fields(getattr(value, name), f"{path}.{name}")


async def test_every_written_document_has_exactly_the_defined_fields(local_chain: LocalChain, tmp_path: Path) -> None:
    """After a posted round each stored document is read without loss; specified fields are there, ours are defined."""
    address = await closed_round(local_chain)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        await save_summary(app.store, done.challenge, "evaluator")
        game = done.result.comparisons[0]
        kinds: dict[str, type[Document]] = {
            status_key(address): EvalStatus,
            scores_key(address): Scores,
            features_key(address, game.first): Features,
            pairwise_key(address, game.first, game.second): Pairwise,
            index_key(address): Summary,
        }
        for key, kind in kinds.items():
            stored = json.loads(await app.store.get(31337, key) or "null")
            found = await read(app.store, 31337, kind, key)
            assert found is not None, key
            assert unknown_fields(found) == [], key
            assert found.model_dump(mode="json", exclude_unset=True) == stored
            assert SPECIFIED.get(kind, set()) <= set(stored)
        posted_at = (await app.chain.results.scoring_state(address)).score_posted_at
        scores = await read(app.store, 31337, Scores, scores_key(address))
        summary = await read(app.store, 31337, Summary, index_key(address))
    assert summary is not None
    assert summary.rules is not None
    assert summary.rules.criteria
    assert sum(feature.weight for feature in summary.rules.features) == pytest.approx(1)
    assert scores is not None
    assert scores.publishedAt == posted_at > 0
    assert scores.is_posted
    assert [w.account for w in scores.winners] == [row.address for row in scores.rankings[:3]]


async def test_another_shape_is_no_document(tmp_path: Path) -> None:
    """What is missing entirely is None; a document of another shape is an error, never half of one."""
    store = await SqliteStore.open(tmp_path / "store.db")
    key = scores_key(Address("0x" + "1" * 40))
    assert await read(store, 1, Scores, key) is None
    for text in ("[]", "{}", '{"rankings":[{"score":1}]}', '{"rankings":"none"}'):
        await store.put(1, key, text)
        with pytest.raises(ValueError, match="validation error"):
            await read(store, 1, Scores, key)
    await store.close()
