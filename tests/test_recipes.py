"""Three recipes of docs/architecture.md, carried out on a copy of the source: what they promise works.

The copy is the whole package; each recipe adds to it what the page says and nothing else, and the copy's own commands
are run against a real local chain. Without the recipe the same command is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clara_eval.challenge.model import Address
from clara_eval.demo import round as demo_round
from clara_eval.devnet.local_chain import HOUR, LocalChain

ROOT = Path(__file__).parents[1]

PROVIDER_FILE = '''"""Judges by the alphabet: prefers the vector that reads first. A provider in one file."""

from __future__ import annotations

import json

from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import Provider
from clara_eval.money.prices import FREE


class AlphabetLlm:
    def __init__(self, model: str) -> None:
        self.name = f"alphabet:{model}"

    async def complete(self, prompt: Prompt) -> Answer:
        first, second = prompt.user.split("SOLUTION A FEATURES:")[1].split("SOLUTION B FEATURES:")
        winner = "A" if first.strip() < second.strip() else "B"
        text = json.dumps({"winner": winner, "confidence": 0.9, "reason": "It reads first."})
        return Answer(text, self.name, "end", input_tokens=1, output_tokens=1)

    async def close(self) -> None:
        """Nothing is open."""


PROVIDER = Provider(
    name="alphabet",
    form="alphabet:MODEL",
    build=lambda judge, _settings: AlphabetLlm(judge.model),
    price=lambda _judge, _now: FREE,
)
'''

FLAG_RULE = """
def _crowded(found: Round) -> Iterator[Flag]:
    if len(found.placed) > 5:
        yield Flag("crowded", "info", f"{len(found.placed)} submissions competed.", evidence={"placed": len(found.placed)})


RULES = (*RULES, _crowded)
"""

NETWORK_ENTRY = """
NETWORKS["islands"] = Network(
    name="islands",
    chain_id=31337,
    factory="{factory}",
    from_block={from_block},
    identity_registry="{registry}",
    usdc="{token}",
    explorer="https://islands.example",
    confirmations=1,
    finality_tag="latest",
)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package without its tests, to which a recipe is applied."""
    ignored = shutil.ignore_patterns("__pycache__", "test_*", "testing")
    return Path(shutil.copytree(ROOT / "src" / "clara_eval", tmp_path / "src" / "clara_eval", ignore=ignored))


def add(file: Path, text: str) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(f"{before}\n{text}" if before else text, encoding="utf-8")


async def command(source: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command of the copy, in its own process and folder."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "clara_eval", *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source.parent), **settings},
        cwd=source.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


async def finished_round(chain: LocalChain, monkeypatch: pytest.MonkeyPatch, *, judge: str | None) -> Address:
    """The demo's round after its deadline; without `judge` in its config the jury of the settings judges it."""
    config = {key: value for key, value in demo_round.CONFIG.items() if key != "judge"}
    monkeypatch.setattr(demo_round, "CONFIG", config | ({"judge": judge} if judge else {}))
    address = await demo_round.post_round(chain)
    await demo_round.submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    return address


def evaluator(chain: LocalChain, **settings: str) -> dict[str, str]:
    return {
        "CLARA_NETWORK": "local",
        "CLARA_RPC_URL": chain.rpc_url,
        "CLARA_CHALLENGE_FACTORY": chain.deployment.factory,
        "CLARA_FROM_BLOCK": str(chain.deployment.from_block),
        "CLARA_USDC": chain.deployment.token,
        "CLARA_EVALUATOR_KEY": chain.evaluator.key,
        "CLARA_DATABASE_URL": "sqlite:///recipe.db",
        **settings,
    }


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


async def test_a_judge_provider_is_one_file(
    local_chain: LocalChain, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in `llm/` is enough: CLARA_JUDGES names it, it judges a whole round, and its trace verifies."""
    address = await finished_round(local_chain, monkeypatch, judge=None)
    settings = evaluator(local_chain, CLARA_JUDGES="alphabet:latin")
    refused = await command(source, "evaluate", address, "--dry-run", **settings)
    assert (refused.returncode, "alphabet:latin" in refused.stderr) == (2, True)

    add(source / "llm" / "alphabet.py", PROVIDER_FILE)
    scores = document(await command(source, "evaluate", address, "--dry-run", "--json", **settings))
    ranked = [row for row in scores["rankings"] if row["status"] == "ranked"]
    assert [row["rank"] for row in ranked] == list(range(1, 8))
    assert len({row["elo"] for row in ranked}) == 7  # an order by the alphabet has no ties

    trace = await command(source, "trace", address, **settings)
    entries = [line["entry"] for line in json.loads(trace.stdout)["entries"]]
    games = [entry for entry in entries if entry["key"].startswith("comparison")]
    assert len(games) > 20
    assert all("alphabet:latin" in json.dumps(entry) and "It reads first." in json.dumps(entry) for entry in games[:20])
    checked = document(await command(source, "verify", address, "--json", **settings))
    assert checked["ok"] is True


async def test_a_flag_is_one_function(local_chain: LocalChain, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule in `review_rules.py` is enough: its flag is in the result, with code, severity, sentence and figures."""
    address = await finished_round(local_chain, monkeypatch, judge="rules")
    add(source / "pipeline" / "review_rules.py", FLAG_RULE)
    scores = document(await command(source, "evaluate", address, "--dry-run", "--json", **evaluator(local_chain)))
    flag = next(flag for flag in scores["flags"] if flag["code"] == "crowded")
    assert flag["severity"] == "info"
    assert flag["sentence"] == f"{len(scores['rankings'])} submissions competed."


async def test_a_network_is_one_entry(local_chain: LocalChain, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry in `networks.py` is enough: CLARA_NETWORK accepts its name, and its presets find the challenges."""
    address = await finished_round(local_chain, monkeypatch, judge="rules")
    settings = {
        "CLARA_NETWORK": "islands",
        "CLARA_RPC_URL": local_chain.rpc_url,
        "CLARA_DATABASE_URL": "sqlite:///n.db",
    }
    words = ("challenge", "list", "--status", "any", "--json")
    refused = await command(source, *words, **settings)
    assert (refused.returncode, "CLARA_NETWORK='islands'" in refused.stderr) == (2, True)

    deployed = local_chain.deployment
    presets = {"factory": deployed.factory, "from_block": deployed.from_block, "token": deployed.token}
    add(source / "networks.py", NETWORK_ENTRY.format(registry=deployed.identity_registry, **presets))
    found = document(await command(source, *words, **settings))
    assert found["network"] == "islands"
    assert [item["address"].lower() for item in found["challenges"]] == [address]
    assert found["challenges"][0]["explorerUrl"].startswith("https://islands.example/")
