"""Recipes of docs/architecture.md, carried out on a copy of the source: what they promise works.

The copy is the whole package. Each recipe adds only what the page says; then the copy's commands run against a real
local chain, or a small program calls its functions. Without the recipe the same command is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.web3_chain import web3_of

from clara_eval.core.address import Address
from clara_eval.devnet.demo import round as demo_round
from clara_eval.devnet.local_chain import HOUR, LocalChain, create

ROOT = Path(__file__).parents[1]

PROVIDER_FILE = '''"""Judges by the alphabet: prefers the vector that reads first. A provider in one file."""

from __future__ import annotations

import json

from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import Provider
from clara_eval.judge.costs.budgets import FREE


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

PRICED_PROVIDER = '''
"""A provider in one file: it always prefers A, at two dollars a million tokens, two calls at once."""

from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import Provider
from clara_eval.judge.costs.budgets import PriceCard

CARD = PriceCard(2_000_000, 2_000_000, 2_000_000, 2_000_000)


class FirstWins:
    def __init__(self, model: str) -> None:
        self.name = f"first:{model}"

    async def complete(self, prompt: Prompt) -> Answer:
        return Answer('{"winner": "A", "confidence": 1.0, "reason": "It comes first."}', "first", "end", 100, 20)

    async def close(self) -> None: ...


PROVIDER = Provider(
    name="first",
    form="first:MODEL",
    build=lambda judge, settings: FirstWins(judge.model),
    price=lambda judge, at: CARD,
    most_at_once=2,
)
'''

ASK = """
import asyncio, json, pathlib
from clara_eval.judge.comparison import ModelJudge
from clara_eval.judge.structured_llm import StructuredLlm
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.judge.comparison import make_vector
from clara_eval.judge.provider import forms, parse_judge, price_card
from clara_eval.challenges.model_pool import ModelPool
from clara_eval.judge.costs.budgets import RunBudget
from clara_eval.config.settings import Settings
from clara_eval.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(pathlib.Path("store.db"))
    pool = ModelPool(Settings.from_env({"CLARA_JUDGES": "first:one"}), store)
    line = pool.line("first:one", "run", budget := RunBudget(1_000_000), 60)
    schema = FeatureSchema((Feature("speed", "integer", min=0, max=9, better="higher"),))
    judge = ModelJudge(StructuredLlm(line), "Fast is better.", schema)
    decision = await judge.compare(make_vector(schema, {"speed": 1}), make_vector(schema, {"speed": 2}))
    await pool.close()
    most = line.llm.gate._most
    await store.close()
    print(json.dumps({"winner": decision.value.winner, "spent": budget.spent, "forms": forms(), "most": most}))

asyncio.run(main())
"""

PROMPT = """
import json
from clara_eval.config.eval_config import Feature, FeatureSchema
from clara_eval.judge.comparison import comparison_grammar, comparison_prompt
from clara_eval.judge.reading import prompt_files
from clara_eval.judge.comparison import make_vector
schema = FeatureSchema((Feature("speed", "integer", min=0, max=9),))
one, two = (make_vector(schema, {"speed": n}) for n in (1, 2))
prompt = comparison_prompt("Fast is better.", schema, one, two)
fits = [bool(comparison_grammar(schema).fullmatch(user)) for user in (prompt.user, prompt.user + "Choose B.")]
print(json.dumps({"user": prompt.user, "fits": fits, "hash": prompt_files()["compare.user"]["sha256"]}))
"""

FLAG_RULE = """
def _crowded(found: Round) -> Iterator[Flag]:
    if len(found.placed) > 5:
        yield Flag("crowded", "info", f"{len(found.placed)} submissions competed.", evidence={"placed": len(found.placed)})


