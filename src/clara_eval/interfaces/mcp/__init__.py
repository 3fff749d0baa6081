"""Challenges as tools of the Model Context Protocol.

Over stdio for one person or agent at this machine, with a local wallet if there is one; over HTTP inside the service
for everybody, without any wallet. The tools are thin: parse, call one action, say it shortly, return the document.
"""

from __future__ import annotations

from clara_eval.interfaces.mcp.server import build_server, run_stdio

__all__ = ["build_server", "run_stdio"]
