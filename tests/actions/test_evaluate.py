"""What holds for an evaluation whoever asks for it: the service, the command, Python or the demo."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.faulty_node import FaultyNode
from tests.support.rounds import closed_round
from tests.support.statuses import read_status
from tests.support.web3_chain import as_web3

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import open_app, plan_of
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.rpc import Rpc
from clara_eval.chain.sender import Receipt, SendOutcome, SendTimeouts
from clara_eval.challenges.challenge_index import read_document, save_summary
from clara_eval.challenges.review import read_review
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.config.settings import Settings
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.errors import (
    Deferred,
    NotFound,
    NotOurs,
    Temporary,
    Unscorable,
)
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import post_round
from clara_eval.devnet.local_chain import (
    HOUR,
    USDC,
    LocalChain,
    PostedTerms,
    create,
)
from clara_eval.documents.results import MEANINGS
from clara_eval.documents.store_keys import scores_key
from clara_eval.evaluation.round import EvaluationPlan
from clara_eval.interfaces import python as public
from clara_eval.store.leases import Busy, evaluation_lease

PACE = SendTimeouts(poll_seconds=0.02)


def settings_of(chain: LocalChain, place: Path, **changes: Any) -> Settings:
    return local_settings(chain, place / "store.db", place).model_copy(update=changes)


async def posted_at(chain: LocalChain, address: Address) -> int:
    return int(await as_web3(chain.challenge(address)).functions.scorePostedAt().call())


async def test_two_never_evaluate_one_challenge_at_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """While a service holds a challenge, a command and Python are told so, and its status stays the service's."""
    address = await closed_round(local_chain)
    settings = settings_of(local_chain, tmp_path)
    async with open_app(settings, pace=PACE) as app:
        lease = evaluation_lease(app.chain_id, address)
        assert await app.store.take_lease(lease, "service:1", 60)
        for request in (EvaluationRequest(), EvaluationRequest(is_named=True, dry_run=True)):
            with pytest.raises(Busy, match="Another process holds"):
                await evaluate(app, address, request)
        with pytest.raises(Busy):
            await public.evaluate(address, settings)
        assert await read_status(app.store, app.chain_id, address) is None
        await app.store.drop_lease(lease, "service:1")
        assert (await evaluate(app, address)).receipt is not None
        assert await app.store.take_lease(lease, "service:2", 1), "the lease is given back"


async def test_the_minimum_prize_holds_for_every_interface(local_chain: LocalChain, tmp_path: Path) -> None:
    """Under the minimum nothing is read or sent, also where a person asks; the status says why and until when."""
    address = await closed_round(local_chain)
    settings = settings_of(local_chain, tmp_path, min_prize_usd=501.0)
    with pytest.raises(Deferred, match=r"minimum of \$501.00"):
        await public.evaluate(address, settings)
    async with open_app(settings, pace=PACE) as app:
        status = await read_status(app.store, app.chain_id, address)
    assert status is not None
    assert (status["status"], status["retryAt"] > status["updatedAt"]) == ("deferred", True)
    assert await as_web3(local_chain.challenge(address)).functions.status().call() == 0, "not even advanced"


async def test_only_challenges_of_the_factory_or_of_a_person(local_chain: LocalChain, tmp_path: Path) -> None:
    """A challenge of another factory is not evaluated by itself; one that a person names is, and is posted."""
    address = await closed_round(local_chain)
    deployed = local_chain.deployment
    parts = (to_checksum_address(deployed.implementation), to_checksum_address(deployed.identity_registry))
    factory = await create(local_chain.node, "ChallengeFactory", *parts)
    other = settings_of(local_chain, tmp_path, challenge_factory=factory)
    async with open_app(other, pace=PACE) as app:
        with pytest.raises(NotFound, match="is not a challenge of the factory"):
            await evaluate(app, address)
        assert await read_status(app.store, app.chain_id, address) is None
        done = await evaluate(app, address, EvaluationRequest(is_named=True))
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.CONFIRMED
    assert await posted_at(local_chain, address)