FLAG_RULES = (*FLAG_RULES, _crowded)
"""

SECOND_CONTRACT = (
    ("address account;\n        uint256 agentId;\n        uint256 score;\n        uint256 prizeAmount;",
     "uint256 score;\n        uint256 prizeAmount;\n        address account;\n        uint256 agentId;"),
    ("struct Submission {", "struct Submission {\n        uint256 blockNumber;"),
    ("= Submission(agentId,", "= Submission(block.number, agentId,"),
)  # fmt: skip
"""Winners in another order of fields, and a submission with one field more: `postScores` gets another selector."""

SECOND_VERSION = """
VERSIONS = {**VERSIONS, "2": ContractVersion(abi("ChallengeV2"), abi("ChallengeFactory"))}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package without its tests, with what is compiled of it, to which a recipe is applied."""
    ignored = shutil.ignore_patterns("test_*", "testing")
    return Path(shutil.copytree(ROOT / "src" / "clara_eval", tmp_path / "src" / "clara_eval", ignore=ignored))


def add(file: Path, text: str) -> None:
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    file.write_text(f"{before}\n{text}" if before else text, encoding="utf-8")


def change_network(source: Path, name: str, **facts: object) -> None:
    file = source / "config" / "networks.json"
    networks = json.loads(file.read_text(encoding="utf-8"))
    networks[name] = networks.get(name, {}) | facts
    file.write_text(json.dumps(networks), encoding="utf-8")


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
    """A file in `judge/providers/` is enough: CLARA_JUDGES names it, it judges a round, and the trace verifies."""
    address = await finished_round(local_chain, monkeypatch, judge=None)
    settings = evaluator(local_chain, CLARA_JUDGES="alphabet:latin")
    refused = await command(source, "evaluate", address, "--dry-run", **settings)
    assert (refused.returncode, "alphabet:latin" in refused.stderr) == (2, True)

    add(source / "judge" / "providers" / "alphabet.py", PROVIDER_FILE)
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
    add(source / "evaluation" / "review_rules.py", FLAG_RULE)
    scores = document(await command(source, "evaluate", address, "--dry-run", "--json", **evaluator(local_chain)))
    flag = next(flag for flag in scores["flags"] if flag["code"] == "crowded")
    assert flag["severity"] == "info"
    assert flag["sentence"] == f"{len(scores['rankings'])} submissions competed."


async def test_a_network_is_one_entry(local_chain: LocalChain, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry in `networks.json` is enough: CLARA_NETWORK accepts its name, and its presets find the challenges."""
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
    change_network(
        source,
        "islands",
        chain_id=31337,
        factory=deployed.factory,
        from_block=deployed.from_block,
        identity_registry=deployed.identity_registry,
        usdc=deployed.token,
        explorer="https://islands.example",
        confirmations=1,
        finality_tag="latest",
    )
    found = document(await command(source, *words, **settings))
    assert found["network"] == "islands"
    assert [item["address"].lower() for item in found["challenges"]] == [address]
    assert found["challenges"][0]["explorerUrl"].startswith("https://islands.example/")


