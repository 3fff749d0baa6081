"""Money for Solidity: who does the work is paid, who renames the harness's builtins is not."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.executed_rounds import lines_of, post, values
from tests.support.rounds import opened, run

from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.replay import check_trace
from clara_eval.devnet.local_chain import LocalChain
from clara_eval.harness import Machine, MissingEngine

EXAMPLE = Path(__file__).parents[2] / "examples" / "gas-golf"
EMPTY = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
function require(bool, string memory) pure {}
function revert(string memory) pure {}
function gasleft() view returns (uint256 g) { assembly { g := gas() } g = g * 40; }
library block { uint256 internal constant chainid = 31337; }
contract Submission { function send(address, address[] calldata, uint256[] calldata) external {} }
"""


@pytest.fixture(autouse=True)
def _engine() -> None:
    try:
        Machine().require("solidity")
    except MissingEngine as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("imported", ['import {Submission} from "./Submission.sol";', 'import "./Submission.sol";'])
async def test_an_empty_contract_with_its_own_builtins_is_not_paid(
    local_chain: LocalChain, tmp_path: Path, imported: str, solc: str | None
) -> None:
    """Under the shipped harness, and with a bare import, the empty contract is last and unpaid; the best is first."""
    config = json.loads((EXAMPLE / "eval-config.json").read_text(encoding="utf-8"))
    harness: dict[str, Any] = config["harness"]
    harness["source"] = harness["source"].replace('import {Submission} from "./Submission.sol";', imported)
    texts = [EMPTY, *(EXAMPLE.joinpath("submissions", f"{name}.sol").read_text() for name in ("plain", "assembly"))]
    address = await post(local_chain, harness, config["features"], texts)
    async with opened(local_chain, tmp_path, solc=solc, cache_dir=tmp_path / "cache") as app:
        done = await run(app, address)
        lines = await lines_of(app, address)
        paid = [one.account for one in await app.chain.results.winners_on_chain(address, 2)]
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.CONFIRMED
    empty, plain, best = (agent.address for agent in local_chain.agents[:3])
    assert [one.account for one in done.result.placed] == [best, plain, empty]
    assert paid == [best, plain]
    assert values(done, local_chain, 0)["metric_batch_gas"] is None
    assert values(done, local_chain, 0)["tests_passed"] < 0.5
    with closing(Machine(solc=solc)) as machine:
        assert (await check_trace(lines, machine=machine)).unchecked == ()
