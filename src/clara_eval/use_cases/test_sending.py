"""What a local wallet signs and sends, and what happens when the node or the chain does not play along."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from eth_utils.address import to_checksum_address

from clara_eval.challenge.model import Address
from clara_eval.desk import open_desk
from clara_eval.devnet.local_chain import LocalChain, Terms
from clara_eval.errors import CannotPublish, Temporary
from clara_eval.hashing import keccak_hex
from clara_eval.publish.policy import SigningPolicy, agent_policy
from clara_eval.publish.transaction import Unsigned
from clara_eval.testing.agents import RULES_CONFIG, agent_settings
from clara_eval.testing.faulty_node import Fault, FaultyNode, refuses
from clara_eval.use_cases import carry_out as sending
from clara_eval.use_cases.act import act
from clara_eval.use_cases.claim import plan_claim
from clara_eval.use_cases.contract_calls import calldata
from clara_eval.use_cases.port import CannotAct, Desk, Node, View
from clara_eval.use_cases.post import plan_post
from clara_eval.use_cases.submit import Handing, plan_submit
from clara_eval.use_cases.terms import Posting

POSTING = Posting(
    title="Sort", problem_statement="Sort numbers.", prize="100", deadline="1 day", eval_config=RULES_CONFIG,
    payout=(7000, 3000),
)  # fmt: skip
OTHER = Address("0x" + "cd" * 20)


class LossyNode:
    """A real node whose answers to one method get lost, before or after the node heard the question."""

    def __init__(self, node: Node, method: str, *, heard: bool) -> None:
        self._node, self._method, self._heard = node, method, heard
        self.lost = 0

    async def ask(self, method: str, *params: Any) -> Any:
        if method != self._method:
            return await self._node.ask(method, *params)
        self.lost += 1
        if self._heard:
            await self._node.ask(method, *params)
        raise Temporary("The answer got lost.")

    async def views(self, calls: Sequence[View], block: str = "latest") -> list[str | None]:
        return await self._node.views(calls, block)


async def nonce(chain: LocalChain) -> int:
    return int(await chain.web3.eth.get_transaction_count(to_checksum_address(chain.poster.address)))


async def post(desk: Desk, posting: Posting = POSTING) -> dict[str, Any]:
    return await act(desk, lambda: plan_post(desk, posting), confirmed="yes")


async def test_a_lost_answer_does_not_send_twice(local_chain: LocalChain, tmp_path: Path) -> None:
    """If the node took the transaction but its answer got lost, it is found on chain and counts as sent, once."""
    before = await nonce(local_chain)
    async with open_desk(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as desk:
        lossy = LossyNode(desk.node, "eth_sendRawTransaction", heard=True)
        found = await post(dataclasses.replace(desk, node=lossy))
    assert (found["outcome"], lossy.lost) == ("sent", 1)
    assert await nonce(local_chain) == before + 1


async def test_the_same_post_twice_at_once_is_posted_once(local_chain: LocalChain, tmp_path: Path) -> None:
    """A client that repeats a call before the first has ended gets one challenge and one refusal."""
    before = await nonce(local_chain)
    async with open_desk(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as desk:
        ends = await asyncio.gather(post(desk), post(desk), return_exceptions=True)
    assert isinstance(ends[0], dict)
    assert isinstance(ends[1], CannotAct)
    assert "already posted" in str(ends[1])
    assert await nonce(local_chain) == before + 1


async def test_an_unknown_fate_is_reported_with_the_hash(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is not on chain either, the error carries the hash and says to look before trying again."""
    monkeypatch.setattr(sending, "LOST_SECONDS", 0.05)
    async with open_desk(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as desk:
        lossy = LossyNode(desk.node, "eth_sendRawTransaction", heard=False)
        with pytest.raises(Temporary, match=r"sent as 0x[0-9a-f]{64}.*before you try again"):
            await post(dataclasses.replace(desk, node=lossy))


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
        async with open_desk(settings) as desk:
            found = await post(desk)
    assert (found["outcome"], node.calls["eth_sendRawTransaction"]) == ("sent", 2)
    assert await nonce(local_chain) == before + 1


async def test_a_nonce_that_another_transaction_took_is_a_refusal(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the transaction is not on chain, the node's refusal is told as it is."""
    monkeypatch.setattr(sending, "LOST_SECONDS", 0.05)
    async with FaultyNode(local_chain.rpc_url) as node:
        node.instead = refuses("eth_sendRawTransaction", -32000, "nonce too low")
        settings = agent_settings(local_chain, local_chain.poster, tmp_path / "none.db", {"CLARA_RPC_URL": node.url})
        async with open_desk(settings) as desk:
            with pytest.raises(CannotAct, match="Another transaction of this wallet came first"):
                await post(desk)


async def test_a_node_that_goes_silent_after_the_sending_leaves_the_hash(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nobody answers for the receipt, the error carries the hash and says to look before trying again."""
    monkeypatch.setattr(sending, "WAIT_SECONDS", 0.05)
    async with open_desk(agent_settings(local_chain, local_chain.poster, tmp_path / "none.db")) as desk:
        lossy = LossyNode(desk.node, "eth_getTransactionReceipt", heard=False)
        with pytest.raises(Temporary, match=r"sent as 0x[0-9a-f]{64}.*before you try again"):
            await post(dataclasses.replace(desk, node=lossy))


class Behind(LossyNode):
    """A node that for some questions does not know that anybody became an agent."""

    async def views(self, calls: Sequence[View], block: str = "latest") -> list[str | None]:
        is_asked = any(call.data.startswith(keccak_hex(b"balanceOf(address)")[:10]) for call in calls)
        self.lost += is_asked
        return ["0x" + "00" * 32] if is_asked and self.lost <= 3 else await self._node.views(calls, block)


async def test_a_node_that_is_behind_does_not_register_twice(local_chain: LocalChain, tmp_path: Path) -> None:
    """After the registration the submission follows, as soon as the node knows the agent; nothing is paid twice."""
    address = await local_chain.post_challenge(Terms(payout_bps=(7000, 3000)))
    handing = Handing(challenge=address, content="x = 1", register=True)
    async with open_desk(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as desk:
        behind = dataclasses.replace(desk, node=Behind(desk.node, "", heard=True))
        found = await act(behind, lambda: plan_submit(behind, handing), confirmed="yes")
    assert [item["description"][:8] for item in found["sent"]] == ["Register", "Submit a"]


async def test_a_registration_is_told_when_the_submission_fails(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the second part cannot be planned, the error names the registration, which is in a block."""
    monkeypatch.setattr("clara_eval.use_cases.act.REHEARSALS", 1)
    address = await local_chain.post_challenge(Terms(payout_bps=(7000, 3000)))
    handing = Handing(challenge=address, content="x = 1", register=True)
    async with open_desk(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as desk:
        behind = dataclasses.replace(desk, node=Behind(desk.node, "", heard=True))
        with pytest.raises(Temporary, match=r"Call this again.*Already in block \d+: Register as an agent"):
            await act(behind, lambda: plan_submit(behind, handing), confirmed="yes")


async def test_a_plan_that_breaks_half_way_says_what_is_done(local_chain: LocalChain, tmp_path: Path) -> None:
    """When the second transaction cannot be sent, the error names the first, which is in a block."""
    chain = local_chain
    await chain.send(chain.poster, chain.token, "approve", to_checksum_address(chain.deployment.factory), 0)

    class Spiteful(LossyNode):
        async def ask(self, method: str, *params: Any) -> Any:
            if method == "eth_getTransactionCount" and self.lost:
                raise Temporary("The node went away.")
            self.lost += method == "eth_sendRawTransaction"
            return await self._node.ask(method, *params)

    async with open_desk(agent_settings(chain, chain.poster, tmp_path / "none.db")) as desk:
        spiteful = Spiteful(desk.node, "", heard=True)
        with pytest.raises(Temporary, match=r"went away.*Already in block \d+: Allow the challenge factory"):
            await post(dataclasses.replace(desk, node=spiteful))


async def test_only_what_is_needed_is_approved_and_the_fee_is_paid_last(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """With a fee from the prize pool the escrow is smaller, exactly it is approved, and the fee goes to the evaluator."""
    chain = local_chain
    await chain.send(chain.poster, chain.token, "approve", to_checksum_address(chain.deployment.factory), 0)
    before = await chain.balance(chain.evaluator.address)
    settings = agent_settings(chain, chain.poster, tmp_path / "none.db", {"CLARA_FEE_MODE": "prize_pool"})
    async with open_desk(settings) as desk:
        found = await post(desk)
    words = [item["description"] for item in found["sent"]]
    assert words == [
        "Allow the challenge factory to take 103.95 USDC",
        "Create the challenge and escrow 103.95 USDC",
        "Pay the evaluation fee of 1 USDC",
    ]
    assert (found["details"]["prizePool"], found["details"]["total"]) == ("99000000", "104950000")
    assert await chain.balance(chain.evaluator.address) - before == 1_000_000
    assert await chain.challenge(found["challenge"]).functions.prizePool().call() == 99_000_000


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
    address = await local_chain.post_challenge(Terms(payout_bps=(7000, 3000)))
    agent = local_chain.agents[0]
    agent_id = await local_chain.register(agent)
    try:
        async with open_desk(agent_settings(local_chain, agent, tmp_path / "none.db")) as desk:
            on_chain = await plan_submit(desk, Handing(challenge=address, content="x = 1", agent_id=agent_id))
        async with open_desk(agent_settings(local_chain, agent, tmp_path / "none.db", {"CLARA_IPFS_API": api})) as desk:
            handing = Handing(challenge=address, content="x = 1", agent_id=agent_id)
            plan = await plan_submit(desk, handing)
            for said in ("unasked", "no"):
                await act(desk, lambda: plan_submit(desk, handing), confirmed=said)
            before = {how for how, _ in received}
            await act(desk, lambda: plan_submit(desk, handing), confirmed="yes")
    finally:
        await runner.cleanup()
    assert before == {"asked"}
    assert received[-1] == ("pinned", b"x = 1")
    assert [how for how, _ in received].count("pinned") == 1
    submission = await local_chain.challenge(address).functions.getSubmission(to_checksum_address(agent.address)).call()
    assert submission[1] == "ipfs://bafkreigh2akiscaildc"
    assert plan.details["solutionURI"] == "ipfs://bafkreigh2akiscaildc"
    assert on_chain.details["solutionURI"].startswith("data:text/plain;charset=utf-8;base64,")
    assert plan.details["solutionHash"] == on_chain.details["solutionHash"] == keccak_hex(b"x = 1")


async def test_content_that_cannot_be_stored_is_refused(local_chain: LocalChain, tmp_path: Path) -> None:
    """Too long for the chain, not text, empty, two at once: refused before anything is asked of a wallet."""
    address = await local_chain.post_challenge(Terms(payout_bps=(7000, 3000)))
    agent = local_chain.agents[0]
    agent_id = await local_chain.register(agent)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_bytes(b"")
    async with open_desk(agent_settings(local_chain, agent, tmp_path / "none.db")) as desk:
        for given, words in (
            ({"content": "x" * 16_001}, "at most 16,000"),
            ({"file": str(tmp_path / "binary")}, "not UTF-8"),
            ({"file": str(tmp_path / "empty")}, "is empty"),
            ({"file": str(tmp_path / "missing")}, "cannot be read"),
            ({"content": "x", "uri": "data:,x"}, "Exactly one"),
            ({}, "given: none"),
            ({"uri": "http://example.org/x"}, "not a URI that the evaluator reads"),
            ({"uri": "https://example.org/x", "solution_hash": "0x12"}, "is not a hash"),
        ):
            with pytest.raises(Exception, match=words):
                await plan_submit(desk, Handing(challenge=address, agent_id=agent_id, **given))  # type: ignore[arg-type]
        largest = await plan_submit(desk, Handing(challenge=address, agent_id=agent_id, content="x" * 16_000))
    gas = largest.transactions[0].gas
    assert gas is not None
    assert gas < 2**24  # the most gas that one transaction may have


async def test_a_plan_for_another_wallet_is_not_carried_out(local_chain: LocalChain, tmp_path: Path) -> None:
    """A plan names its sender; another wallet does not sign it, and without one nothing is signed."""
    async with open_desk(agent_settings(local_chain, None, tmp_path / "none.db")) as desk:
        plan = await plan_post(desk, POSTING, local_chain.poster.address)
        with pytest.raises(CannotAct, match="No local wallet key"):
            await sending.carry_out(desk, plan, _quiet)
    async with open_desk(agent_settings(local_chain, local_chain.agents[0], tmp_path / "none.db")) as desk:
        with pytest.raises(CannotAct, match="not for the local wallet"):
            await sending.carry_out(desk, plan, _quiet)
        with pytest.raises(Exception, match="is not the local wallet"):
            await plan_claim(desk, OTHER, local_chain.poster.address)


async def _quiet(done: int, total: int, words: str) -> None:
    """Nobody follows."""


FACTORY, CLARA = Address("0x" + "fa" * 20), Address("0x" + "c1" * 20)


def _unsigned(data: str, **changed: Any) -> Unsigned:
    fields: dict[str, Any] = {
        "chain_id": 8453, "nonce": 0, "to": OTHER, "data": bytes.fromhex(data[2:]), "value": 0, "gas": 100_000,
        "max_fee_per_gas": 10**9, "max_priority_fee_per_gas": 10**6,
    }  # fmt: skip
    return Unsigned(**fields | changed)


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
def test_the_key_signs_nothing_else(tx: Unsigned, words: str) -> None:
    """Whatever asks it, the key signs no transfer, allowance, value, chain or fee that these actions do not need."""
    with pytest.raises(CannotPublish, match=words):
        _policy().check(tx)


TOKEN, STRANGE = Address("0x" + "70" * 20), Address("0x" + "99" * 20)


def _policy() -> SigningPolicy:
    """A key's policy when the factory vouches for one challenge, and 5 units of one token are agreed to."""
    policy = agent_policy(8453, factory=FACTORY, evaluator=CLARA)
    policy.vouched.permit([OTHER])
    policy.vouched.permit_spending(TOKEN, 5)
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
            _unsigned(calldata("IdentityRegistry", "register", ""), to=STRANGE),
            "not a contract of the challenge factory",
        ),
    ],
)
def test_the_key_keeps_to_what_was_agreed_and_verified(tx: Unsigned, words: str) -> None:
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


async def test_links_lead_to_the_networks_explorer(local_chain: LocalChain, tmp_path: Path) -> None:
    """On a public network transactions and contracts come with a link; a local chain has none."""
    base = agent_settings(local_chain, None, tmp_path / "none.db", {"CLARA_NETWORK": "base"})
    async with open_desk(base) as desk:
        assert desk.explorer("tx", "0x12") == "https://basescan.org/tx/0x12"
    async with open_desk(agent_settings(local_chain, None, tmp_path / "none.db")) as desk:
        assert desk.explorer("tx", "0x12") is None
