"""Tools with exact schemas: an argument that does not exist is an error, and no words are wasted on generated titles.

A model that misspells an argument must learn it at once; silently ignored, a misspelt `deadline` would post something
else than was meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
SPENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
CLAIMS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
ToolEntry = tuple[Callable[..., Any], str, ToolAnnotations]
"""A tool's function, its title for people, and what a client may expect of it."""


def exact_tool(function: Callable[..., Any], title: str, hints: ToolAnnotations) -> Tool:
    """The function as a tool that takes its own arguments and no others."""
    tool = Tool.from_function(function, title=title, annotations=hints, structured_output=True)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = without_titles(arguments.model_json_schema(by_alias=True))
    tool.fn_metadata.output_schema = without_titles(tool.fn_metadata.output_schema or {})
    return tool


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema without `title`s; properties that are called so stay."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"}:
            found[key] = {name: without_titles(part) for name, part in value.items()}
        elif isinstance(value, dict):
            found[key] = without_titles(value)
        elif isinstance(value, list):
            found[key] = [without_titles(part) if isinstance(part, dict) else part for part in value]
        elif key != "title":
            found[key] = value
    return found
