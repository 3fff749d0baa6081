"""How a tool answers: a short text, the whole document as structured content, errors as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from clara_eval.app import Caller
from clara_eval.core.errors import ClaraError
from clara_eval.core.untrusted import escaped
from clara_eval.interfaces.mcp.text import NAMES
from clara_eval.interfaces.words import error_text

ToolContext = Context[Caller, object]
MAX_ERROR_CHARS = 6000


def caller_of(ctx: ToolContext) -> Caller:
    return ctx.request_context.lifespan_context


def answer(text: str, document: BaseModel | Mapping[str, object]) -> CallToolResult:
    shown = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=cast("Any", shown))


@contextmanager
def tool_errors() -> Iterator[None]:
    """Turn our errors into the tool's; anything else is a bug and stays one."""
    try:
        yield
    except ClaraError as bad:
        raise ToolError(escaped(error_text(bad, NAMES), keep_lines=True)[:MAX_ERROR_CHARS]) from bad
