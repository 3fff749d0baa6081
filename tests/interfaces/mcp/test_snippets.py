"""The snippets of docs/agents.md: what a reader copies into a client is valid and starts a server that is there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli import COMMANDS
from clara_eval.interfaces.mcp.tools import LOCAL_TOOLS, TOOLS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
KNOWN = {str(field.alias) for field in Settings.model_fields.values()}
JSON = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def starts_the_tools(command: str, arguments: list[str]) -> bool:
    return command in PROGRAMS and arguments == ["mcp"] and "mcp" in COMMANDS


def test_there_is_a_snippet_for_each_common_client() -> None:
    """Claude Desktop, Claude Code, Cursor, VS Code, Python, and the service over HTTP."""
    assert [name for name in ("Claude Desktop", "Claude Code", "Cursor", "VS Code", "Python", "Over HTTP")
            if f"**{name}**" not in PAGE] == []  # fmt: skip
    assert {key for text in JSON for key in json.loads(text)} == {"mcpServers", "servers"}


@pytest.mark.parametrize("text", JSON, ids=range(len(JSON)))
def test_a_snippet_is_json_with_a_command_and_settings_that_exist(text: str) -> None:
    """A program of the package with the command `mcp` and known settings, or the address of the service."""
    for servers in json.loads(text).values():
        for server in servers.values():
            if server.get("type") == "http":
                assert server["url"].endswith("/mcp")
                continue
            assert starts_the_tools(server["command"], server["args"])
            assert set(server["env"]) <= KNOWN


def test_the_line_for_a_shell_names_the_same_command() -> None:
    """What stands after `--` is what the client starts, and its settings exist."""
    line = shlex.split(re.findall(r"^claude mcp add .*$", PAGE, re.MULTILINE)[0])
    command, *arguments = line[line.index("--") + 1 :]
    assert starts_the_tools(command, arguments)
    names = [line[place + 1].split("=")[0] for place, word in enumerate(line) if word == "-e"]
    assert names
    assert set(names) <= KNOWN


async def test_the_python_client_lists_the_tools(tmp_path: Path) -> None:
    """The program of the page, with the official SDK, starts `clara-eval mcp` and prints every tool."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, complained = await asyncio.wait_for(process.communicate(), 120)
    names = {function.__name__ for function, _, _ in (*TOOLS, *LOCAL_TOOLS)}
    assert set(re.findall(r"\w+", out.decode())) == names, complained.decode()
