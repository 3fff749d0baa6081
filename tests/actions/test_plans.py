"""What is planned for posters and agents, and what is refused before anything is asked of a wallet."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.agents import RULES_CONFIG, agent_settings
from tests.support.api_service import running_service
from tests.support.web3_chain import as_web3

from clara_eval.actions.challenges import detail
from clara_eval.actions.claim import plan_claim, plan_finalize
from clara_eval.actions.post import Posting, plan_post
from clara_eval.actions.results import eval_status, is_waiting
from clara_eval.actions.submit import SubmissionInput, plan_submit
from clara_eval.app import evaluator_address, open_caller
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, CannotAct, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
    create,
)
from clara_eval.harness import Harness
from clara_eval.harness.model import hide

POSTING = Posting(
    title="Sort", problem_statement="Sort numbers.", prize="100", deadline="1 day", eval_config=RULES_CONFIG,
    payout=(7000, 3000),
)  # fmt: skip
NEEDS_MODEL = (
    '{"version": 1, "features": ["novelty"], "criteria": "The best solution is new, correct and simple to read."}'
)


async def other_token(chain: LocalChain) -> Address:
    """A token that calls itself USDC and is not the network's; the poster has plenty of it."""
    token = await create(chain.node, "TestUSDC")
    contract = chain.contract("TestUSDC", token)
    await chain.send(chain.poster, contract, "mint", to_checksum_address(chain.poster.address), 10**12)
    await chain.send(chain.poster, contract, "approve", to_checksum_address(chain.deployment.factory), 10**12)
    return token


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"max_participants": 2**256}, "maxParticipants"),
        ({"expected_entries": -1}, "expectedEntries"),
        ({"title": "Sort \udcff"}, "title"),
        ({"problem_statement": "Sort \udcff"}, "problemStatement"),
        ({"skills": ("python", "\udcff")}, "skills"),
    ],
)
async def test_terms_that_no_contract_takes_are_named(
    local_chain: LocalChain, tmp_path: Path, changed: dict[str, Any], path: str
) -> None:
    """Numbers out of range and bytes that are no text are refused with their place, not with a crash."""
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        with pytest.raises(BadInput) as bad:
            await plan_post(caller, dataclasses.replace(POSTING, **changed))
    assert bad.value.path == path


async def test_a_poster_is_told_that_every_place_is_paid(local_chain: LocalChain, tmp_path: Path) -> None:
    """Before anything is escrowed: no test keeps bad work from a paid place, it only puts it last."""
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        plan = await plan_post(caller, POSTING, local_chain.poster.address)
    assert "pays every place regardless of its quality" in plan.summary


async def test_a_repeated_post_is_found_behind_others(local_chain: LocalChain, tmp_path: Path) -> None:
    """The same challenge is refused also when many others were posted since."""
    terms = PostedTerms(prize_pool=100 * USDC, payout_bps=(7000, 3000))
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        plan = await plan_post(caller, POSTING, local_chain.poster.address)
        await local_chain.post_challenge(
            dataclasses.replace(terms, eval_config_hash=str(plan.details["evalConfigHash"]), open_seconds=DAY)
        )
        for _ in range(6):
            await local_chain.post_challenge(terms)
        with pytest.raises(CannotAct, match="already posted"):
            await plan_post(caller, POSTING, local_chain.poster.address)


@pytest.mark.parametrize(("judges", "is_warned"), [("rules", True), ("openai:m@http://127.0.0.1:9/v1", False)])
async def test_a_missing_model_is_said_before_escrow(
    local_chain: LocalChain, tmp_path: Path, judges: str, *, is_warned: bool
) -> None:
    """Whoever posts a config that a model has to read hears first of all where there is none: here, or at the service."""
    needy = dataclasses.replace(POSTING, eval_config=NEEDS_MODEL)
    settings = agent_settings(local_chain, None, tmp_path / "none.db").model_copy(update={"judges_as_set": judges})
    async with open_caller(settings) as caller:
        here = await plan_post(caller, needy, local_chain.poster.address)
        by_rules = await plan_post(caller, POSTING, local_chain.poster.address)
    elsewhere = settings.model_copy(update={"judges_as_set": "rules"})
    async with (
        running_service(tmp_path, CLARA_JUDGES=judges) as service,
        open_caller(elsewhere.model_copy(update={"api_url": service.url})) as caller,
    ):
        there = await plan_post(caller, needy, local_chain.poster.address)
    for plan, lack in ((here, "CLARA_JUDGES names none"), (there, f"the service at {service.url} has none")):
        assert any("needs a language model" in said and lack in said for said in plan.warnings) is is_warned
    assert not any("language model" in said for said in by_rules.warnings)