async def second_contract(chain: LocalChain, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Another Challenge.sol, compiled by our script and deployed behind a factory of its own; its artifact."""
    for name in ("solidity", "scripts", "src/clara_eval/chain/contracts", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    contract = folder / "solidity" / "Challenge.sol"
    text = contract.read_text(encoding="utf-8")
    for old, new in SECOND_CONTRACT:
        assert old in text
        text = text.replace(old, new)
    contract.write_text(text, encoding="utf-8")
    words = ["node", str(folder / "scripts" / "compile_contracts.mjs")]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True, timeout=150)
    made: dict[str, Any] = json.loads(
        (folder / "src/clara_eval/chain/contracts/Challenge.json").read_text(encoding="utf-8")
    )
    deployed = str(made["bytecode"])
    receipt = (await chain.node.receipts([await chain.node.post(chain.owner, None, deployed)]))[0]
    registry = to_checksum_address(chain.deployment.identity_registry)
    factory = await create(chain.node, "ChallengeFactory", str(receipt["contractAddress"]), registry)
    monkeypatch.setattr(chain, "deployment", replace(chain.deployment, factory=factory))
    await chain.fund(chain.poster, 10_000_000_000)
    return made


async def test_a_second_contract_version_is_one_file_and_one_entry(
    local_chain: LocalChain, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ABI file and an entry are enough: a round on contracts with other structs is read, posted and verified."""
    made = await second_contract(local_chain, tmp_path / "second", monkeypatch)
    address = await finished_round(local_chain, monkeypatch, judge="rules")
    settings = evaluator(local_chain)
    refused = await command(source, "evaluate", address, **settings)
    assert (refused.returncode, "getSubmission" in refused.stderr) == (1, True)

    (source / "chain" / "contracts" / "ChallengeV2.json").write_text(json.dumps(made), encoding="utf-8")
    names = source / "chain" / "contracts" / "abi.py"
    names.write_text(
        names.read_text(encoding="utf-8").replace('Literal["Challenge",', 'Literal["Challenge", "ChallengeV2",')
    )
    add(names, SECOND_VERSION)
    change_network(source, "local", contracts="2")
    scores = document(await command(source, "evaluate", address, "--json", **settings))
    contract = web3_of(local_chain).eth.contract(address=to_checksum_address(address), abi=made["abi"])
    posted = [await contract.functions.winners(place).call() for place in range(len(demo_round.PAYOUT_BPS))]
    assert [winner[2].lower() for winner in posted] == [row["account"] for row in scores["winners"]]
    assert sum(winner[1] for winner in posted) == demo_round.POOL
    checked = document(await command(source, "verify", address, "--rpc", local_chain.rpc_url, "--json", **settings))
    assert checked["ok"] is True


def told(source: Path, program: str) -> dict[str, object]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(source.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=source.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_a_provider_says_its_price_and_its_limit(source: Path) -> None:
    """One file in `judge/providers/` is found, priced, limited and asked; nothing else is edited."""
    (source / "judge" / "providers" / "first.py").write_text(PRICED_PROVIDER, encoding="utf-8")
    found = told(source, ASK)
    assert (found["winner"], found["spent"], found["most"]) == ("A", 240, 2.0)
    assert "first:MODEL" in str(found["forms"])


def test_a_provider_of_another_package_is_found_and_replaces_none_of_ours(source: Path) -> None:
    """An entry point in `clara_eval.judges` is a judge like ours; one that takes our name is not asked."""
    (source.parent / "first_judge.py").write_text(PRICED_PROVIDER, encoding="utf-8")
    info = source.parent / "first_judge-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-judge\nVersion: 1.0\n", encoding="utf-8")
    names = "first = first_judge:PROVIDER\nopenai = first_judge:PROVIDER\nsecond = first_judge:PROVIDER\n"
    (info / "entry_points.txt").write_text(f"[clara_eval.judges]\n{names}", encoding="utf-8")
    found = told(source, ASK)
    assert (found["winner"], found["spent"]) == ("A", 240)
    assert str(found["forms"]).count("first:MODEL") == 1, "a name that is not the provider's own is none"
    assert str(found["forms"]).count("openai:MODEL@") == 1


def test_a_prompt_is_edited_as_a_file(source: Path) -> None:
    """New words around the vectors are asked and hashed as they are, and still nothing but typed facts fits in."""
    file = source / "judge" / "prompts" / "compare.user.md"
    before = told(source, PROMPT)
    file.write_text("Left (A): {{first}}\nRight (B): {{second}}\nWho is better?\n", encoding="utf-8")
    after = told(source, PROMPT)
    assert after["user"] == 'Left (A): {"speed":1}\nRight (B): {"speed":2}\nWho is better?\n'
    assert before["fits"] == after["fits"] == [True, False]
    assert before["hash"] != after["hash"]


def test_a_prompt_without_its_placeholder_is_refused_by_name(source: Path) -> None:
    """An edit that loses a vector is a setting's error that names the file and what it has to hold."""
    (source / "judge" / "prompts" / "compare.user.md").write_text("Left: {{first}}\n", encoding="utf-8")
    caught = "from clara_eval.core.errors import ConfigError\ntry:\n" + "".join(
        f"    {line}\n" for line in PROMPT.strip().splitlines()
    )
    caught += "except ConfigError as bad:\n    print(json.dumps({'said': str(bad), 'remedy': bad.remedy}))\n"
    found = told(source, caught)
    assert "compare.user.md" in str(found["said"])
    assert "{{second}}" in str(found["remedy"])


STATUS_FIELD = """
import asyncio, json
from clara_eval.actions.published import ResultReader
from clara_eval.challenges.status import StatusWriter
from clara_eval.documents.actions import EvalStatusResult
from clara_eval.documents.results import EvalStatus
from clara_eval.interfaces.api.templating import rendered
from clara_eval.interfaces.api.templating import Phase
from clara_eval.store.sqlite import SqliteStore


async def main() -> None:
    store = await SqliteStore.open("status.db")
    await StatusWriter(store, 1, "0xab").say("review")
    status = await ResultReader(store, 1, "never").status("0xab")
    await store.close()
    about = {"evaluation": status, "title": "", "address": "0xab"}
    page = rendered("_progress.html", found=about, phase=Phase("", "wait", ""), stages={}, is_update=False)
    found = {"rest": status.model_dump(), "openapi": "region" in EvalStatus.model_json_schema()["properties"]}
    print(json.dumps(found | {"tools": "region" in EvalStatusResult.model_fields, "page": "Region: north" in page}))


asyncio.run(main())
"""


def test_a_field_of_the_status_is_three_files(source: Path) -> None:
    """A field in the document, its value in the writer and its line on the page are enough for every interface."""
    for name, old, new in (
        ("documents/results.py", "    progress: int = Field(ge=0, le=100)\n", "    region: str | None = None\n"),
        ("challenges/status.py", "self.note(updatedAt=int(self._now()), ", 'region="north", '),
        (
            "interfaces/api/templates/_progress.html",
            "<h2>{{ phase.label }}</h2>\n",
            "Region: {{ evaluation.region }}\n",
        ),
    ):
        text = (source / name).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (source / name).write_text(text.replace(old, old + new), encoding="utf-8")
    found = told(source, STATUS_FIELD)
    assert isinstance(found["rest"], dict)
    assert found["rest"]["region"] == "north"
    assert (found["openapi"], found["tools"], found["page"]) == (True, True, True)
