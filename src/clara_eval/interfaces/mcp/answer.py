"""How a tool answers: a short text for the model, the whole document as structured content, errors in one sentence.

The text holds only our own words and values of ours; strangers' words are in the document, fenced, and repeated in the
text only inside their fence.
"""

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

ToolContext = Context[Caller, object]
MAX_ERROR_CHARS = 6000


def caller_of(ctx: ToolContext) -> Caller:
    return ctx.request_context.lifespan_context


def answer(text: str, document: BaseModel | Mapping[str, object]) -> CallToolResult:
    shown = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=cast("Any", shown))


@contextmanager
def in_words() -> Iterator[None]:
    """Our errors become the tool's error, in words; everything else is a bug and stays one."""
    try:
        yield
    except ClaraError as bad:
        raise ToolError(escaped(str(bad), keep_lines=True)[:MAX_ERROR_CHARS]) from bad