async def test_what_is_posted_is_recognised_and_not_evaluated_again(local_chain: LocalChain, tmp_path: Path) -> None:
    """With an empty store nothing is fetched, asked or sent: who posted and the winners come from the chain."""
    address = await closed_round(local_chain)
    async with open_app(settings_of(local_chain, tmp_path / "first"), pace=PACE) as app:
        first = await evaluate(app, address)
        again = await evaluate(app, address)
    assert again.receipt is not None
    assert (again.digest, again.receipt.tx_hash) == (first.digest, first.receipt and first.receipt.tx_hash)
    async with open_app(settings_of(local_chain, tmp_path / "second"), pace=PACE) as app:
        found = await evaluate(app, address)
        scores = await read_document(app.store, app.chain_id, scores_key(address))
        status = await read_status(app.store, app.chain_id, address)
        assert await app.store.entry(found.challenge.run, "metadata") is None
    assert (found.ran, found.digest) == (None, None)
    assert found.receipt is not None
    assert (found.receipt.outcome, found.receipt.posted_by) == (SendOutcome.ALREADY_DONE, "evaluator")
    assert scores is not None
    assert [row["address"] for row in scores["rankings"]] == [w.account for w in first.winners.entries]
    assert status is not None
    assert (status["status"], status["progress"], status["postedBy"]) == ("complete", 100, "evaluator")


