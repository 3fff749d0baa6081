"""Rounds on a local chain: posted, closed, and evaluated by an open app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.app import App, open_app
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.core.address import Address
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import post_round, submit_round
from clara_eval.devnet.local_chain import HOUR, LocalChain

PACE = SendTimeouts(poll_seconds=0.02)


@asynccontextmanager
async def opened(chain: LocalChain, place: Path, **changes: Any) -> AsyncIterator[App]:
    settings = local_settings(chain, place / "store.db", place).model_copy(update=changes)
    async with open_app(settings, pace=PACE) as app:
        yield app


async def closed_round(chain: LocalChain, **terms: Any) -> Address:
    address = await post_round(chain, **terms)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    return address


async def closed_by_a_payment(chain: LocalChain) -> Address:
    """A round whose first block after the deadline holds a transaction, so that an empty one is another."""
    address = await post_round(chain)
    await submit_round(chain, address)
    await pass_the_deadline(chain)
    return address


async def pass_the_deadline(chain: LocalChain) -> None:
    await chain.node.rpc("evm_increaseTime", HOUR + 1)
    await chain.fund(chain.agents[50], 1)


async def replace_from(chain: LocalChain, number: int) -> None:
    """Replace that block and all after it; new blocks tell the real time, so the deadline is passed again."""
    await chain.reorg(int(await chain.node.rpc("eth_blockNumber"), 16) - number + 1)
    await chain.move_time(HOUR + 1)


async def run(app: App, address: Address, **changes: Any) -> Evaluation:
    return await evaluate(app, address, EvaluationRequest(**changes))
