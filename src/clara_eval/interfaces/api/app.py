"""Build the HTTP application: REST routes, pages, limits, error responses, and MCP tools under `/mcp`."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response
from starlette.types import Scope

from clara_eval.app import evaluator_address, make_caller
from clara_eval.config.settings import listed
from clara_eval.core.version import __version__
from clara_eval.interfaces.api import limits, operator_pages, pages, routes
from clara_eval.interfaces.api.context import AdminKey, ApiContext, Problem, add_error_handlers
from clara_eval.interfaces.api.templating import STATIC

_DESCRIPTION = """Evaluation of on-chain challenges: who won, how sure that is, and the trace that proves it.

Errors are RFC 9457 problem documents. Times are unix seconds; amounts are base units of the prize token, as strings."""


def create_app(context: ApiContext, *, rates: limits.Rates | None = None, only_operations: bool = False) -> FastAPI:
    """Build the whole application, or with `only_operations` health and metrics alone."""
    app = FastAPI(
        title="Clara Eval",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.context = context
    app.state.admin_key = AdminKey(context.settings.admin_api_key)
    app.state.limits = limits.RequestLimits(rates or limits.Rates())
    app.state.streams = 0
    app.state.traces = {}
    app.state.evaluator = evaluator_address(context.settings)
    app.state.caller = make_caller(context.settings, is_local=False, store=context.reader.store)
    app.state.stopping = asyncio.Event()
    add_error_handlers(app)
    app.state.tools = None
    app.include_router(routes.operations)
    _serve_text(app, "llms.txt", "text/plain")
    _serve_text(app, "skill.md", "text/markdown")
    if not only_operations:
        app.include_router(routes.router)
        app.include_router(routes.challenge_router)
        app.include_router(pages.plan_router)
        app.include_router(operator_pages.router)
        app.include_router(pages.router)
        app.mount("/static", pages.Assets(directory=STATIC), name="static")
        if importlib.util.find_spec("mcp") is not None:  # the extra `mcp`
            app.state.tools = importlib.import_module("clara_eval.interfaces.mcp.server").create_asgi(app.state.caller)
            app.mount("/mcp", app.state.tools)

    def count(scope: Scope, status: int) -> None:
        context.metrics.http_requests.labels(getattr(scope.get("route"), "path", "other"), str(status)).inc()

    if origins := list(listed(context.settings.cors_origins)):
        app.add_middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET"], expose_headers=["etag"])
    app.add_middleware(limits.PageCompression, minimum_size=1000, compresslevel=6)
    app.add_middleware(limits.PacingMiddleware)
    app.add_middleware(limits.LimitsMiddleware, limits=app.state.limits, count=count)
    document = _openapi(app)
    app.openapi = lambda: document  # type: ignore[method-assign] # FastAPI's own way to change the document
    return app


def _serve_text(app: FastAPI, name: str, kind: str) -> None:
    text = (files("clara_eval") / "interfaces" / "mcp" / name).read_text(encoding="utf-8")

    @app.get(f"/{name}", include_in_schema=False)
    async def text_file() -> Response:
        return Response(text, media_type=f"{kind}; charset=utf-8")


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the lifespan of the mounted MCP app, which FastAPI does not run itself."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.state.caller.close)
        if (tools := app.state.tools) is not None:
            await stack.enter_async_context(tools.router.lifespan_context(tools))
        yield


def _openapi(app: FastAPI) -> dict[str, object]:
    """Return FastAPI's OpenAPI document, with problem documents instead of its own validation errors."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for operation in (one for path in document["paths"].values() for one in path.values()):
        if operation.get("security") and "401" not in operation["responses"]:
            operation["security"].append({})  # the key is optional here: without it the response has less in it
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return document
