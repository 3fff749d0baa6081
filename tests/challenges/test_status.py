"""The status of an evaluation survives a store that stumbles."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from tests.support.agents import agent_settings
from tests.support.statuses import read_status

from clara_eval.actions.results import eval_status, is_waiting
from clara_eval.app import open_caller
from clara_eval.challenges.status import StatusWriter, public_text, shown_to_all, status_without_evaluation
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.errors import Temporary
from clara_eval.devnet.local_chain import LocalChain, PostedTerms
from clara_eval.documents.results import EvalStatus, Summary
from clara_eval.evaluation.round import Stage
from clara_eval.store.sql_store import PublicKeys, SqlStore
from clara_eval.store.sqlite import SqliteStore


@dataclass
class Stumbling(PublicKeys):
    """The real store, whose first write is lost."""

    inner: SqlStore
    stumbles: int = 1

    async def get(self, chain_id: int, key: str) -> str | None:
        return await self.inner.get(chain_id, key)

    async def put(self, chain_id: int, key: str, value: str) -> None:
        if self.stumbles:
            self.stumbles -= 1
            raise Temporary("Postgres does not answer.")
        await self.inner.put(chain_id, key, value)


OURS, OTHER, POSTER = (Address("0x" + digit * 40) for digit in "123")


def summary(evaluator: Address, **changes: object) -> Summary:
    given: dict[str, object] = {
        "address": "0x" + "a" * 40, "chainId": 1, "title": "", "problemStatement": "", "skills": [], "poster": POSTER,
        "evaluator": evaluator, "token": {"address": "0x" + "b" * 40, "symbol": "USDC", "decimals": 6, "isKnown": True},
        "prizePool": "1", "winnerCount": 1, "payoutBps": [10000], "deadline": 1, "scoringDeadline": 2,
        "submissionCount": 2, "chainStatus": "scoring", "block": 1, "rules": None, "scorePostedAt": None, "postedBy": None,
    }  # fmt: skip
    return Summary.model_validate(given | changes)


@pytest.mark.parametrize("evaluator", [ZERO_ADDRESS, POSTER, OTHER])
def test_a_challenge_that_others_score_is_not_promised_an_evaluation(evaluator: Address) -> None:
    """Its status says who scores it and what happens without scores; then who posted, or how it ended."""
    found = status_without_evaluation(summary(evaluator), OURS)
    assert found.status == "elsewhere"
    assert (OTHER if evaluator == OTHER else "poster") in (found.reason or "")
    assert "this service does not evaluate it" in (found.reason or "")
    assert "equal share" in (found.reason or "")
    posted = status_without_evaluation(summary(evaluator, scorePostedAt=5), OURS)
    assert (posted.status, posted.progress, posted.postedBy is None) == ("complete", 100, False)
    assert status_without_evaluation(summary(evaluator, chainStatus="expired"), OURS).status == "failed"


def test_our_own_challenge_waits_for_its_turn() -> None:
    """Ours is pending; without an address of ours, a stranger's evaluator may be us."""
    assert status_without_evaluation(summary(OURS), OURS).status == "pending"
    assert status_without_evaluation(summary(OTHER), None).status == "pending"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "No node answers (10.0.0.7:8545: HTTP 500; node.example.com: TimeoutError). Check CLARA_RPC_URL, or add one.",
            "No node answers (…: HTTP 500; …: TimeoutError).",
        ),
        ("The judge openai:x@http://127.0.0.1:9/v1 is away. It is asked again.", "The judge openai:x… is away. It is asked again."),
        ("CLARA_PRICES names no price.", "The evaluation waits for its turn."),
        ("Fewer than two agents submitted.", "Fewer than two agents submitted."),
        ("The budget of $25.00 is used up after 1.5 s.", "The budget of $25.00 is used up after 1.5 s."),
        ("No node answers ([::1]:8545: TimeoutError).", "No node answers (…: TimeoutError)."),
        ("It is late. Set CLARA_A. Set CLARA_B! It goes on.", "It is late. It goes on."),
    ],
)  # fmt: skip
def test_the_public_reason_names_no_setting_and_no_endpoint(reason: str, shown: str) -> None:
    """What only the operator needs is left out of what everybody reads."""
    assert shown_to_all(EvalStatus(status="pending", progress=0, reason=reason)).reason == shown


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["a-", "a.1", "[", "[:::", "::", "x ", "CLARA ", "_", "http:/"])
def test_a_long_reason_costs_no_reader_time(piece: str) -> None:
    """A reason may quote a hostile text: whatever is in it, a reader waits for one pass over it."""
    text = "[" + piece * 200_000
    assert len(public_text(text)) >= len(text) - 1


async def test_a_lost_line_of_progress_stops_nothing(tmp_path: Path) -> None:
    """When progress cannot be written in passing, the next change of state is written all the same."""
    store = await SqliteStore.open(tmp_path / "store.db")
    try:
        board = StatusWriter(Stumbling(store), 1, "0xa")
        board("comparing", 1, 2)
        await asyncio.sleep(0)
        await board.say("publishing", 92)
        status = await read_status(store, 1, "0xa")
    finally:
        await store.close()
    assert status is not None
    assert status["status"] == "publishing"


async def test_progress_never_goes_back(tmp_path: Path) -> None:
    """A stage that grows, an earlier stage, or another attempt leaves progress where it was; a new round starts at 0."""
    store = await SqliteStore.open(tmp_path / "store.db")
    told: list[tuple[str | None, int]] = []
    try:
        board = StatusWriter(
            store,
            1,
            "0xa",
            listener=lambda status: told.append((status.stage.name if status.stage else None, status.progress)),
        )
        for stage, done, total in (
            ("collecting", 2, 2),
            ("executing", 1, 2),
            ("comparing", 21, 21),
            ("comparing", 22, 42),
        ):
            board(cast("Stage", stage), done, total)
        await board.say("publishing", 92)
        assert told == [("collecting", 10), ("executing", 15), ("comparing", 90), ("comparing", 90), (None, 92)]
        again = await StatusWriter.resumed(store, 1, "0xa")
        again("collecting", 1, 2)
        assert again.status.progress == 92
        await again.say("review", 90)
        approved = await StatusWriter.resumed(store, 1, "0xa")
        approved("collecting", 1, 100)
        assert approved.status.progress == 92
        await again.say("failed")
        anew = await StatusWriter.resumed(store, 1, "0xa")
        anew("collecting", 1, 2)
        assert anew.status.progress == 5
        await anew.say("pending")
    finally:
        await store.close()


async def test_a_tool_says_who_scores_a_challenge_without_evaluator(local_chain: LocalChain, tmp_path: Path) -> None:
    """Asked of the chain alone, the status of such a challenge is not one that changes by waiting."""
    address = await local_chain.post_challenge(PostedTerms(evaluator=ZERO_ADDRESS))
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        found = await eval_status(caller, address)
    assert (found.status, is_waiting(found)) == ("elsewhere", False)
    assert found.reason is not None
    assert "The poster scores this challenge" in str(found.reason)
