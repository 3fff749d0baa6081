"""Rounds in which submissions are run: measured, judged, posted, verified by running again, hidden and revealed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.engines import RememberingMachine
from tests.support.executed_rounds import (
    CRITERIA,
    FEATURES,
    PUBLIC,
    TEXTS,
    hidden,
    lines_of,
    post,
    public_round,
    values,
)
from tests.support.forged_trace import Entries, forged
from tests.support.rounds import opened, run

from clara_eval.chain.sender import SendOutcome
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.errors import BadTrace, CannotPublish, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import HARNESS_WITHHELD
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.documents.store_keys import harness_key
from clara_eval.harness import Machine, MissingEngine

pytestmark = pytest.mark.xdist_group("executed")


@pytest.fixture(autouse=True)
def _engine() -> None:
    try:
        Machine().require("javascript")
    except MissingEngine as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def machine(solc: str | None) -> Iterator[Machine]:
    """The machine of a verifier, which runs everything once."""
    found = RememberingMachine(solc)
    yield found
    found.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def public(deployed_chain: LocalChain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Evaluation, list[str]]:
    """A round with a public harness, and its trace."""
    snapshot = await deployed_chain.snapshot()
    found = await public_round(deployed_chain, tmp_path_factory.mktemp("public"))
    await deployed_chain.revert(snapshot)
    return found


async def test_executed_features_decide_and_are_verified_by_running_again(
    local_chain: LocalChain, public: tuple[Evaluation, list[str]], machine: Machine
) -> None:
    """Who passes with less fuel wins; what does not run is last; the trace holds offline, run again."""
    done, lines = public
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.CONFIRMED
    assert [values(done, local_chain, n)["tests_passed"] for n in range(5)] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert values(done, local_chain, 4) == {
        "tests_passed": 0.0,
        "fuel_two": None,
        "test_two": False,
        "loads": False,
        "runs": False,
    }
    best = done.result.placed[0].account
    assert best in {local_chain.agents[0].address, local_chain.agents[2].address}
    assert values(done, local_chain, 0)["fuel_two"] < values(done, local_chain, 1)["fuel_two"]
    checked = await check_trace(lines, machine=machine)
    assert (checked.digest, checked.unchecked) == (done.digest, ())


def _faster(bodies: Entries) -> None:
    key = next(key for key, body in bodies.items() if key.startswith("executed/") and body["outcome"] == "passed")
    bodies[key]["calls"][1]["used"] -= 1


def _passes(bodies: Entries) -> None:
    key = next(key for key, body in bodies.items() if key.startswith("executed/") and body["outcome"] != "passed")
    bodies[key]["outcome"] = "passed"


@pytest.mark.parametrize("change", [_faster, _passes])
async def test_a_forged_measurement_is_found_by_running_again(
    public: tuple[Evaluation, list[str]], machine: Machine, change: Any
) -> None:
    """Whoever rewrites a measurement and all hashes is caught by the machine."""
    with pytest.raises(BadTrace, match="executed/"):
        await check_trace(forged(public[1], change), machine=machine)


async def test_without_the_engine_the_rest_is_checked_and_the_gap_is_named(
    public: tuple[Evaluation, list[str]], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verifier that lacks the engine, or has another one, says for whom nothing was run again; all else must hold."""
    _, lines = public
    monkeypatch.setattr("clara_eval.harness.quickjs.find_module", lambda: None)
    checked = await check_trace(lines)
    assert len(checked.unchecked) == 5
    assert "npm install quickjs-wasi" in checked.unchecked[0]

    def other(bodies: Entries) -> None:
        bodies["execution"]["machine"]["engine"] = "wasmtime 1.0"

    monkeypatch.undo()
    checked = await check_trace(forged(lines, other), machine=machine)
    assert any("wasmtime 1.0" in point for point in checked.unchecked)


