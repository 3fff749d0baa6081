"""The public names, and that every example in docs/python.md runs."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from tests.support.agents import GOOD_SOLUTION, POOR_SOLUTION, RULES_CONFIG, agent_environment, agent_settings
from tests.support.web3_chain import web3_of

import clara_eval
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.errors import BadInput, BadTrace, NotFound, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.anvil import DevAccount
from clara_eval.devnet.local_chain import (
    DAY,
    HOUR,
    USDC,
    Handed,
    LocalChain,
    PostedTerms,
)
from clara_eval.interfaces.cli import COMMANDS
from clara_eval.store.open import open_store
from clara_eval.store.trace_archive import stream_trace

DOC = Path(__file__).parents[1] / "docs" / "python.md"
PLACEHOLDER = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)


def sorting() -> PostedTerms:
    uri = build_metadata(title="Sort", problem_statement="Sort.", skills=[], config_text=RULES_CONFIG)
    return PostedTerms(
        challenge_uri=uri, eval_config_hash=config_hash(RULES_CONFIG.encode()), payout_bps=(7000, 3000),
        prize_pool=100 * USDC,
    )  # fmt: skip


async def closed_round(chain: LocalChain) -> str:
    """A challenge whose deadline has passed, with two solutions."""
    address = await chain.post_challenge(sorting())
    handed = [
        Handed(agent, f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}", keccak_hex(text.encode()))
        for agent, text in zip(chain.agents, (GOOD_SOLUTION, POOR_SOLUTION), strict=False)
    ]
    await chain.submit_all(address, handed)
    await chain.move_time(DAY + 1)
    return address


async def test_every_example_runs(local_chain: LocalChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example of the documentation, in order, does what it says, against a real chain, from a submission to a claim."""
    address = await closed_round(local_chain)
    database = tmp_path / "store.db"
    winner, newcomer = local_chain.agents[0], local_chain.agents[5]
    await local_chain.post_challenge(sorting())
    for name, value in agent_environment(local_chain, newcomer, database).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    found = examples()
    assert len(found) == 8
    for code in found:
        if "score" in code.split("import", 3)[-1].split("\n")[0]:
            assert await transactions_of(local_chain, local_chain.evaluator) == 0  # a dry run sends nothing
            monkeypatch.setenv("CLARA_WALLET_KEY", winner.key)
            settings = clara_eval.Settings.from_env()
            key = {"evaluator_key": SecretStr(local_chain.evaluator.key)}
            await clara_eval.evaluate(address, settings.model_copy(update=key))
            await local_chain.move_time(12 * HOUR + 1)
        if "verify" in code:
            store = await open_store(f"sqlite:///{database}")
            parts = [part async for part in stream_trace(store, 31337, address)]
            await store.close()
            (tmp_path / "round.trace.json").write_text("".join(parts))
        program = compile(code.replace(PLACEHOLDER, address), str(DOC), "exec")
        await asyncio.to_thread(exec, program, {"__name__": "example"})
    assert await transactions_of(local_chain, newcomer) == 2  # registered and submitted
    assert await local_chain.balance(winner.address) == 70 * USDC


async def transactions_of(chain: LocalChain, account: DevAccount) -> int:
    web3 = web3_of(chain)
    return int(await web3.eth.get_transaction_count(web3.to_checksum_address(account.address)))


@pytest.mark.parametrize("name", [name for name in clara_eval.__all__ if name.islower()])
def test_a_function_has_the_name_of_a_command(name: str) -> None:
    """Who knows the command knows the function; only reading a config has no command."""
    if name not in {"__version__", "parse_eval_config"}:
        assert name.replace("_", " ") in COMMANDS
        assert getattr(clara_eval, name).__doc__ or name == "judge"


async def test_nothing_is_sent_without_being_told_to(local_chain: LocalChain, tmp_path: Path) -> None:
    """Without `send` a wallet signs nothing; without a wallet `send` signs nothing either, and says so."""
    address = await local_chain.post_challenge(sorting())
    agent = local_chain.agents[0]
    held = agent_settings(local_chain, agent, tmp_path / "a.db")
    bare = agent_settings(local_chain, None, tmp_path / "b.db")
    before = await transactions_of(local_chain, agent)
    asked = await clara_eval.challenge_submit(address, GOOD_SOLUTION, held, register=True)
    unsigned = await clara_eval.challenge_submit(
        address, GOOD_SOLUTION, bare, sender=agent.address, register=True, send=True
    )
    assert (asked.outcome, unsigned.outcome) == ("needs_confirmation", "unsigned")
    assert await transactions_of(local_chain, agent) == before
    with pytest.raises(NotYet):
        await clara_eval.challenge_claim(address, held, send=True)


def test_the_names_are_loaded_when_used() -> None:
    """Importing the package loads its version and nothing else; each promised name is there, and no other."""
    code = "import sys, clara_eval; print(sorted(m for m in sys.modules if m.startswith('clara_eval.')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "['clara_eval.core', 'clara_eval.core.version']"
    for name in clara_eval.__all__:
        assert getattr(clara_eval, name) is not None
    assert dir(clara_eval) == sorted(clara_eval.__all__)
    with pytest.raises(AttributeError):
        _ = clara_eval.nothing_of_the_kind  # type: ignore[attr-defined]


NAMES = st.sampled_from(["a", "b", "c", "d"])
GAMES = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from(["left", "right", "tie"])).filter(lambda game: game[0] != game[1]),
    min_size=1, max_size=12,
)  # fmt: skip


@given(games=GAMES, shuffled=st.randoms(use_true_random=False))
def test_rank_does_not_depend_on_the_order_of_games(games: list[tuple[str, str, str]], shuffled: object) -> None:
    """The same games in another order give the same standings."""
    other = list(games)
    shuffled.shuffle(other)  # type: ignore[attr-defined]
    assert clara_eval.rank(games).standings == clara_eval.rank(other).standings


def test_rank_refuses_what_is_no_comparison() -> None:
    """An item against itself, an unknown verdict and what is no triple of names are refused with their place."""
    wrongs: list[Any] = [("a", "a", "left"), ("a", "b", "first"), ("a", "b"), ("a", "b", ["left"]), (1, "b", "left")]
    for wrong in [*wrongs, ("", "b", "left"), None, "ab"]:
        with pytest.raises(BadInput) as bad:
            clara_eval.rank([("a", "b", "left"), wrong])
        assert bad.value.path == "games[1]"


async def test_verify_says_what_does_not_hold(tmp_path: Path) -> None:
    """A missing file and a file that is no trace are told apart."""
    with pytest.raises(NotFound):
        await clara_eval.verify(tmp_path / "missing.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(BadTrace):
        await clara_eval.verify(tmp_path / "other.json")
