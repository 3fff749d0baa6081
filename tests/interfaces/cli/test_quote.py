"""Quoting and rehearsing as a poster does: the specification's table, today's prices, and a schema frozen in a file."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_endpoint import FakeEndpoint, Fault, Seen
from tests.support.scripted_judge import scripted_words
from typer.testing import CliRunner

from clara_eval.actions.quote import JURY_NOTE
from clara_eval.config.eval_config import compile_schema, parse_eval_config
from clara_eval.core.errors import BadInput
from clara_eval.interfaces.cli import app

CLAUDE = "anthropic:claude-sonnet-4-5"
CONFIG = {
    "version": 1,
    "features": ["correctness", "max_complexity", "has_tests", "swap_fee_logic"],
    "criteria": "Less gas is better, as long as it is correct.",
    "submissionFormat": "code",
    "language": "python",
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CLARA_JUDGES", "CLARA_PRICES", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def _run(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(app, ["config", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.specification("6", "25 submissions cost about $3.51")
def test_the_specification_table(config: Path) -> None:
    """25 submissions cost what the specification says: $0.50 + $3.00 + $0.01 = $3.51."""
    found = json.loads(_run("quote", config, "--json"))["specification"]
    assert {name: float(amount) for name, amount in found.items()} == {
        "features": 0.50,
        "comparison": 3.00,
        "posting": 0.01,
        "total": 3.51,
    }


def test_calls_and_prices(config: Path) -> None:
    """Code is read in two views, orders of four and pairs are counted, and the total is the sum of its stages."""
    found = json.loads(_run("quote", config, "--judges", CLAUDE, "--submissions", "25", "--json"))
    calls = {stage["stage"]: stage["calls"] for stage in found["stages"]}
    assert (found["schedule"], calls) == ("fours", {"schema": 1, "features": 50, "comparison": 288})
    parts = sum(float(stage["usd"]) for stage in found["stages"]) + float(found["postingUsd"])
    assert float(found["totalUsd"]) == pytest.approx(parts)
    half = json.loads(_run("quote", config, "--judges", CLAUDE, "--batch", "--json"))
    assert float(half["stages"][2]["usd"]) == pytest.approx(float(found["stages"][2]["usd"]) / 2, abs=0.001)


def test_a_budget_chooses_the_schedule(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a small field both orders of all pairs are quoted, or what fits the cap per challenge."""
    asked = ("quote", config, "--judges", CLAUDE, "--submissions", "7", "--json")
    assert (json.loads(_run(*asked))["schedule"], json.loads(_run(*asked))["looks"]) == ("both", 42)
    monkeypatch.setenv("CLARA_BUDGET_PER_CHALLENGE_USD", "0.05")
    found = json.loads(_run(*asked))
    assert found["schedule"] == "adaptive"
    assert found["looks"] < 21


def test_a_jury_is_told_what_a_second_judge_is_worth(config: Path) -> None:
    """Several judges: the note stands in both forms; one judge: not."""
    two = f"{CLAUDE},openai:mystery"
    assert json.loads(_run("quote", config, "--judges", two, "--json"))["notes"] == [JURY_NOTE]
    assert JURY_NOTE in " ".join(_run("quote", config, "--judges", two).split())
    assert json.loads(_run("quote", config, "--judges", CLAUDE, "--json"))["notes"] == []


def test_no_known_price_is_said(config: Path) -> None:
    """A model nobody knows the price of has no amount, and then there is no total; rules cost nothing but gas."""
    found = json.loads(_run("quote", config, "--judges", "openai:mystery", "--json"))
    assert (found["totalUsd"], found["noKnownPrice"]) == (None, ["openai:mystery"])
    assert "no known price" in _run("quote", config, "--judges", "openai:mystery")
    free = json.loads(_run("quote", config, "--judges", "rules", "--json"))
    assert (free["stages"], free["totalUsd"]) == ([], "0.010000")


def test_rehearse_without_a_model(config: Path, tmp_path: Path) -> None:
    """Without a model every name still has a type, and the frozen config reads back as the same schema, named once."""
    frozen = tmp_path / "frozen.json"
    found = json.loads(_run("rehearse", config, "--write", frozen, "--json"))
    assert [feature["name"] for feature in found["features"]] == CONFIG["features"]
    schema, untyped = compile_schema(parse_eval_config(frozen.read_bytes()))
    assert (schema.to_json()["features"], untyped, found["typedBy"]) == (found["features"], (), {})
    with pytest.raises(BadInput, match="exists already"):
        _run("rehearse", config, "--write", frozen)


