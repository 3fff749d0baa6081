"""What a local wallet signs and sends, and what happens when the node or the chain does not play along."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from eth_utils.address import to_checksum_address
from tests.support.agents import RULES_CONFIG, agent_settings
from tests.support.faulty_node import Fault, FaultyNode, refuses
from tests.support.web3_chain import as_web3, web3_of

from clara_eval.actions import perform as sending
from clara_eval.actions.claim import plan_claim
from clara_eval.actions.perform import perform, unfinished_plan
from clara_eval.actions.post import Posting, plan_post, post
from clara_eval.actions.submit import SubmissionInput, plan_submit, submit
from clara_eval.app import Caller, open_caller
from clara_eval.chain.contracts.abi import ContractName, abi
from clara_eval.chain.rpc import Meaning, NodeRefusal, RpcCall
from clara_eval.chain.sender import SendTimeouts
from clara_eval.chain.transaction import SigningPolicy, TransactionToSign
from clara_eval.chain.wallet import agent_policy
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import CannotAct, CannotPublish, Temporary
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.local_chain import LocalChain, PostedTerms
from clara_eval.documents.actions import ActResult
from clara_eval.submissions.files import pack_folder

POSTING = Posting(
    title="Sort", problem_statement="Sort numbers.", prize="100", deadline="1 day", eval_config=RULES_CONFIG,
    payout=(7000, 3000),
)  # fmt: skip
OTHER = Address("0x" + "cd" * 20)


class LossyRpc:
    """Real nodes whose answers to one method get lost, before or after the node heard the question."""

    def __init__(self, rpc: Any, method: str, *, heard: bool, times: int = 10**9) -> None:
        self._rpc, self._method, self._heard, self._times = rpc, method, heard, times
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rpc, name)

    async def ask(self, method: str, *params: Any, **how: Any) -> Any:
        result = (await self.ask_many([RpcCall(method, params)], **how))[0]
        if isinstance(result, NodeRefusal):
            raise result
        return result

    async def ask_maybe(self, method: str, *params: Any) -> Any:
        result = (await self.ask_many([RpcCall(method, params)]))[0]
        return None if isinstance(result, NodeRefusal) and result.meaning is Meaning.MISSING else result

    async def ask_many(self, calls: Sequence[RpcCall], **how: Any) -> list[Any]:
        if not calls or calls[0].method != self._method or self.lost >= self._times:
            found: list[Any] = await self._rpc.ask_many(calls, **how)
            return found
        self.lost += 1
        if self._heard:
            await self._rpc.ask_many(calls, **how)
        raise Temporary("The answer got lost.")


HASTY = SendTimeouts(poll_seconds=0.02, give_up_after_seconds=0.1)


@asynccontextmanager
async def opened(settings: Settings, pace: SendTimeouts | None = None) -> AsyncIterator[Caller]:
    async with open_caller(settings) as caller:
        yield caller if pace is None else dataclasses.replace(caller, pace=pace)


def lossy(caller: Caller, method: str, **how: Any) -> LossyRpc:
    """From now on this caller's node loses answers."""
    made: Any = LossyRpc(caller.chain.blocks.rpc, method, **how)
    caller.chain.blocks.rpc = made
    return cast("LossyRpc", made)


async def nonce(chain: LocalChain) -> int:
    return int(await web3_of(chain).eth.get_transaction_count(to_checksum_address(chain.poster.address)))


async def done(caller: Caller, posting: Posting = POSTING) -> ActResult:
    return await perform(caller, post(posting), confirmed="yes")