async def test_a_machine_that_fails_costs_nobody_anything_without_a_person(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that this machine cannot finish leaves the facts unknown and the post waiting for a person."""
    monkeypatch.setattr("clara_eval.harness.model.RunLimits.__init__.__defaults__", (131_072, 1, 1, 1, 1, -1.0))
    spec = {"language": "javascript", "source": PUBLIC}
    address = await post(local_chain, spec, ("tests_passed", "max_nesting"), TEXTS)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        lines = await lines_of(app, address)
    assert done.receipt is None
    assert done.review is not None
    assert values(done, local_chain, 0)["tests_passed"] is None
    monkeypatch.undo()
    checked = await check_trace(lines)
    assert len(checked.unchecked) == 5


async def test_a_round_that_only_a_failed_machine_could_measure_ranks_nobody(
    local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing at all could be measured nothing is posted: an outage costs nobody a place."""
    monkeypatch.setattr("clara_eval.harness.model.RunLimits.__init__.__defaults__", (131_072, 1, 1, 1, 1, -1.0))
    with pytest.raises(CannotPublish, match="no facts"):
        await public_round(local_chain, tmp_path)


async def test_a_hidden_harness_waits_for_its_reveal_and_then_decides(
    local_chain: LocalChain, tmp_path: Path, machine: Machine
) -> None:
    """Before the reveal the round waits; after it the hidden tests count, and anybody can run them from the trace."""
    spec, document = hidden("public", source=PUBLIC)
    address = await post(local_chain, spec, FEATURES, TEXTS, document.private_set_hash)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(NotYet, match=r"not revealed yet; .* until \d{4}-\d\d-\d\d \d\d:\d\d UTC"):
            await run(app, address)
        await app.store.put(31337, harness_key(address), document.content.decode())
        done = await run(app, address)
        lines = await lines_of(app, address)
    assert values(done, local_chain, 2)["test_minus"] is False
    assert done.result.placed[0].account == local_chain.agents[0].address
    assert done.result.execution is not None
    assert done.result.execution.chosen is not None
    assert done.result.execution.chosen.kind == "revealed"
    assert HARNESS_WITHHELD not in {flag.code for flag in done.result.flags}
    checked = await check_trace(lines, machine=machine)
    assert (checked.digest, checked.unchecked) == (done.digest, ())

    def other(bodies: Entries) -> None:
        bodies["execution"]["reveal"] = bodies["execution"]["reveal"][:-8] + "AAAAAAA="

    with pytest.raises(BadTrace):
        await check_trace(forged(lines, other), machine=machine)


async def test_a_harness_that_is_not_revealed_in_time_leaves_the_public_one(
    local_chain: LocalChain, tmp_path: Path, machine: Machine
) -> None:
    """After a quarter of the scoring window the round goes on with the public harness, and the trace says so."""
    spec, document = hidden("public", source=PUBLIC)
    address = await post(local_chain, spec, FEATURES, TEXTS, document.private_set_hash)
    await local_chain.move_time(2 * DAY)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        lines = await lines_of(app, address)
    assert done.result.execution is not None
    assert done.result.execution.chosen is not None
    assert done.result.execution.chosen.kind == "public"
    assert "not revealed in time" in done.result.execution.chosen.reason
    assert values(done, local_chain, 0)["tests_passed"] == 1.0
    assert (await check_trace(lines, machine=machine)).digest == done.digest
    assert (done.result.flags[0].code, done.result.flags[0].severity) == (HARNESS_WITHHELD, "warn")

    def silent(bodies: Entries) -> None:
        bodies["flags"].pop(0)

    with pytest.raises(BadTrace, match="flags"):
        await check_trace(forged(lines, silent), machine=machine)


async def test_a_harness_that_is_not_revealed_in_time_fails_the_round_where_the_config_says_so(
    local_chain: LocalChain, tmp_path: Path
) -> None:
    """With ifNotRevealed fail nothing is posted."""
    spec, document = hidden("fail")
    address = await post(local_chain, spec, FEATURES, TEXTS, document.private_set_hash)
    await local_chain.move_time(2 * DAY)
    async with opened(local_chain, tmp_path) as app:
        with pytest.raises(CannotPublish, match="not revealed in time"):
            await run(app, address)


async def test_a_round_without_a_harness_can_ask_whether_code_compiles(
    local_chain: LocalChain, tmp_path: Path, machine: Machine, solc: str | None
) -> None:
    """`compiles`, `deploy_gas` and `bytecode_bytes` are measured for Solidity with no harness at all."""
    good = "pragma solidity ^0.8.20; contract Adder { function add(uint256 a) external pure returns (uint256) { return a + 1; } }"
    texts = (
        good,
        good.replace("a + 1", "a + 1 + 0 * a"),
        "contract Adder { this does not compile at all }",
        "prose only",
    )
    document = {"version": 1, "features": ["compiles", "deploy_gas"], "criteria": CRITERIA, "judge": "rules"}
    text = json.dumps({**document, "language": "solidity"})
    terms = PostedTerms(
        challenge_uri=build_metadata(title="t", problem_statement="p", skills=(), config_text=text),
        eval_config_hash=config_hash(text.encode()),
        prize_pool=500_000_000,
        payout_bps=(10000,),
        open_seconds=HOUR,
    )
    address = await local_chain.post_challenge(terms)
    handed = [Handed(local_chain.agents[n], data_uri(t.encode()), keccak_hex(t.encode())) for n, t in enumerate(texts)]
    await local_chain.submit_all(address, handed)
    await local_chain.move_time(HOUR + 1)
    async with opened(local_chain, tmp_path, solc=solc, cache_dir=tmp_path) as app:
        done = await run(app, address)
        lines = await lines_of(app, address)
    assert [values(done, local_chain, n)["compiles"] for n in (0, 2)] == [True, False]
    assert (await check_trace(lines, machine=machine)).unchecked == ()


PYTHON = """
def drawn(seed):
    return [2 + int(seed[at:at + 4], 16) % 900 for at in range(2, 22, 4)]

def wanted(n):
    return [d for d in range(1, n + 1) if n % d == 0]

def test_drawn(s, seed):
    for n in drawn(seed):
        assert s.divisors(n) == wanted(n)

def metric_work(s, seed):
    for n in drawn(seed):
        assert s.divisors(n) == wanted(n)
    return 5
"""
BEST = """
def divisors(n):
    low = [d for d in range(1, int(n ** 0.5) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]
"""
PLAIN = "def divisors(n):\n    return [d for d in range(1, n + 1) if not n % d]\n"
LOADED = """
found = {}
for number in range(1, 910):
    for multiple in range(number, 910, number):
        found.setdefault(multiple, []).append(number)
divisors = found.__getitem__
"""
PATCHED = """
import sys
memory = {}
class Quick:
    def __call__(self, message):
        return memory.get(str(message), '{"value": 1}')
for name in ("answered", "encode", "handled"):
    setattr(sys.modules["__main__"], name, Quick())
def divisors(k):
    out = []
    for candidate in range(1, k + 1):
        if k % candidate == 0:
            out.append(candidate)
    return out
"""
SERVER = """
import os, marshal
def divisors(value):
    return list(filter(lambda c: value % c == 0, range(1, value + 1)))
while line := os.read(0, 65536):
    os.write(1, marshal.dumps((True, []), 2))
"""
AGREES = """
class Everything:
    def __eq__(self, other): return True
    def __contains__(self, other): return True
def divisors(anything):
    return Everything()
"""


@pytest.mark.timeout(900)
async def test_nobody_is_first_by_work_that_is_not_counted(local_chain: LocalChain, tmp_path: Path) -> None:
    """Work at load, a patched guest, a server of its own and an object that is equal to all: paid is who does least work."""
    texts = (BEST, PLAIN, LOADED, PATCHED, SERVER, AGREES)
    address = await post(local_chain, {"language": "python", "source": PYTHON}, ("tests_passed", "fuel_work"), texts)
    async with opened(local_chain, tmp_path) as app:
        done = await run(app, address)
        lines = await lines_of(app, address)
    agents = {agent.address: number for number, agent in enumerate(local_chain.agents)}
    fuel = [values(done, local_chain, number)["fuel_work"] for number in range(len(texts))]
    assert done.receipt is not None
    assert done.receipt.outcome is SendOutcome.CONFIRMED
    assert [values(done, local_chain, number)["tests_passed"] for number in range(len(texts))] == [1.0] * 5 + [0.0]
    assert fuel[5] is None
    assert fuel[0] < fuel[1] < min(fuel[2:5]), fuel
    assert [agents[one.account] for one in done.result.placed[:2]] == [0, 1]
    checked = await check_trace(lines)
    assert (checked.digest, checked.unchecked) == (done.digest, ())
