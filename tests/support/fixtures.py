"""Pytest fixtures: `anvil` (a node, one a session), `local_chain` (a clean deployment for each test), `shell`.

Named in the root `conftest.py` as a plugin. Each test starts from the same deployed state: what it did is undone by a
snapshot. Under several test workers each has its own node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.support.receiver import Receiver
from tests.support.shell import Shell, opened_shell

from clara_eval.devnet.anvil import Anvil, AnvilOptions
from clara_eval.devnet.local_chain import LocalChain

TEST_ACCOUNTS = 130
"""Owner, poster, evaluator, and agents for a round of 120."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def anvil() -> AsyncIterator[Anvil]:
    """A running node."""
    async with Anvil(AnvilOptions(accounts=TEST_ACCOUNTS, states_in_memory=1000)) as node:
        yield node


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployed_chain(anvil: Anvil) -> AsyncIterator[LocalChain]:
    """Everything deployed once on that node; tests take `local_chain` instead."""
    chain = await LocalChain.deploy(anvil.rpc_url)
    yield chain
    await chain.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def local_chain(deployed_chain: LocalChain) -> AsyncIterator[LocalChain]:
    """The deployed contracts, as if fresh."""
    snapshot = await deployed_chain.snapshot()
    yield deployed_chain
    await deployed_chain.revert(snapshot)


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell in which `clara-eval` starts at once, for tests that are not about how it starts."""
    with opened_shell(tmp_path_factory.mktemp("programs")) as opened:
        yield opened


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A real server for webhooks."""
    taken = Receiver()
    app = web.Application()
    app.router.add_post("/hook", taken.take)
    async with TestServer(app) as server:
        taken.url = str(server.make_url("/hook"))
        yield taken
