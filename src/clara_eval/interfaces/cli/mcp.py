"""`clara-eval mcp`: the agents' tools on standard input and output; its help needs no extra."""

from __future__ import annotations

import asyncio

from clara_eval.config.settings import Settings


def mcp() -> None:
    """Serve the challenge tools to an MCP client over stdio."""
    from clara_eval.interfaces.mcp import run_stdio  # noqa: PLC0415 - an extra

    asyncio.run(run_stdio(Settings.from_env()))
