"""`clara-eval mcp`: the agents' tools on standard input and output."""

from __future__ import annotations


def mcp() -> None:
    """Serve the challenge tools to an MCP client over stdio."""
    import asyncio

    from clara_eval.mcp_server import run_stdio
    from clara_eval.settings import Settings

    asyncio.run(run_stdio(Settings.from_env()))
