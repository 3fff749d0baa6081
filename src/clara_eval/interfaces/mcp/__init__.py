"""Challenges as tools of the Model Context Protocol, over stdio or inside the service."""

from __future__ import annotations

from clara_eval.interfaces.mcp.server import build_server, run_stdio

__all__ = ["build_server", "run_stdio"]
