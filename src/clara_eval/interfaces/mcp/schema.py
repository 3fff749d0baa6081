"""How a tool is defined and answers: a short text, and the whole document as structured content."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import AliasChoices, BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from clara_eval.app import Caller
from clara_eval.core.errors import ClaraError
from clara_eval.core.untrusted import escaped
from clara_eval.interfaces.mcp.text import NAMES
from clara_eval.interfaces.words import error_text

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
SPENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
CLAIMS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=True)
ToolEntry = tuple[Callable[..., Any], str, ToolAnnotations]
"""A tool's function, its title, and what a client may expect of it."""
ToolContext = Context[Caller, object]
Decision = Literal["yes", "no", "unasked"]
Confirm = Annotated[bool, Field(description="The wallet's owner agreed to this very plan.")]
T = TypeVar("T")
MAX_ERROR_CHARS = 6000


class ExactTool(Tool):
    """A tool that names every wrong argument at once, ignores foreign ones, and says our errors in our words."""

    async def run(
        self, arguments: dict[str, object], context: Context[Any, Any], convert_result: bool = False
    ) -> object:
        foreign = [name for name in arguments if not self._near(name)]
        arguments = {name: value for name, value in arguments.items() if name not in foreign}
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as wrong:
            said = dict.fromkeys(self._word(error) for error in wrong.errors(include_url=False))
            raise ToolError(f"{self.name} was not called. " + " ".join(said)) from None
        try:
            found = await super().run(arguments, context, convert_result)
        except ToolError as failed:
            if not isinstance(failed.__cause__, ClaraError):
                raise
            told = escaped(error_text(failed.__cause__, NAMES), keep_lines=True)[:MAX_ERROR_CHARS]
            raise ToolError(f"Error executing tool {self.name}: {told}") from failed.__cause__
        if foreign and isinstance(found, CallToolResult):
            names = ", ".join(f"`{name[:40]}`" for name in foreign)
            found.content.append(TextContent(type="text", text=f"Ignored, because {self.name} has no {names}."))
        return found

    def _near(self, name: str) -> list[str]:
        """The argument of this name, or those it may be a misspelling of."""
        known = set(self.parameters["properties"])
        for field in self.fn_metadata.arg_model.model_fields.values():
            aliases = field.validation_alias
            known |= {str(one) for one in aliases.choices} if isinstance(aliases, AliasChoices) else set()
        return [name] if name in known else difflib.get_close_matches(name, known, n=1)

    def _word(self, error: ErrorDetails) -> str:
        name = str(error["loc"][0]) if error["loc"] else "arguments"
        if error["type"] == "extra_forbidden":
            return f"`{name[:40]}` is not an argument of it. Did you mean `{self._near(name)[0]}`?"
        if error["type"] == "missing":
            return (
                f"`{name}` is missing: {self.parameters['properties'].get(name, {}).get('description', 'it is needed')}"
            )
        return f"`{name}`: {error['msg']}."


def exact_tool(function: Callable[..., object], title: str, hints: ToolAnnotations) -> Tool:
    tool = ExactTool.from_function(
        function, title=title, description=" ".join((function.__doc__ or "").split()), annotations=hints,
        structured_output=True,
    )  # fmt: skip
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters = without_titles(arguments.model_json_schema(by_alias=True))
    tool.fn_metadata.output_schema = outline(without_titles(tool.fn_metadata.output_schema or {}))
    return tool


class Agreement(BaseModel):
    """The wallet owner's answer."""

    confirm: bool = Field(description="Yes: sign and send it with the local wallet.")


def can_ask(ctx: ToolContext) -> bool:
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def agreed_tool(
    result: type[BaseModel],
    question: Callable[[Caller, T], Awaitable[str | None]],
    act: Callable[[ToolContext, T, Decision], Awaitable[CallToolResult]],
) -> Callable[[Callable[..., T]], Callable[..., Awaitable[CallToolResult]]]:
    """Make a tool of a function that reads the arguments: ask the wallet's owner if a client can, then act."""

    def tool_of(read: Callable[..., T]) -> Callable[..., Awaitable[CallToolResult]]:
        async def ask(ctx: ToolContext, wanted: T, confirm: bool) -> Elicit[Agreement] | Agreement:
            asked = await question(caller_of(ctx), wanted) if can_ask(ctx) else None
            return Elicit(asked, Agreement) if asked else Agreement(confirm=confirm)

        async def tool(ctx: ToolContext, wanted: T, agreed: ElicitationResult[Agreement], **_: Any) -> CallToolResult:
            is_agreed = isinstance(agreed, AcceptedElicitation) and agreed.data.confirm
            return await act(ctx, wanted, "yes" if is_agreed else "no" if can_ask(ctx) else "unasked")

        ask.__annotations__["wanted"] = Annotated[Any, Resolve(read)]
        named = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        shown = [
            named("ctx", annotation=ToolContext),
            named("wanted", annotation=Annotated[Any, Resolve(read)]),
            named("agreed", annotation=Annotated[ElicitationResult[Agreement], Resolve(ask)]),
            *(one.replace(kind=one.KEYWORD_ONLY) for one in inspect.signature(read, eval_str=True).parameters.values()),
            named("confirm", annotation=Confirm, default=False),
        ]
        returned = Annotated[CallToolResult, result]
        tool.__name__, tool.__doc__ = read.__name__, read.__doc__
        tool.__annotations__ = {**{one.name: one.annotation for one in shown}, "return": returned}
        vars(tool)["__signature__"] = inspect.Signature(shown, return_annotation=returned)
        return tool

    return tool_of


def without_titles(schema: dict[str, Any]) -> dict[str, object]:
    """Remove `title`s from a schema; properties with that name stay."""
    found: dict[str, object] = {}
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


def outline(schema: dict[str, Any]) -> dict[str, object]:
    """The fields of an answer with their types, without those that may be null and without what is inside them."""
    named = schema.get("$defs", {})
    kinds = {name: _type(part, named) for name, part in schema.get("properties", {}).items()}
    certain = {name: {"type": kind} for name, kind in kinds.items() if "null" not in kind}
    return {"type": "object", "properties": certain}


def _type(part: dict[str, Any], named: dict[str, Any]) -> str | list[str]:
    choices = part.get("anyOf", [part])
    meant = [named[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice for choice in choices]
    kinds = list(dict.fromkeys(str(choice["type"]) for choice in meant))
    return kinds[0] if len(kinds) == 1 else kinds


def caller_of(ctx: ToolContext) -> Caller:
    return ctx.request_context.lifespan_context


def answer(text: str, document: BaseModel | Mapping[str, object]) -> CallToolResult:
    shown = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=cast("Any", shown))
