"""The operator's book of docs/operations.md: every block runs as it is written, with a real wheel and a real chain."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from tests.support.agents import GOOD_SOLUTION, POOR_SOLUTION, RULES_CONFIG, agent_environment
from tests.support.shell import Shell

from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.version import __version__
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import DAY, USDC, Handed, LocalChain, PostedTerms

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
BOOK = dict(re.findall(r"^\*\*(.+?)\*\*.*?```sh\n(.*?)```", PAGE[PAGE.index("## By hand") :], re.DOTALL | re.MULTILINE))
NEWER = "99.0.0"


def wheels(place: Path) -> tuple[Path, Path]:
    """The wheel of this source, and one of a later version."""
    hatchling = Path(sys.executable).with_name("hatchling")
    subprocess.run([hatchling, "build", "-t", "wheel", "-d", place], cwd=ROOT, capture_output=True, check=True)
    (first,) = place.glob("*.whl")
    second = place / first.name.replace(__version__, NEWER)
    with zipfile.ZipFile(first) as old, zipfile.ZipFile(second, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith(("METADATA", "core/version.py")):
                text = text.replace(__version__.encode(), NEWER.encode())
            new.writestr(name.replace(f"clara_eval-{__version__}", f"clara_eval-{NEWER}"), text)
    return first, second


def libraries(place: Path) -> Path:
    """Everything that is installed here but this package."""
    place.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith(("clara_eval", "_clara_eval", "__")):
            (place / one.name).symlink_to(one)
    return place


async def closed_round(chain: LocalChain) -> str:
    """A round that rules or a model may judge, after its deadline."""
    config = json.dumps({name: value for name, value in json.loads(RULES_CONFIG).items() if name != "judge"})
    uri = build_metadata(title="Sort", problem_statement="Sort.", skills=[], config_text=config)
    terms = PostedTerms(
        challenge_uri=uri, eval_config_hash=config_hash(config.encode()), payout_bps=(10000,), prize_pool=100 * USDC
    )
    address = await chain.post_challenge(terms)
    entries = zip(chain.agents, (GOOD_SOLUTION.encode(), POOR_SOLUTION.encode()), strict=False)
    await chain.submit_all(address, [Handed(agent, data_uri(text), keccak_hex(text)) for agent, text in entries])
    await chain.move_time(DAY + 1)
    return address


@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("book")
async def test_every_block_of_the_book_runs_as_written(local_chain: LocalChain, shell: Shell, tmp_path: Path) -> None:
    """Install, upgrade, roll back, a stuck round, an empty wallet, back up, restore, another key: in this order."""
    address = await closed_round(local_chain)
    first, second = await asyncio.to_thread(wheels, tmp_path)
    environ = agent_environment(local_chain, None, Path("clara.db")) | {
        "ADDRESS": address,
        "CLARA_EVALUATOR_KEY": local_chain.evaluator.key,
        "WHEEL": str(first),
        "NEWER": str(second),
        "PIP_NO_DEPS": "1",  # what the wheel needs is in this environment
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",
        "PYTHONPATH": str(libraries(tmp_path / "libraries")),
    }
    del environ["CLARA_EVALUATOR_ADDRESS"]  # the key has it
    place = tmp_path / "service"
    place.mkdir()

    async def run(title: str, code: int = 0, **more: str) -> str:
        done = await asyncio.to_thread(shell.run, BOOK[title], place, **environ | more)
        assert done.returncode == code, f"{title}: {done.stdout}{done.stderr}"
        return done.stdout

    assert "ok  wallet" in await run("Install.")
    assert "CLARA_JUDGES" in (place / ".env").read_text(encoding="utf-8")
    dead = {"CLARA_JUDGES": "openai:m@http://127.0.0.1:1/v1", "CLARA_PRICES": "openai:m@http://127.0.0.1:1/v1=1/1"}
    stopped = await asyncio.to_thread(shell.run, "clara-eval evaluate $ADDRESS", place, **environ | dead)
    assert stopped.returncode == 2, stopped.stdout + stopped.stderr
    await run("Upgrade")
    assert version(place) == NEWER
    await run("Roll back.")
    assert version(place) == __version__
    assert "# with CLARA_EVALUATOR_KEY: posts it" in await run("A stuck round.")
    await local_chain.node.rpc("anvil_setBalance", local_chain.evaluator.address, "0x0")
    said = await run("An empty wallet.", 1)
    assert local_chain.evaluator.address in said
    assert "Send it enough ETH" in " ".join(said.split())
    await local_chain.node.rpc("anvil_setBalance", local_chain.evaluator.address, hex(10**18))
    assert "posted and confirmed" in await run("An empty wallet.")
    assert "bytes to copy.db" in await run("Back up")
    assert "complete  100 %" in await run("Restore")
    (place / "password").write_text("correct horse battery staple\n")
    (place / "password").chmod(0o600)
    said = await run("Another key", 1, CLARA_EVALUATOR_PASSWORD_FILE="password")
    assert "enough for 0 posts" in " ".join(said.split())
    assert len(BOOK) == 8


def version(place: Path) -> str:
    """The version that is installed there."""
    (found,) = (place / "clara" / "lib").glob("python*/site-packages/clara_eval-*.dist-info")
    assert os.access(place / "clara" / "bin" / "clara-eval", os.X_OK)
    return found.name.removeprefix("clara_eval-").removesuffix(".dist-info")