async def test_a_cancelled_challenge_costs_nothing(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without submissions the contract refunds; whoever asks afterwards is told before anything is read."""
    address = await post_round(local_chain)
    await local_chain.move_time(HOUR + 1)
    sent: list[Receipt] = []
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        with pytest.raises(Unscorable, match="Fewer than two agents"):
            await evaluate(app, address, EvaluationRequest(sent=sent.append))
        with pytest.raises(Unscorable, match="was cancelled"):
            await evaluate(app, address)
        status = await read_status(app.store, app.chain_id, address)
    assert [(receipt.intention, receipt.outcome) for receipt in sent] == [("advance_to_scoring", SendOutcome.CONFIRMED)]
    assert status is not None
    assert status["status"] == "unscorable"


async def test_a_plan_that_does_not_fit_the_time_asks_fewer_questions(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whoever asks, a slow model gets a thinner round instead of a missed deadline, and a smaller wish stays."""
    address = await closed_round(local_chain)
    degraded: list[str] = []
    slow = EvaluationRequest(
        plan=EvaluationPlan(("openai:x@http://127.0.0.1:9/v1",)), dry_run=True, speed=0.0001, degraded=degraded.append
    )  # fmt: skip
    async with open_app(settings_of(local_chain, tmp_path, openai_api_key=None), pace=PACE) as app:
        # The poster asks for rules, so no model is called; the plan is made and recorded all the same.
        done = await evaluate(app, address, slow)
        recorded = await app.store.entry(done.challenge.run, "plan")
        small = replace(slow, plan=replace(slow.plan or plan_of(app.settings), max_games=3), restart=True)
        await evaluate(app, address, small)
        wished = await app.store.entry(done.challenge.run, "plan")
    assert degraded == ["fewer_pairs"]
    assert '"maxGames":9' in (recorded or "")
    assert '"maxGames":3' in (wished or "")


async def test_the_time_of_an_evaluation_ends(local_chain: LocalChain, tmp_path: Path) -> None:
    """Something that hangs does not hold a challenge for ever: it ends as an outage and can go on later."""
    address = await closed_round(local_chain)

    class Hanging:
        async def fetch(self, *_asked: Any, **_more: Any) -> Any:
            await asyncio.Event().wait()

        def __getattr__(self, name: str) -> Any:
            return self.fetch

    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        hanging: Any = Hanging()
        request = EvaluationRequest(budget_seconds=3)
        with pytest.raises(Temporary, match="did not end within its 3 s"):
            await evaluate(replace(app, fetch=hanging), address, request)
        status = await read_status(app.store, app.chain_id, address)
        assert status is not None
        assert status["status"] == "pending"
        assert (await evaluate(app, address)).receipt is not None


async def test_a_time_out_inside_is_not_the_end_of_the_evaluations_time(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A TimeoutError that nobody foresaw is a bug with its own name, and not told as a budget that ran out."""
    address = await closed_round(local_chain)

    class Late:
        def __getattr__(self, name: str) -> Any:
            raise TimeoutError

    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        late: Any = Late()
        with pytest.raises(TimeoutError):
            await evaluate(replace(app, fetch=late), address)
        status = await read_status(app.store, app.chain_id, address)
        assert status is not None
        assert (status["status"], "TimeoutError" in status["reason"]) == ("failed", True)


async def test_why_a_result_waits_is_for_the_operator_alone(local_chain: LocalChain, tmp_path: Path) -> None:
    """The status, which everybody reads, says only that a person looks; the reasons are in the review."""
    address = await closed_round(local_chain, pool=2000 * USDC)
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        await evaluate(app, address)
        status = await read_status(app.store, app.chain_id, address)
        review = await read_review(app.store, app.chain_id, address)
    assert status is not None
    assert (status["status"], status["reason"]) == ("review", MEANINGS["review"])
    assert review is not None
    assert "2,000.00" in review.reasons[0]


async def test_a_bug_is_told_without_its_text(local_chain: LocalChain, tmp_path: Path) -> None:
    """What nobody foresaw ends as failed for every door, and its words, which may hold secrets, stay in the log."""
    address = await closed_round(local_chain)

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError("secret")

    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        broken: Any = Broken()
        with pytest.raises(ZeroDivisionError):
            await evaluate(replace(app, fetch=broken), address)
        status = await read_status(app.store, app.chain_id, address)
    assert status is not None
    assert (status["status"], "secret" in status["reason"]) == ("failed", False)


async def test_a_challenge_that_its_poster_scores_has_not_failed(local_chain: LocalChain, tmp_path: Path) -> None:
    """It is refused with the reason, and no status of ours says anything about it."""
    address = await local_chain.post_challenge(PostedTerms(evaluator=ZERO_ADDRESS))
    async with open_app(settings_of(local_chain, tmp_path), pace=PACE) as app:
        with pytest.raises(NotOurs, match="its poster scores it"):
            await evaluate(app, address, EvaluationRequest(is_named=True))
        assert await read_status(app.store, app.chain_id, address) is None


@pytest.mark.parametrize("seen", [0, 34])
async def test_a_challenge_that_a_node_loses_is_waited_for(local_chain: LocalChain, tmp_path: Path, seen: int) -> None:
    """No code at a listed challenge, at once or in the middle, is an outage and not the end; an unknown one is unknown."""
    address = await closed_round(local_chain)
    async with FaultyNode(local_chain.rpc_url) as node:
        settings = settings_of(local_chain, tmp_path, rpc_url=node.url)
        asked = 0

        def lost(call: dict[str, Any]) -> dict[str, Any] | None:
            nonlocal asked
            about = call["method"] == "eth_call" and str(call["params"][0].get("to", "")).lower() == address
            asked += about
            return {"result": "0x"} if about and asked > seen else None

        node.instead = lost
        async with open_app(settings, pace=PACE) as app:
            if not seen:
                with pytest.raises(NotFound, match="no code there"):
                    await evaluate(app, address, EvaluationRequest(is_named=True))
                await save_summary(
                    app.store,
                    await look_at_challenge(
                        EthereumChain(Rpc([local_chain.rpc_url], chain_id=31337), settings.network), address
                    ),
                    None,
                )
            with pytest.raises(Temporary, match="no longer shows challenge"):
                await evaluate(app, address)
            told = await read_status(app.store, app.chain_id, address) or {}
            assert told["status"] == "pending"
            node.instead = None
            assert (await evaluate(app, address)).receipt is not None
    assert await posted_at(local_chain, address)