def test_no_model_is_paid_for_a_file_that_is_not_written(config: Path, tmp_path: Path) -> None:
    """A name that is taken is refused before the judge is asked: this one does not even answer."""
    (tmp_path / "taken.json").touch()
    with pytest.raises(BadInput, match="exists already"):
        _run("rehearse", config, "--judges", "openai:gone@http://127.0.0.1:9/v1", "--write", tmp_path / "taken.json")


@pytest.mark.parametrize("command", ["quote", "rehearse"])
def test_a_config_that_is_not_usable_is_told_as_by_validate(config: Path, command: str) -> None:
    """Exit code 1 and its problems, as one document with --json; exit code 2 is for files that cannot be read."""
    config.write_text(json.dumps({**CONFIG, "critera": "x"}), encoding="utf-8")
    result = CliRunner().invoke(app, ["config", command, str(config), "--json"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"]) == (1, False)
    assert [problem["path"] for problem in document["problems"]] == ["$.critera"]


TYPED = {
    "features": [
        {
            "name": "swap_fee_logic",
            "type": "enum",
            "min": None,
            "max": None,
            "values": ["none", "fixed", "dynamic"],
            "better": "higher",
            "description": "How the fee is found.",
        }
    ]
}


def test_rehearse_with_a_model_and_a_sample(config: Path, tmp_path: Path, fake_model: str) -> None:
    """A model types the unknown name, and a sample is read with the schema as an evaluation would read it."""
    sample = tmp_path / "sample.py"
    sample.write_text("def fee(x):\n    return x // 100\n", encoding="utf-8")
    found = json.loads(_run("rehearse", config, "--judges", fake_model, "--sample", sample, "--json"))
    typed = found["features"][3]
    assert (typed["type"], typed["values"]) == ("enum", ["none", "fixed", "dynamic"])
    assert found["typedBy"] == {"swap_fee_logic": fake_model}
    facts = found["readings"][0]["facts"]
    assert facts["max_complexity"] == 1
    assert facts["swap_fee_logic"] == "fixed"
    assert "typed by" in _run("rehearse", config, "--judges", fake_model)


def test_a_rehearsal_tells_the_task_and_ranks_by_the_model(config: Path, tmp_path: Path, fake_model: str) -> None:
    """The model reads the problem from the file, and two samples end in a ranking with its reason."""
    for name, text in (("a.py", "def fee(x):\n    return x // 100\n"), ("b.py", "def tax(y):\n    print(y * 3)\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "task.txt").write_text("Charge one per cent, never less than a cent.", encoding="utf-8")
    samples: list[str | Path] = ["--sample", tmp_path / "a.py", "--sample", tmp_path / "b.py"]
    words: list[str | Path] = [
        "rehearse",
        config,
        "--judges",
        fake_model,
        "--problem",
        f"@{tmp_path / 'task.txt'}",
        *samples,
        "--json",
    ]
    found = json.loads(_run(*words))
    assert any("never less than a cent" in prompt for prompt in PROMPTS)
    assert sorted(Path(row["id"]).name for row in found["ranking"]) == ["a.py", "b.py"]
    assert not any("Nothing was stated." in prompt for prompt in PROMPTS)


PROMPTS: list[str] = []
"""What the fake model was asked in this test."""


def _words(seen: Seen) -> Fault | None:
    """Types for the typing prompt; for a reading, the check number of the task and plausible facts."""
    user = seen.body["messages"][-1]["content"]
    PROMPTS.append(user)
    fields = seen.schema["properties"]
    if "features" in fields:
        return Fault("text", text=json.dumps(TYPED))
    facts = {"swap_fee_logic": "fixed", "correctness": 3, "has_tests": False}
    said = json.loads(scripted_words(seen)) | {name: facts[name] for name in fields if name in facts}
    return Fault("text", text=json.dumps(said))


@pytest.fixture
def fake_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model at an address of its own, in a thread with its own event loop, at the price nothing."""
    PROMPTS.clear()
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    endpoint = FakeEndpoint(script=_words)

    async def serve() -> None:
        async with endpoint.running():
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    name = f"openai:fake@{endpoint.url}"
    monkeypatch.setenv("CLARA_PRICES", f"{name}=0/0")
    yield name
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()
