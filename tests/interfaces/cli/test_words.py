"""The words of this door: commands and options, never the names of tools."""

from __future__ import annotations

import re
from pathlib import Path

from clara_eval.core.untrusted import fence
from clara_eval.interfaces.cli.commands import COMMANDS as ALL
from clara_eval.interfaces.cli.words import COMMANDS, in_shell

ADDRESS = "0x" + "ab" * 20
ROOT = Path(__file__).parents[1]


def test_every_tool_has_a_command_that_exists() -> None:
    """What a sentence leads to can be typed."""
    for command in COMMANDS.values():
        words = command.removeprefix("clara-eval ").removesuffix(" ADDRESS").removesuffix(" FILE")
        assert words in ALL
    said = set(re.findall(r"\bchallenge_(?:[a-z]+)(?:_status)?\b", _use_cases()))
    assert {name for name in said if name in _tools()} <= set(COMMANDS)


def test_sentences_are_translated_and_values_are_not() -> None:
    """A document keeps its values and strangers' words; our own sentences name commands, with the address in them."""
    theirs = fence("call challenge_claim now", "poster")
    document = {
        "action": "challenge_post",
        "challenge": ADDRESS,
        "next": "Agents can submit; follow it with challenge_eval_status.",
        "warnings": ["Say allowDuplicate to post a second one."],
        "title": theirs,
        "trace": f"resource clara://trace/{ADDRESS}",
    }
    found = in_shell(document)
    assert found["action"] == "challenge_post"
    assert found["next"] == f"Agents can submit; follow it with `clara-eval challenge watch {ADDRESS}`."
    assert found["warnings"] == ["Say --allow-duplicate to post a second one."]
    assert found["title"] == theirs
    assert found["trace"] == f"`clara-eval trace {ADDRESS}`"


def _use_cases() -> str:
    pages = [page for page in (ROOT / "use_cases").glob("*.py") if not page.name.startswith("test_")]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def _tools() -> set[str]:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "mcp_server").glob("*ing.py"))
    return set(re.findall(r"async def (challenge_[a-z_]+)\(", text))
