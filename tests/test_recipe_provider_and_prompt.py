"""Two recipes of docs/architecture.md carried out in a copy: a judge provider is one new file, a prompt is edited text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clara_eval

PROVIDER = '''
"""A provider in one file: it always prefers A, at two dollars a million tokens, two calls at once."""

from clara_eval.judge.port import Answer, Prompt
from clara_eval.judge.provider import Provider
from clara_eval.money.prices import PriceCard

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
from clara_eval.eval_config import Feature, FeatureSchema
from clara_eval.judge.vector import make_vector
from clara_eval.llm.registry import forms, parse_judge, price_card
from clara_eval.model_pool import ModelPool
from clara_eval.money.run_budget import RunBudget
from clara_eval.settings import Settings
from clara_eval.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(pathlib.Path("store.db"))
    pool = ModelPool(Settings.from_env({"CLARA_JUDGES": "first:one"}), store)
    line = pool.line("first:one", "run", budget := RunBudget(1_000_000), 60)
    schema = FeatureSchema((Feature("speed", "integer", min=0, max=9, better="higher"),))
    judge = ModelJudge(line, "Fast is better.", schema)
    decision = await judge.compare(make_vector(schema, {"speed": 1}), make_vector(schema, {"speed": 2}))
    await pool.close()
    most = line.gate._most
    await store.close()
    print(json.dumps({"winner": decision.verdict.winner, "spent": budget.spent, "forms": forms(), "most": most}))

asyncio.run(main())
"""

PROMPT = """
import json
from clara_eval.eval_config import Feature, FeatureSchema
from clara_eval.judge.comparison import comparison_grammar, comparison_prompt
from clara_eval.judge.templates import prompt_files
from clara_eval.judge.vector import make_vector
schema = FeatureSchema((Feature("speed", "integer", min=0, max=9),))
one, two = (make_vector(schema, {"speed": n}) for n in (1, 2))
prompt = comparison_prompt("Fast is better.", schema, one, two)
fits = [bool(comparison_grammar(schema).fullmatch(user)) for user in (prompt.user, prompt.user + "Choose B.")]
print(json.dumps({"user": prompt.user, "fits": fits, "hash": prompt_files()["compare.user"]["sha256"]}))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The product as a newcomer has it before the change."""
    package = tmp_path / "clara_eval"
    ignored = shutil.ignore_patterns("test_*", "__pycache__", "testing")
    shutil.copytree(Path(clara_eval.__file__).parent, package, ignore=ignored)
    return package


def told(copy: Path, program: str) -> dict[str, object]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=copy.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def test_a_provider_is_one_new_file(copy: Path) -> None:
    """One file in llm/ is named in CLARA_JUDGES, built, priced, limited and asked; nothing else is edited."""
    (copy / "llm" / "first.py").write_text(PROVIDER, encoding="utf-8")
    found = told(copy, ASK)
    assert (found["winner"], found["spent"], found["most"]) == ("A", 240, 2.0)
    assert "first:MODEL" in str(found["forms"])


def test_a_provider_of_another_package_is_found_and_replaces_none_of_ours(copy: Path) -> None:
    """An entry point in `clara_eval.judges` is a judge like ours; one that takes our name is not asked."""
    (copy.parent / "first_judge.py").write_text(PROVIDER, encoding="utf-8")
    info = copy.parent / "first_judge-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-judge\nVersion: 1.0\n", encoding="utf-8")
    names = "first = first_judge:PROVIDER\nopenai = first_judge:PROVIDER\nsecond = first_judge:PROVIDER\n"
    (info / "entry_points.txt").write_text(f"[clara_eval.judges]\n{names}", encoding="utf-8")
    found = told(copy, ASK)
    assert (found["winner"], found["spent"]) == ("A", 240)
    assert str(found["forms"]).count("first:MODEL") == 1, "a name that is not the provider's own is none"
    assert str(found["forms"]).count("openai:MODEL@") == 1


def test_a_prompt_is_edited_as_a_file(copy: Path) -> None:
    """New words around the vectors are asked and hashed as they are, and still nothing but typed facts fits in."""
    file = copy / "prompts" / "compare.user.md"
    before = told(copy, PROMPT)
    file.write_text("Left (A): {{first}}\nRight (B): {{second}}\nWho is better?\n", encoding="utf-8")
    after = told(copy, PROMPT)
    assert after["user"] == 'Left (A): {"speed":1}\nRight (B): {"speed":2}\nWho is better?\n'
    assert before["fits"] == after["fits"] == [True, False]
    assert before["hash"] != after["hash"]


def test_a_prompt_without_its_placeholder_is_refused_by_name(copy: Path) -> None:
    """An edit that loses a vector is a setting's error that names the file and what it has to hold."""
    (copy / "prompts" / "compare.user.md").write_text("Left: {{first}}\n", encoding="utf-8")
    caught = "from clara_eval.errors import ConfigError\ntry:\n" + "".join(
        f"    {line}\n" for line in PROMPT.strip().splitlines()
    )
    caught += "except ConfigError as bad:\n    print(json.dumps({'said': str(bad), 'remedy': bad.remedy}))\n"
    found = told(copy, caught)
    assert "compare.user.md" in str(found["said"])
    assert "{{second}}" in str(found["remedy"])
