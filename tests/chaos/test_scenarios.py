"""A small form of each fault class of `soak.py`: nodes, reorgs and poisonous challenges around a real round."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.scenarios import (
    NODE_KINDS,
    closed_round,
    node_scenario,
    poison_scenario,
    reorg_scenario,
)

from clara_eval.devnet.local_chain import LocalChain

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("chaos")]


@pytest.mark.parametrize("seed", range(len(NODE_KINDS)), ids=NODE_KINDS)
async def test_a_node_that_misbehaves_for_a_while_stops_no_post(
    local_chain: LocalChain, tmp_path: Path, seed: int
) -> None:
    """Behind, inconsistent, lying or flapping: posted once in the end, with a trace that verifies."""
    assert await node_scenario(local_chain, await closed_round(local_chain), tmp_path, seed) == []


@pytest.mark.parametrize("seed", [100, 101, 102])
async def test_a_reorg_after_signing_ends_in_one_post(local_chain: LocalChain, tmp_path: Path, seed: int) -> None:
    """Whatever depth is demanded and however much is replaced: one post, and its trace names blocks that exist."""
    assert await reorg_scenario(local_chain, await closed_round(local_chain), tmp_path, seed) == []


@pytest.mark.parametrize("seed", [200, 201])
async def test_a_poisonous_challenge_stops_no_round(local_chain: LocalChain, tmp_path: Path, seed: int) -> None:
    """The round beside it is posted, and the tick stays good."""
    assert await poison_scenario(local_chain, await closed_round(local_chain), tmp_path, seed) == []
