"""Values of journals and traces: written in one casing, exact, and read back as they were."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.support.winners import challenge

from clara_eval.challenges.status import Attempts
from clara_eval.challenges.venue import CHALLENGE
from clara_eval.core.codec import DECIMAL, JsonCodec, read_stored
from clara_eval.core.errors import Disagrees
from clara_eval.evaluation.trace import Journal
from clara_eval.store.sqlite import SqliteStore


@dataclass(frozen=True, slots=True)
class Paid:
    agent_id: int = field(metadata=DECIMAL)
    short_name: str = ""


def test_a_challenge_of_any_size_comes_back_as_it_was() -> None:
    """The largest numbers a contract holds survive, as decimal strings under camelCase names."""
    largest = 2**256 - 1
    one = replace(challenge(3, (6000, 4000), pool=largest), poster_bond=largest, scoring_deadline=largest)
    body = json.loads(CHALLENGE.text(one))
    assert body["prizePool"] == body["posterBond"] == body["scoringDeadline"] == str(largest)
    assert body["submissions"][2]["agentId"] == "3"
    assert CHALLENGE.read_text(CHALLENGE.text(one)) == CHALLENGE.read(body) == one


@pytest.mark.parametrize(
    "body", [None, {}, {"agent_id": "1"}, {"agentId": "1", "more": 1}, {"agentId": "many"}, {"agentId": "1.5"}]
)
def test_another_shape_is_refused(body: object) -> None:
    """A missing, unknown or misspelt field is an error, never a default."""
    with pytest.raises(ValueError, match="validation error"):
        JsonCodec(Paid).read(body)


async def test_a_journal_of_another_version_is_told(tmp_path: Path) -> None:
    """A step that an older version recorded in its own form stops the walk with the way on, not with a crash."""

    async def made() -> Paid:
        return Paid(7)

    store = await SqliteStore.open(tmp_path / "journal.db")
    await store.add_entry("1:0x1", "paid", '{"agent_id":7,"short_name":""}')
    with pytest.raises(Disagrees, match="another form") as caught:
        await Journal(store, "1:0x1").once("paid", JsonCodec(Paid), made)
    assert "--restart" in caught.value.remedy
    assert await Journal(store, "1:0x2").once("paid", JsonCodec(Paid), made) == Paid(7)
    await store.close()


def test_what_a_newer_version_stored_is_read_after_a_rollback() -> None:
    """A field that is not known is left out; one that is missing has its default."""
    assert read_stored(Attempts, '{"failures":2,"from_tomorrow":[1],"number":3}') == Attempts(3, 2)
    assert read_stored(Attempts, "{}") == Attempts()
