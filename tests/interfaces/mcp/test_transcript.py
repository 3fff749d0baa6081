"""The documentation for agents is what really happens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.scripts import load_script
from tests.support.shell import Shell

from clara_eval.config.settings import Settings
from clara_eval.interfaces.mcp.tools import TOOLS

ROOT = Path(__file__).parents[3]
AGENTS = ROOT / "docs" / "agents.md"


@pytest.mark.timeout(300)
async def test_the_transcript_is_what_happens(shell: Shell) -> None:
    """A fresh run of the lifecycle, in server processes of their own, says what the committed transcript says."""
    script = load_script("make_transcript")
    script.PROGRAM = (shell.program,)  # type: ignore[attr-defined]
    fresh = script.shape(await script.transcript())
    assert fresh == script.shape(script.OUT.read_text(encoding="utf-8"))


def test_the_setups_can_be_pasted() -> None:
    """Every JSON block for a client parses and starts the server, and every tool is described."""
    text = AGENTS.read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    servers = [block[key]["clara-eval"] for block in blocks for key in ("mcpServers", "servers") if key in block]
    assert len(servers) == 3, "most clients take one form, VS Code and HTTP their own"
    for server in servers:
        assert server.get("args") == ["mcp"] or server["url"].endswith("/mcp")
    for function, _, _ in TOOLS:
        assert f"`{function.__name__}`" in text
    for name in re.findall(r"CLARA_[A-Z_]+", text):
        known = {field.alias for field in Settings.model_fields.values()}
        assert name.removesuffix("_FILE") in known, name