@pytest.mark.parametrize("mode", ["prize_pool", "poster"])
async def test_a_fee_in_dollars_is_not_taken_from_another_token(
    local_chain: LocalChain, tmp_path: Path, mode: str
) -> None:
    """At least one dollar is not at least one of whatever the prize is paid in; nor is a prize of $100."""
    posting = dataclasses.replace(POSTING, token=await other_token(local_chain))
    settings = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_FEE_MODE": mode})
    async with open_caller(settings) as caller:
        with pytest.raises(BadInput, match="counted in dollars"):
            await plan_post(caller, posting)
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        with pytest.raises(BadInput, match="The amount is in dollars"):
            await plan_post(caller, dataclasses.replace(posting, prize="$100"))
        assert (await plan_post(caller, posting)).details["prizePool"] == "100000000"


async def test_a_token_that_only_calls_itself_usdc_is_named_by_its_address(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A prize in a stranger's token is never shown as a prize in the network's dollar."""
    token = await other_token(local_chain)
    fake = await local_chain.post_challenge(PostedTerms(token=token, payout_bps=(7000, 3000)))
    real = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        assert (await detail(caller, real)).challenge.prize == "1000 USDC"
        assert (await detail(caller, fake)).challenge.prize == f"1000 {token[:6]}…{token[-4:]}"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"content": "x = '\udcff'"},
        {"file": "~nobody-of-that-name/solution.py"},
        {"file": "solution\0.py"},
        {"uri": "https://example.org/\udcff", "solution_hash": "0x" + "11" * 32},
    ],
)
async def test_nobody_is_registered_for_a_solution_that_is_refused(
    local_chain: LocalChain, tmp_path: Path, given: dict[str, Any]
) -> None:
    """The solution is looked at before the registration is planned, which would be paid in vain."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    async with open_caller(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as caller:
        with pytest.raises(BadInput):
            await plan_submit(caller, SubmissionInput(challenge=address, register=True, **given))


async def test_whoever_is_asked_learns_which_file_becomes_public(local_chain: LocalChain, tmp_path: Path) -> None:
    """The question before the registration and before the submission names the file."""
    (tmp_path / "id_rsa").write_text("secret")
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    agent = local_chain.agents[0]
    submission = SubmissionInput(challenge=address, file=str(tmp_path / "id_rsa"), register=True)
    async with open_caller(agent_settings(local_chain, agent, tmp_path / "none.db")) as caller:
        questions = [(await plan_submit(caller, submission)).question]
        await local_chain.register(agent)
        questions.append((await plan_submit(caller, submission)).question)
    assert all(str(tmp_path / "id_rsa") in question for question in questions)


async def test_nobody_waits_for_a_challenge_that_is_over(local_chain: LocalChain, tmp_path: Path) -> None:
    """A cancelled challenge without any evaluation is final: looking again shows nothing new."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        assert is_waiting(await eval_status(caller, address))
        await local_chain.send(local_chain.poster, local_chain.challenge(address), "cancel")
        assert not is_waiting(await eval_status(caller, address))


async def test_a_closed_challenge_is_not_told_as_open(local_chain: LocalChain, tmp_path: Path) -> None:
    """After the deadline a claimant is not told that the challenge is open until a moment in the past."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    await local_chain.move_time(DAY + 1)
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        with pytest.raises(NotYet, match="has waited for scoring since"):
            await plan_claim(caller, address, local_chain.agents[0].address)


def test_a_keystore_that_is_none_has_no_address(local_chain: LocalChain, tmp_path: Path) -> None:
    """Whatever JSON stands in the file, the caller opens without knowing the evaluator."""
    for text in ("[]", "1", "null", '{"address": 1}', "{"):
        (tmp_path / "keystore.json").write_text(text)
        changed = {"CLARA_EVALUATOR_ADDRESS": "", "CLARA_EVALUATOR_KEYSTORE": str(tmp_path / "keystore.json")}
        assert evaluator_address(agent_settings(local_chain, None, tmp_path / "none.db", changed)) is None


DOUBLE = 'export const test_two = (s) => { if (s.double(2) !== 4) throw new Error("two"); };'
RIGHT = "export const double = (n) => n + n;"


def executed_posting(**harness: Any) -> Posting:
    spec = {"language": "javascript", **harness}
    words = "The submission that passes every test of the harness is the best one."
    config = {"version": 1, "features": ["tests_passed"], "criteria": words, "judge": "rules", "harness": spec}
    return dataclasses.replace(POSTING, eval_config=json.dumps(config))


async def test_a_harness_must_pass_its_own_reference_before_anything_is_escrowed(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """A broken harness is found when it is posted; a right one is planned without a word about it."""
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        plan = await plan_post(caller, executed_posting(source=DOUBLE, reference=RIGHT))
        assert not any("reference" in warning for warning in plan.warnings)
        with pytest.raises(BadInput, match="test_two") as bad:
            await plan_post(caller, executed_posting(source=DOUBLE, reference=RIGHT.replace("n + n", "n * 3")))
    assert bad.value.path == "$.harness.reference"


async def test_a_server_runs_no_reference_and_says_so(local_chain: LocalChain, tmp_path: Path) -> None:
    """A stranger's program is not run by a server for everybody: the plan says what was not checked."""
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        plan = await plan_post(
            dataclasses.replace(caller, is_local=False), executed_posting(source=DOUBLE, reference=RIGHT)
        )
    assert any("not run on its reference" in warning for warning in plan.warnings)


async def test_a_hidden_harness_is_committed_when_it_is_posted(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without the hash nobody could check a reveal; with it, the transaction carries it; a hash for nothing is refused."""
    committed = hide(Harness("javascript", DOUBLE)).private_set_hash
    posting = executed_posting(hidden=True, ifNotRevealed="fail")
    async with open_caller(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        with pytest.raises(BadInput) as bad:
            await plan_post(caller, posting)
        assert bad.value.path == "privateSetHash"
        plan = await plan_post(caller, dataclasses.replace(posting, private_set_hash=committed))
        assert any("poster's free option" in said and "splits the prize" in said for said in plan.warnings)
        assert any(committed[2:] in step.data for step in plan.transactions)
        with pytest.raises(BadInput, match="no hidden harness"):
            await plan_post(caller, dataclasses.replace(executed_posting(source=DOUBLE), private_set_hash=committed))


async def test_finalizing_is_refused_with_the_moment_until_it_is_due_and_once_it_is_done(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """Without scores, within the 12 hours, after it was done and when cancelled: refused, each with its own reason."""
    chain, keeper = local_chain, local_chain.agents[0]
    address, cancelled = [await chain.post_challenge(PostedTerms(payout_bps=(10000,))) for _ in range(2)]
    contract = chain.challenge(address)
    async with open_caller(agent_settings(chain, keeper, tmp_path / "none.db")) as caller:
        with pytest.raises(NotYet, match="No scores are posted"):
            await plan_finalize(caller, address)
        await chain.send(chain.poster, chain.challenge(cancelled), "cancel")
        with pytest.raises(CannotAct, match="is Cancelled: there is nothing to finalize"):
            await plan_finalize(caller, cancelled)
        texts = [f"Solution {place}" for place in range(2)]
        handed = [
            Handed(agent, f"data:text/plain,Solution%20{place}", keccak_hex(texts[place].encode()))
            for place, agent in enumerate(chain.agents[:2])
        ]
        await chain.submit_all(address, handed)
        await chain.move_time(DAY + 1)
        await chain.send(keeper, contract, "advanceToScoring")
        first = to_checksum_address(chain.agents[0].address)
        pool = await as_web3(contract).functions.prizePool().call()
        row = (first, await chain.register(chain.agents[0]), 10_000, pool)
        await chain.send(chain.evaluator, contract, "postScores", [row])
        with pytest.raises(NotYet, match=r"prizes wait 12 hours\. Finalize at .* UTC, in 1[12] h"):
            await plan_finalize(caller, address)
        await chain.move_time(12 * HOUR)
        plan = await plan_finalize(caller, address)
        assert [planned.to for planned in plan.transactions] == [address]
        await chain.send_data(keeper, address, plan.transactions[0].data)
        with pytest.raises(CannotAct, match="is finalized already"):
            await plan_finalize(caller, address)
