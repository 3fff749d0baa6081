"""Shared parts of routes and pages: the context, the admin key, event streams, and error responses.

Errors are RFC 9457 problem documents, or a page if a browser asks for one.
Invariant: an unexpected error is a 500 without internal details; the log has them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, cast

import structlog
from fastapi import Depends, FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, BaseModel, Field, SecretStr
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from clara_eval.actions.evidence import agent_standings
from clara_eval.actions.published import ResultReader
from clara_eval.config.settings import Settings
from clara_eval.core import errors
from clara_eval.core.address import Address, to_address
from clara_eval.documents.results import FINAL_STATES, AgentTotals, EvalStatus, example
from clara_eval.interfaces.api.templating import page, shortened
from clara_eval.service.metrics import Metrics, ServiceHealth

if TYPE_CHECKING:
    from clara_eval.service.requests import ServiceRequests

MAX_STREAMS = 256
AGENTS_SECONDS = 30.0  # how long the table of agents is cached, because it reads every result
AgentOrder = Literal["earned", "won", "entered", "id"]


@dataclass(frozen=True, slots=True)
class ApiContext:
    settings: Settings
    reader: ResultReader
    metrics: Metrics
    health: ServiceHealth
    engine: ServiceRequests


def context_of(request: Request) -> ApiContext:
    return cast("ApiContext", request.app.state.context)


def reader_of(request: Request) -> ResultReader:
    return context_of(request).reader


def settings_of(request: Request) -> Settings:
    return context_of(request).settings


def known_address(text: str) -> Address:
    """Parse an address from a path; raise NotFound if it is not one."""
    try:
        return to_address(text)
    except errors.BadInput:
        raise errors.NotFound(f'"{text[:60]}" is not an address.', remedy="It is 0x and 40 hex digits.") from None


Context = Annotated[ApiContext, Depends(context_of)]
Reader = Annotated[ResultReader, Depends(reader_of)]
ServiceSettings = Annotated[Settings, Depends(settings_of)]
PageAddress = Annotated[Address, AfterValidator(known_address)]


async def sorted_agents(request: Request, sort: AgentOrder) -> list[AgentTotals]:
    """Return the agents in this order; only USDC counts as earned, because anyone can issue a token."""
    state, dollar = request.app.state, (context_of(request).settings.network.usdc or "").lower()
    cached = getattr(state, "agents", None)
    if cached is None or time.monotonic() - cached[0] > AGENTS_SECONDS:
        state.agents = cached = (time.monotonic(), await agent_standings(reader_of(request)))

    def sort_key(one: AgentTotals) -> tuple[int, int, int]:
        earned = sum(int(part.amount) for part in one.earned if part.token.address == dollar)
        first = {"earned": -earned, "won": -one.won, "entered": -one.entered, "id": one.agentId}[sort]
        return first, -one.won, one.agentId

    return sorted(cached[1], key=sort_key)


async def status_changes(request: Request, reader: ResultReader, address: Address) -> AsyncIterator[EvalStatus]:
    """Yield the status now and at each change, until the evaluation or the service ends."""
    shown = None
    while not request.app.state.stopping.is_set():
        status = await reader.status(address)
        if status != shown:
            yield status
            shown = status
        if status.status in FINAL_STATES:
            return
        await asyncio.sleep(0.5)


def open_stream(request: Request, events: AsyncIterator[ServerSentEvent]) -> Response:
    """Open an event stream; raise Refusal 503 if too many are open."""
    if request.scope.get("is_head"):
        return Response(media_type="text/event-stream")
    state = request.app.state
    if state.streams >= MAX_STREAMS:
        raise Refusal(
            503, "Too many event streams are open.", remedy="Poll eval-status.", headers={"retry-after": "30"}
        )
    # Count before anything is awaited, so that concurrent requests cannot exceed the limit.
    state.streams += 1
    return _CountedStream(events, ping=15)


class _CountedStream(EventSourceResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            scope["app"].state.streams -= 1


_bearer = HTTPBearer(auto_error=False, scheme_name="AdminBearer", description="The admin key as a bearer token.")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="AdminKey", description="The admin key.")

Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
Header = Annotated[str | None, Depends(_header)]


class AdminKey:
    def __init__(self, key: SecretStr | None) -> None:
        self._digest = _digest(key.get_secret_value()) if key is not None else None

    @property
    def is_set(self) -> bool:
        return self._digest is not None

    def matches(self, offered: str | None) -> bool:
        if self._digest is None or offered is None:
            return False
        return hmac.compare_digest(self._digest, _digest(offered))

    def sign(self, text: str) -> str:
        """Return an HMAC of the text under the admin key."""
        assert self._digest is not None  # only called with a key set
        return hmac.new(self._digest, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def admin_key_of(request: Request) -> AdminKey:
    return cast("AdminKey", request.app.state.admin_key)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def offered_key(request: Request, bearer: HTTPAuthorizationCredentials | None, header: str | None) -> str | None:
    """Return the key of this request; an Authorization header, even a malformed one, wins over X-API-Key."""
    if bearer is None and header is not None and "authorization" in request.headers:
        return ""
    return bearer.credentials if bearer else header


def is_admin(request: Request, bearer: Bearer, header: Header) -> bool:
    """Return whether the request has the admin key; wrong keys are rate-limited."""
    key = admin_key_of(request)
    offered = offered_key(request, bearer, header)
    if key.is_set and offered is not None and not key.matches(offered):
        request.app.state.limits.take_wrong_key(request)
    return key.matches(offered)


def require_admin(request: Request, bearer: Bearer, header: Header) -> None:
    key = admin_key_of(request)
    if not key.is_set:
        raise Refusal(403, "This service has no admin key.", remedy="The operator may set CLARA_ADMIN_API_KEY.")
    if not key.matches(offered_key(request, bearer, header)):
        request.app.state.limits.take_wrong_key(request)
        raise Refusal(
            401,
            "The admin key is missing or wrong.",
            remedy="Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            headers={"WWW-Authenticate": 'Bearer realm="clara-eval"'},
        )
    request.app.state.limits.take_admin_request()


IsAdmin = Annotated[bool, Depends(is_admin)]


MEDIA_TYPE = "application/problem+json"
_log = structlog.get_logger(__name__)
API_PATHS = ("/api/", "/mcp", "/healthz", "/metrics", "/openapi.json")  # errors of these paths are always JSON

TITLES = {
    400: "The request cannot be read",
    401: "The admin key is missing or wrong",
    403: "Not allowed",
    404: "Not found",
    405: "This address does not take that method",
    406: "Not acceptable",
    409: "Not possible now",
    413: "The body is too large",
    415: "The body has another media type",
    422: "The request is not valid",
    429: "Too many requests",
    500: "Something broke here",
    503: "Not available now",
}
_STATUS: dict[type[errors.ClaraError] | tuple[type[errors.ClaraError], ...], int] = {
    errors.BadInput: 422,
    errors.NotFound: 404,
    errors.NotPublic: 403,
    (errors.NotYet, errors.CannotAct, errors.Deferred, errors.NeedsReview): 409,
    errors.Temporary: 503,
}


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = example(
        type="urn:clara-eval:problem:404",
        title="Not found",
        status=404,
        detail="No challenge 0x0000000000000000000000000000000000000001 is known here.",
        instance="/api/v1/challenges/0x0000000000000000000000000000000000000001/eval-status",
        remedy="A new challenge appears within five minutes.",
    )

    type: str
    title: str
    status: int
    detail: str
    instance: str
    remedy: str | None = None
    errors: list[dict[str, object]] | None = Field(None, description="One item a wrong place, for validation problems.")


class Refusal(HTTPException):
    def __init__(self, status: int, detail: str, *, remedy: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.remedy = remedy


_INTERNAL_ERROR = Refusal(500, "The request failed.", remedy="The operator's log has the reason.")


def problem_response(request: Request, bad: Refusal, errors: list[dict[str, object]] | None = None) -> Response:
    status, detail, remedy, headers = bad.status_code, bad.detail, bad.remedy, bad.headers
    title = TITLES.get(status, "Refused")
    if wants_page(request):
        shown = {"code": status, "title": title, "detail": shortened(detail), "remedy": remedy}
        return page("problem.html", shown, status=status, headers=headers)
    kind, instance = f"urn:clara-eval:problem:{status}", request.scope["path"][:300]
    body: dict[str, object] = {"type": kind, "title": title, "status": status, "detail": detail, "instance": instance}
    body |= {"remedy": remedy} if remedy else {}
    body |= {"errors": errors} if errors is not None else {}
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def wants_page(request: Request) -> bool:
    """Return whether a browser asks for a page, rather than a program for JSON."""
    path, accepted = request.scope["path"], request.headers.get("accept", "")
    if path.startswith(API_PATHS) or ("json" in accepted and "text/html" not in accepted):
        return False
    return "text/html" in accepted or path == "/" or path.startswith(("/challenges/", "/agents/", "/operator"))


def error_responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status], "content": content} for status in statuses}


def _allowed_methods(request: Request) -> str:
    """Return all documented methods of the path; the router names those of the first route only."""
    paths, here = request.app.openapi()["paths"], request.url.path
    fitting = [here] if here in paths else [path for path in paths if compile_path(path)[0].match(here)]
    methods = {method.upper() for path in fitting for method in paths[path]}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(errors.ClaraError)
    async def ours(request: Request, bad: errors.ClaraError) -> Response:
        status = next((status for kind, status in _STATUS.items() if isinstance(bad, kind)), 500)
        if status == 500:
            _log.error("request_failed", path=request.url.path, problem=str(bad))
            return problem_response(request, _INTERNAL_ERROR)
        wait = {"retry-after": "30"} if status == 503 else None
        return problem_response(request, Refusal(status, bad.message, remedy=bad.remedy, headers=wait))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, bad: RequestValidationError) -> Response:
        wrong: list[dict[str, object]] = [
            {"path": ".".join(str(part) for part in error["loc"]), "message": str(error["msg"])}
            for error in jsonable_encoder(bad.errors(), custom_encoder={bytes: repr})
        ]
        first = wrong[0] if wrong else {"path": "", "message": "not valid"}
        if first["path"] == "body" and "json" not in request.headers.get("content-type", ""):
            remedy = "Send the header content-type: application/json."
            return problem_response(request, Refusal(422, "The body is not marked as JSON.", remedy=remedy), wrong)
        return problem_response(request, Refusal(422, f"{first['path']}: {first['message']}."), wrong)

    @app.exception_handler(HTTPException)
    async def routing(request: Request, bad: HTTPException) -> Response:
        if not isinstance(bad, Refusal):
            bad = Refusal(bad.status_code, bad.detail, headers=dict(bad.headers or {}))
        if bad.status_code == 405 and (allowed := _allowed_methods(request)):
            bad.headers = {"Allow": allowed}
        return problem_response(request, bad)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, bad: Exception) -> Response:
        _log.error("request_broke", path=request.url.path, exc_info=bad)
        return problem_response(request, _INTERNAL_ERROR)