async def test_a_lost_answer_does_not_send_twice(local_chain: LocalChain, tmp_path: Path) -> None:
    """If the node took the transaction but its answer got lost, it is found on chain and counts as sent, once."""
    before = await nonce(local_chain)
    async with opened(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as caller:
        node = lossy(caller, "eth_sendRawTransaction", heard=True)
        found = await done(caller)
    assert (found.outcome, node.lost) == ("sent", 1)
    assert await nonce(local_chain) == before + 1


async def test_the_same_post_twice_at_once_is_posted_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """A client that repeats a call before the first has ended gets one challenge and one refusal."""
    before = await nonce(local_chain)
    async with opened(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as caller:
        ends = await asyncio.gather(done(caller), done(caller), return_exceptions=True)
    assert isinstance(ends[0], ActResult)
    assert isinstance(ends[1], CannotAct)
    assert "already posted" in str(ends[1])
    assert await nonce(local_chain) == before + 1


async def test_an_unknown_fate_is_reported_with_the_hash(local_chain: LocalChain, tmp_path: Path) -> None:
    """If it is not on chain either, the error carries the hash and says to look before trying in another way."""
    async with opened(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db"), HASTY) as caller:
        lossy(caller, "eth_sendRawTransaction", heard=False)
        with pytest.raises(Temporary, match=r"sent as 0x[0-9a-f]{64}.*before you try again"):
            await done(caller)


@pytest.mark.parametrize("heard", [False, True])
async def test_the_same_again_after_a_crash_goes_on_with_the_first(
    local_chain: LocalChain, tmp_path: Path, heard: bool
) -> None:
    """A second process that is asked for the same ends with the first one's transactions, and with one challenge."""
    chain, before = local_chain, await nonce(local_chain)
    count = as_web3(chain.contract("ChallengeFactory", chain.deployment.factory)).functions.getChallengeCount
    challenges = await count().call()
    settings = agent_settings(chain, chain.poster, tmp_path / "kept.db", {"CLARA_FEE_MODE": "prize_pool"})
    async with opened(settings, HASTY) as caller:
        lossy(caller, "eth_sendRawTransaction", heard=heard)
        lossy(caller, "eth_getTransactionReceipt", heard=False)
        with pytest.raises(Temporary, match="sent as") as first:
            await done(caller)
    await chain.move_time(30)
    async with opened(settings) as caller:
        found = await done(caller)
        assert found.sent[0].hash in str(first.value)
        assert found.challenge
        assert [item.description[:10] for item in found.sent] == ["Create the", "Pay the ev"]
        store = await caller.store.opened()
        rows = await store.pending_nonces(chain.poster.address)
        with pytest.raises(CannotAct, match="already posted"):
            await done(caller)
    assert len({row.nonce for row in rows}) == len(rows) == 2
    assert await nonce(chain) == before + 2
    assert await count().call() == challenges + 1


async def test_a_stuck_step_is_raised_with_the_same_nonce(local_chain: LocalChain, tmp_path: Path) -> None:
    """A person's transaction that nobody mines pays more after a while, and lands once."""
    before = await nonce(local_chain)
    waits = 0

    async def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 4:
            await local_chain.node.rpc("evm_setAutomine", True)
            await local_chain.mine()
        await asyncio.sleep(0.02)

    pace = SendTimeouts(poll_seconds=0.02, bump_after_seconds=0.0, give_up_after_seconds=20, sleep=wait)
    await local_chain.node.rpc("evm_setAutomine", False)
    try:
        async with opened(agent_settings(local_chain, local_chain.poster, tmp_path / "kept.db"), pace) as caller:
            found = await done(caller)
            rows = await (await caller.store.opened()).pending_nonces(local_chain.poster.address)
    finally:
        await local_chain.node.rpc("evm_setAutomine", True)
    assert found.outcome == "sent"
    assert len(rows) > 1
    assert {row.nonce for row in rows} == {before}
    assert rows[0].max_fee_per_gas > rows[-1].max_fee_per_gas
    assert await nonce(local_chain) == before + 1


async def test_a_plan_that_nobody_signed_is_made_anew(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended before its first signature leaves nothing that a later one would have to go on with."""
    settings = agent_settings(local_chain, local_chain.poster, tmp_path / "kept.db")
    async with opened(settings) as caller:
        lossy(caller, "eth_getTransactionCount", heard=False)
        with pytest.raises(Temporary, match="got lost"):
            await done(caller)
    async with opened(settings) as caller:
        assert await unfinished_plan(caller, post(POSTING)) is not None
        monkeypatch.setattr(sending, "FORGOTTEN_SECONDS", -1)
        assert await unfinished_plan(caller, post(POSTING)) is None
        assert (await done(caller)).outcome == "sent"


def loses_first_answer(node: FaultyNode, target: str) -> Fault:
    """The node takes the first transaction, and its answer never arrives."""

    async def fault(body: Any) -> web.Response | None:
        if isinstance(body, list) or body["method"] != "eth_sendRawTransaction" or node.calls[body["method"]] > 1:
            return None
        async with aiohttp.ClientSession() as session, session.post(target, json=body) as response:
            await response.read()
        return web.Response(status=502)

    return fault


async def test_a_transaction_that_was_mined_is_not_told_as_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """Asked again after a lost answer the node calls the nonce used; the transaction is found and counts as sent."""
    before = await nonce(local_chain)
    async with FaultyNode(local_chain.rpc_url) as node:
        node.fault = loses_first_answer(node, local_chain.rpc_url)
        settings = agent_settings(local_chain, local_chain.poster, tmp_path / "none.db", {"CLARA_RPC_URL": node.url})
        async with opened(settings) as caller:
            found = await done(caller)
    assert (found.outcome, node.calls["eth_sendRawTransaction"]) == ("sent", 2)
    assert await nonce(local_chain) == before + 1


async def test_a_nonce_that_only_the_node_calls_used_is_not_given_up(local_chain: LocalChain, tmp_path: Path) -> None:
    """While the chain does not show that the nonce is gone no other is taken: its fate is not known, and told so."""
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuses("eth_sendRawTransaction", -32000, "nonce too low")
        settings = agent_settings(local_chain, local_chain.poster, tmp_path / "none.db", {"CLARA_RPC_URL": node.url})
        async with opened(settings, HASTY) as caller:
            with pytest.raises(Temporary, match="sent as 0x"):
                await done(caller)
            rows = await (await caller.store.opened()).pending_nonces(local_chain.poster.address)
    assert len({row.nonce for row in rows}) == 1


async def test_a_node_that_goes_silent_after_the_sending_leaves_the_hash(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """If nobody answers for the receipt, the error carries the hash and says to look before trying in another way."""
    async with opened(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db"), HASTY) as caller:
        lossy(caller, "eth_getTransactionReceipt", heard=False)
        with pytest.raises(Temporary, match=r"sent as 0x[0-9a-f]{64}.*before you try again"):
            await done(caller)


class Behind(LossyRpc):
    """Nodes that for some questions do not know that anybody became an agent."""

    async def ask_many(self, calls: Sequence[RpcCall], **how: Any) -> list[Any]:
        wanted = ("0x70a08231", "0x6352211e")  # balanceOf, ownerOf
        asked = [call for call in calls if call.method == "eth_call" and call.params[0]["data"].startswith(wanted)]
        self.lost += bool(asked)
        if asked and self.lost <= 3:
            return ["0x" + "00" * 32 if call.params[0]["data"].startswith(wanted[0]) else "0x" for call in calls]
        found: list[Any] = await self._rpc.ask_many(calls, **how)
        return found


async def test_a_node_that_is_behind_does_not_register_twice(local_chain: LocalChain, tmp_path: Path) -> None:
    """After the registration the submission follows, as soon as the node knows the agent; nothing is paid twice."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    submission = SubmissionInput(challenge=address, content="x = 1", register=True)
    async with opened(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as caller:
        behind: Any = Behind(caller.chain.blocks.rpc, "", heard=True)
        caller.chain.blocks.rpc = behind
        found = await perform(caller, submit(submission), confirmed="yes")
    assert [item.description[:8] for item in found.sent] == ["Register", "Submit a"]


async def test_a_registration_is_told_when_the_submission_fails(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second part cannot be planned, the error names the registration, which is in a block."""
    monkeypatch.setattr("clara_eval.actions.perform.REHEARSALS", 1)
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    submission = SubmissionInput(challenge=address, content="x = 1", register=True)
    async with opened(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as caller:
        behind: Any = Behind(caller.chain.blocks.rpc, "", heard=True)
        caller.chain.blocks.rpc = behind
        with pytest.raises(Temporary, match=r"Call this again.*Already in block \d+: Register as an agent"):
            await perform(caller, submit(submission), confirmed="yes")


async def test_a_plan_that_breaks_half_way_says_what_is_done(local_chain: LocalChain, tmp_path: Path) -> None:
    """When the second transaction cannot be sent, the error names the first, which is in a block."""
    chain = local_chain
    await chain.send(chain.poster, chain.token, "approve", to_checksum_address(chain.deployment.factory), 0)

    class Spiteful(LossyRpc):
        async def ask_many(self, calls: Sequence[RpcCall], **how: Any) -> list[Any]:
            method = calls[0].method if calls else ""
            if method == "eth_getTransactionCount" and self.lost:
                raise Temporary("The node went away.")
            self.lost += method == "eth_sendRawTransaction"
            found: list[Any] = await self._rpc.ask_many(calls, **how)
            return found

    async with opened(agent_settings(chain, chain.poster, tmp_path / "none.db")) as caller:
        spiteful: Any = Spiteful(caller.chain.blocks.rpc, "", heard=True)
        caller.chain.blocks.rpc = spiteful
        with pytest.raises(Temporary, match=r"went away.*Already in block \d+: Allow the challenge factory"):
            await done(caller)


@pytest.mark.specification("6", "Option B: the eval fee is deducted from the prize pool")
async def test_only_what_is_needed_is_approved_and_the_fee_is_paid_last(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """With a fee from the prize pool the escrow is smaller, exactly it is approved, and the fee goes to the evaluator."""
    chain = local_chain
    await chain.send(chain.poster, chain.token, "approve", to_checksum_address(chain.deployment.factory), 0)
    before = await chain.balance(chain.evaluator.address)
    settings = agent_settings(chain, chain.poster, tmp_path / "none.db", {"CLARA_FEE_MODE": "prize_pool"})
    async with opened(settings) as caller:
        found = await done(caller)
    words = [item.description for item in found.sent]
    assert words == [
        "Allow the challenge factory to take 103.95 USDC",
        "Create the challenge and escrow 103.95 USDC",
        "Pay the evaluation fee of 1 USDC",
    ]
    assert (found.details["prizePool"], found.details["total"]) == ("99000000", "104950000")
    assert await chain.balance(chain.evaluator.address) - before == 1_000_000
    assert await chain.challenge(to_address(str(found.challenge))).read("prizePool") == 99_000_000


async def test_content_is_pinned_where_an_ipfs_node_is_set(local_chain: LocalChain, tmp_path: Path) -> None:
    """With an IPFS node the CID goes on chain with the hash of the content; it is published with the yes, not before."""
    received: list[tuple[str, bytes]] = []

    async def add(request: web.Request) -> web.Response:
        form = await request.post()
        how = "asked" if request.query.get("only-hash") == "true" else "pinned"
        received.append((how, form["file"].file.read()))  # type: ignore[union-attr]
        return web.json_response({"Name": "solution.txt", "Hash": "bafkreigh2akiscaildc", "Size": "5"})

    app = web.Application()
    app.router.add_post("/api/v0/add", add)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api = f"http://127.0.0.1:{runner.addresses[0][1]}"
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    agent = local_chain.agents[0]
    agent_id = await local_chain.register(agent)
    try:
        async with opened(agent_settings(local_chain, agent, tmp_path / "none.db")) as caller:
            on_chain = await plan_submit(caller, SubmissionInput(challenge=address, content="x = 1", agent_id=agent_id))
        async with opened(agent_settings(local_chain, agent, tmp_path / "none.db", {"CLARA_IPFS_API": api})) as caller:
            submission = SubmissionInput(challenge=address, content="x = 1", agent_id=agent_id)
            plan = await plan_submit(caller, submission)
            for said in ("unasked", "no"):
                await perform(caller, submit(submission), confirmed=said)
            before = {how for how, _ in received}
            await perform(caller, submit(submission), confirmed="yes")
    finally:
        await runner.cleanup()
    assert before == {"asked"}
    assert received[-1] == ("pinned", b"x = 1")
    assert [how for how, _ in received].count("pinned") == 1
    submission = (
        await as_web3(local_chain.challenge(address)).functions.getSubmission(to_checksum_address(agent.address)).call()
    )
    assert submission[1] == "ipfs://bafkreigh2akiscaildc"
    assert plan.details["solutionURI"] == "ipfs://bafkreigh2akiscaildc"
    assert str(on_chain.details["solutionURI"]).startswith("data:text/plain;charset=utf-8;base64,")
    assert plan.details["solutionHash"] == on_chain.details["solutionHash"] == keccak_hex(b"x = 1")


async def test_content_that_cannot_be_stored_is_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """Too long for the chain, not text, empty, two at once: refused before anything is asked of a wallet."""
    address = await local_chain.post_challenge(PostedTerms(payout_bps=(7000, 3000)))
    agent = local_chain.agents[0]
    agent_id = await local_chain.register(agent)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut.zip").write_bytes(b"PK\x03\x04 and no end")
    (tmp_path / "tree" / "lib").mkdir(parents=True)
    (tmp_path / "tree" / "main.py").write_text("from lib.sums import add\n")
    (tmp_path / "tree" / "lib" / "sums.py").write_text("def add(a, b):\n    return a + b\n")
    async with opened(agent_settings(local_chain, agent, tmp_path / "none.db")) as caller:
        for given, words in (
            ({"content": "x" * 16_001}, "at most 16,000"),
            ({"file": str(tmp_path / "binary")}, "not UTF-8"),
            ({"file": str(tmp_path / "empty")}, "is empty"),
            ({"file": str(tmp_path / "cut.zip")}, "damaged or cut off"),
            ({"file": str(tmp_path / "missing")}, "cannot be read"),
            ({"content": "x", "uri": "data:,x"}, "Exactly one"),
            ({}, "given: none"),
            ({"uri": "http://example.org/x"}, "not a URI that the evaluator reads"),
            ({"uri": "https://example.org/x", "solution_hash": "0x12"}, "is not a hash"),
        ):
            with pytest.raises(Exception, match=words):
                await plan_submit(caller, SubmissionInput(challenge=address, agent_id=agent_id, **given))  # type: ignore[arg-type]
        tree = await plan_submit(
            caller, SubmissionInput(challenge=address, agent_id=agent_id, file=str(tmp_path / "tree"))
        )
        assert tree.details["solutionHash"] == keccak_hex(pack_folder(tmp_path / "tree"))
        largest = await plan_submit(caller, SubmissionInput(challenge=address, agent_id=agent_id, content="x" * 16_000))
    gas = largest.transactions[0].gas
    assert gas is not None
    assert gas < 2**24  # the most gas that one transaction may have


async def test_a_plan_for_another_wallet_is_not_carried_out(local_chain: LocalChain, tmp_path: Path) -> None:
    """A plan names its sender; another wallet does not sign it, and without one nothing is signed."""
    async with opened(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        plan = await plan_post(caller, POSTING, local_chain.poster.address)
        with pytest.raises(CannotAct, match="No local wallet key"):
            await sending.send_plan(caller, post(POSTING), plan, _quiet)
    async with opened(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as caller:
        with pytest.raises(CannotAct, match="not for the local wallet"):
            await sending.send_plan(caller, post(POSTING), plan, _quiet)
        with pytest.raises(Exception, match="is not the local wallet"):
            await plan_claim(caller, OTHER, local_chain.poster.address)


async def _quiet(done: int, total: int, words: str) -> None:
    """Nobody follows."""


FACTORY, CLARA = Address("0x" + "fa" * 20), Address("0x" + "c1" * 20)


def calldata(contract: ContractName, name: str, *values: object) -> str:
    return "0x" + abi(contract).function(name).call(*values).hex()


def _unsigned(data: str, **changed: Any) -> TransactionToSign:
    fields: dict[str, Any] = {
        "chain_id": 8453, "nonce": 0, "to": OTHER, "data": bytes.fromhex(data[2:]), "value": 0, "gas": 100_000,
        "max_fee_per_gas": 10**9, "max_priority_fee_per_gas": 10**6,
    }  # fmt: skip
    return TransactionToSign(**fields | changed)


@pytest.mark.parametrize(
    ("tx", "words"),
    [
        (_unsigned(calldata("TestUSDC", "approve", OTHER, 1)), "not the challenge factory"),
        (_unsigned(calldata("TestUSDC", "transfer", OTHER, 1)), "not the evaluator"),
        (_unsigned(calldata("TestUSDC", "transferFrom", OTHER, OTHER, 1)), "is not a call that"),
        (_unsigned(calldata("Challenge", "cancel")), "is not a call that"),
        (_unsigned("0x"), "is not a call that"),
        (_unsigned(calldata("Challenge", "claimPrize"), value=1), "moves 1 wei"),
        (_unsigned(calldata("Challenge", "claimPrize"), chain_id=1), "is for chain 1"),
        (_unsigned(calldata("Challenge", "claimPrize"), max_fee_per_gas=10**12), "above the cap"),
        (_unsigned(calldata("Challenge", "claimPrize"), gas=10**9), "gas limit"),
    ],
)
def test_the_key_signs_nothing_else(tx: TransactionToSign, words: str) -> None:
    """Whatever asks it, the key signs no transfer, allowance, value, chain or fee that these actions do not need."""
    with pytest.raises(CannotPublish, match=words):
        _policy().check(tx)


TOKEN, STRANGE = Address("0x" + "70" * 20), Address("0x" + "99" * 20)


def _policy() -> SigningPolicy:
    """A key's policy when the factory vouches for one challenge, and 5 units of one token are agreed to."""
    policy = agent_policy(8453, factory=FACTORY, evaluator=CLARA)
    policy.targets.add(OTHER)
    policy.spending[TOKEN] = 5
    return policy


@pytest.mark.parametrize(
    ("tx", "words"),
    [
        (_unsigned(calldata("TestUSDC", "approve", FACTORY, 6), to=TOKEN), "6 units of .* and 5 were agreed to"),
        (_unsigned(calldata("TestUSDC", "transfer", CLARA, 6), to=TOKEN), "6 units of .* and 5 were agreed to"),
        (_unsigned(calldata("TestUSDC", "approve", FACTORY, 1), to=STRANGE), "and 0 were agreed to"),
        (_unsigned(calldata("TestUSDC", "approve", FACTORY, 1)[:40], to=TOKEN), "arguments are not those of approve"),
        (_unsigned(calldata("Challenge", "claimPrize"), to=STRANGE), "not a contract of the challenge factory"),
        (_unsigned(calldata("Challenge", "submit", 0, "", bytes(32)), to=STRANGE), "not a contract of the challenge"),
        (
            _unsigned(calldata("IdentityRegistry", "register(string)", ""), to=STRANGE),
            "not a contract of the challenge factory",
        ),
    ],
)
def test_the_key_keeps_to_what_was_agreed_and_verified(tx: TransactionToSign, words: str) -> None:
    """No more of a token than was agreed to, and no contract that the factory does not vouch for."""
    with pytest.raises(CannotPublish, match=words):
        _policy().check(tx)


def test_the_key_signs_what_plans_are_made_of() -> None:
    """The calls of posting, submitting and claiming pass, with the factory and the evaluator where they belong."""
    policy = _policy()
    policy.check(_unsigned(calldata("TestUSDC", "approve", FACTORY, 5), to=TOKEN))
    policy.check(_unsigned(calldata("TestUSDC", "transfer", CLARA, 5), to=TOKEN))
    for name in ("claimPrize", "claimExpiredRefund", "finalize", "expire"):
        policy.check(_unsigned(calldata("Challenge", name)))
    policy.own = STRANGE
    policy.check(_unsigned("0x", to=STRANGE))


async def test_links_lead_to_the_networks_explorer(local_chain: LocalChain, tmp_path: Path) -> None:
    """On a public network transactions and contracts come with a link; a local chain has none."""
    base = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_NETWORK": "base"})
    async with opened(base) as caller:
        assert caller.explorer("tx", "0x12") == "https://basescan.org/tx/0x12"
    async with opened(agent_settings(local_chain, None, tmp_path / "none.db")) as caller:
        assert caller.explorer("tx", "0x12") is None
