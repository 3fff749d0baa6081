"""Sentences about actions name commands in a shell and tools over MCP."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clara_eval.core.errors import NotFound
from clara_eval.documents.results import RankedEntry
from clara_eval.interfaces import words
from clara_eval.interfaces.cli import COMMANDS
from clara_eval.interfaces.cli.leaderboard import flag_sentence
from clara_eval.interfaces.cli.output import NAMES, fail
from clara_eval.interfaces.mcp import text
from clara_eval.interfaces.mcp.tools import TOOLS

ADDRESS = "0x" + "ab" * 20
ACTIONS = Path(words.__file__).parents[1] / "actions"
SENTENCES = [*words.SEE.values(), *words.PHASES.values(), *words.CONFIG_PROBLEMS.values(), *words.NEXT_STEPS.values()]
SENTENCES += [*words.HEADS.values(), *words.OBJECTIONS.values()]


def test_every_command_and_tool_of_a_sentence_exists() -> None:
    """What a sentence leads to can be typed, or called."""
    for name in NAMES.values():
        if called := re.match(r"`clara-eval (.*)`", name):
            assert called.group(1).partition(" {")[0].removesuffix(" FILE") in COMMANDS
    tools = {entry[0].__name__ for entry in TOOLS}
    assert {text.NAMES[name] for name in ("browse", "detail", "status", "claim", "check")} <= tools


@pytest.mark.parametrize("names", [NAMES, text.NAMES], ids=["shell", "tools"])
@pytest.mark.parametrize("template", SENTENCES)
def test_every_sentence_can_be_written(template: str, names: words.Names) -> None:
    """No sentence needs a name that an interface lacks."""
    written = words.fill_template(template, names, ADDRESS, moment="now", wait="1 h", meaning="It waits.")
    assert "{" not in written


def test_an_error_names_the_action_that_helps_in_the_words_of_its_interface(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A shell reads a command with the address in it, a model the name of a tool."""
    error = NotFound("Nothing is posted yet.", remedy="Wait.", see="status", about=ADDRESS)
    with pytest.raises(SystemExit):
        fail(error, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["remedy"] == f"Wait. Follow `clara-eval status {ADDRESS} --watch`."
    assert words.error_text(error, text.NAMES) == "Nothing is posted yet. Wait. Follow challenge_eval_status."


def test_no_action_names_a_tool() -> None:
    """Actions return codes and values: the names of tools are the interface's."""
    tools = {entry[0].__name__ for entry in TOOLS}
    for page in ACTIONS.glob("*.py"):
        source = page.read_text(encoding="utf-8")
        named = {name for name in tools if re.search(rf"[ `]{name}\b", source)}
        assert not named, f"{page.name} names {named}"


@pytest.mark.parametrize(
    ("elo", "low", "high", "shown"),
    [
        (1500.0, 1470.0, 1530.0, "1470 to 1530"),
        (1469.4, 1470.1, 1530.0, "1469 to 1530"),
        (1469.4, 1469.6, 1469.6, ""),
        (1500.0, None, None, ""),
    ],
)
def test_a_rating_is_inside_its_interval(elo: float, low: float | None, high: float | None, shown: str) -> None:
    """No rating is told beside an interval that it is not in; an exact one has none."""
    assert words.interval(RankedEntry(address=ADDRESS, elo=elo, low=low, high=high)) == shown


def test_a_flag_is_told_as_its_sentence() -> None:
    """A person reads the sentence of a flag and not its JSON, unless that was cut."""
    assert flag_sentence('{"code": "x", "sentence": "It speaks to the judge."}') == "It speaks to the judge."
    assert flag_sentence('{"code": "x", "sente') == '{"code": "x", "sente'
