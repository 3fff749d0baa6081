"""One policy for asking nodes again: a question never takes longer than it says."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.faulty_node import FaultyNode, refuses, sleeps, status

from clara_eval.app import open_app, open_caller
from clara_eval.app.adapters import PERSON_RETRIES, SERVICE_RETRIES
from clara_eval.chain.account import EthereumAccount, estimate_gas
from clara_eval.chain.ethereum import EthereumChain
from clara_eval.chain.rpc import NodeRetries, Rpc
from clara_eval.chain.transaction import ContractCall
from clara_eval.config.settings import NETWORKS, Settings
from clara_eval.core.address import Address
from clara_eval.core.errors import Stalled, Temporary
from clara_eval.devnet.local_chain import LocalChain

HERE = Address("0x" + "ab" * 20)
LIMIT, SLACK = 1.0, 1.0

QUESTIONS: dict[str, Callable[[EthereumChain, EthereumAccount], Awaitable[object]]] = {
    "head": lambda chain, _: chain.blocks.head(),
    "block": lambda chain, _: chain.blocks.block_at(1),
    "balance": lambda chain, _: chain.blocks.balance(HERE),
    "status": lambda chain, _: chain.results.scoring_state(HERE),
    "next nonce": lambda _, account: account.next_nonce(),
    "rehearsal": lambda _, account: account.rehearse(ContractCall("1:x", "finalize", HERE, b"")),
}


@pytest.mark.parametrize("fault", [sleeps(30.0), status(429)], ids=["silent", "busy"])
@pytest.mark.parametrize("question", list(QUESTIONS))
async def test_a_question_ends_within_the_stated_wait(local_chain: LocalChain, question: str, fault: object) -> None:
    """With three nodes that are silent or busy, every question fails by name before its longest wait is over."""
    async with FaultyNode(local_chain.rpc_url) as node:
        rpc = Rpc([node.url] * 3, chain_id=31337, retries=NodeRetries(timeout_seconds=0.4, total_seconds=LIMIT))
        chain = EthereumChain(rpc, NETWORKS["local"])
        account = EthereumAccount(chain, None, dry_address=HERE)
        node.fault = fault  # type: ignore[assignment] # parametrized
        started = time.monotonic()
        with pytest.raises(Temporary, match=r"[Nn]o node|nodes"):
            await QUESTIONS[question](chain, account)
        assert time.monotonic() - started < LIMIT + SLACK
        await chain.close()


async def test_a_node_that_stays_behind_is_asked_for_a_second() -> None:
    """An answer that never settles is used after all pauses for late nodes, which are a second together."""
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    asked: list[int] = []

    async def ask() -> int:
        asked.append(1)
        return len(asked)

    retries = NodeRetries(sleep=note)
    assert await retries.until(lambda _: False, ask) == 4
    assert sum(pauses) == pytest.approx(1.0)
    assert await retries.until(lambda _: True, ask) == 5


async def test_money_that_a_late_node_does_not_know_of_is_asked_for_again(local_chain: LocalChain) -> None:
    """One answer "gas required exceeds allowance" is not believed; if all nodes repeat it, the wallet waits for money."""
    token = local_chain.deployment.token
    approve = bytes.fromhex(local_chain.token.encode_abi("approve", [HERE, 1])[2:])
    call = ContractCall("1:x", "approve", token, approve)
    async with FaultyNode(local_chain.rpc_url) as node:
        chain = EthereumChain(Rpc([node.url], chain_id=31337), NETWORKS["local"])
        refuse = refuses("eth_estimateGas", -32000, "gas required exceeds allowance (0)")
        node.instead = lambda one: refuse(one) if node.calls["eth_estimateGas"] < 3 else None
        assert await estimate_gas(chain, call, local_chain.poster.address) > 20_000
        node.instead = refuse
        with pytest.raises(Stalled, match="cannot pay the gas"):
            await estimate_gas(chain, call, local_chain.poster.address)
        await chain.close()


async def test_a_question_inside_another_has_no_time_of_its_own() -> None:
    """The outer limit holds, so limits never add up."""
    retries = NodeRetries(total_seconds=5.0)
    longer = NodeRetries(total_seconds=500.0, timeout_seconds=500.0)
    with retries.limited():
        with longer.limited():
            assert longer.request_seconds() <= 5.0
        assert not await longer.pause(6.0)
    assert longer.request_seconds() == 500.0


async def test_the_program_has_two_policies_and_states_their_longest_waits(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """The service waits at most a minute for nodes, a person's command 45 seconds; pauses fit in."""
    assert (SERVICE_RETRIES.total_seconds, PERSON_RETRIES.total_seconds) == (60.0, 45.0)
    for retries in (SERVICE_RETRIES, PERSON_RETRIES):
        assert sum(retries.pauses) + 2 * retries.timeout_seconds < retries.total_seconds
    environ = {"CLARA_RPC_URL": local_chain.rpc_url, "CLARA_DATABASE_URL": f"sqlite:///{tmp_path}/store.db"}
    settings = Settings.model_validate(environ)
    async with open_app(settings) as app, open_caller(settings) as caller:
        assert app.chain.blocks.rpc.retries is SERVICE_RETRIES
        assert caller.chain.blocks.rpc.retries is PERSON_RETRIES
