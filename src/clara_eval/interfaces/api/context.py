"""What routes and pages share: the context, the administrator's key, and event streams of a status."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, SecretStr
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clara_eval.actions.evidence import agent_standings
from clara_eval.actions.published import ResultReader
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, NotFound
from clara_eval.documents.results import FINAL_STATES, AgentTotals, EvalStatus
from clara_eval.interfaces.api.problems import Refusal
from clara_eval.service.metrics import Metrics, ServiceHealth

if TYPE_CHECKING:
    from clara_eval.service.requests import ServiceRequests

MOST_STREAMS = 256
EVENT_SECONDS = 0.5
AGENTS_SECONDS = 30.0  # how long a table of agents is kept: it reads every result
AgentOrder = Literal["earned", "won", "entered", "id"]


@dataclass(frozen=True, slots=True)
class ApiContext:
    settings: Settings
    reader: ResultReader
    metrics: Metrics
    pulse: ServiceHealth
    engine: ServiceRequests


def context_of(request: Request) -> ApiContext:
    found: ApiContext = request.app.state.context
    return found


def reader_of(request: Request) -> ResultReader:
    return context_of(request).reader


def settings_of(request: Request) -> Settings:
    return context_of(request).settings


def known_address(text: str) -> Address:
    """An address from a path; what is none is not found."""
    try:
        return to_address(text)
    except BadInput:
        raise NotFound(f'"{text[:60]}" is not an address.', remedy="It is 0x and 40 hex digits.") from None


Context = Annotated[ApiContext, Depends(context_of)]
Reader = Annotated[ResultReader, Depends(reader_of)]
Configured = Annotated[Settings, Depends(settings_of)]
Known = Annotated[Address, AfterValidator(known_address)]


async def agents_by(request: Request, sort: AgentOrder) -> list[AgentTotals]:
    """Agents by what they did; sums are in the network's dollar, since anybody can issue another token."""
    state, dollar = request.app.state, (context_of(request).settings.usdc or "").lower()
    kept = getattr(state, "agents", None)
    if kept is None or time.monotonic() - kept[0] > AGENTS_SECONDS:
        state.agents = kept = (time.monotonic(), await agent_standings(reader_of(request)))

    def place(one: AgentTotals) -> tuple[int, int, int]:
        earned = sum(int(part.amount) for part in one.earned if part.token.address == dollar)
        first = {"earned": -earned, "won": -one.won, "entered": -one.entered, "id": one.agentId}[sort]
        return first, -one.won, one.agentId

    return sorted(kept[1], key=place)


async def status_changes(request: Request, reader: ResultReader, address: Address) -> AsyncIterator[EvalStatus]:
    """The status now and at each change, until the evaluation or the service ends."""
    shown = None
    while not request.app.state.stopping.is_set():
        status = await reader.status(address)
        if status != shown:
            yield status
            shown = status
        if status.status in FINAL_STATES:
            return
        await asyncio.sleep(EVENT_SECONDS)


def counted_stream(request: Request, events: AsyncIterator[ServerSentEvent]) -> Response:
    """Open a stream; Refusal 503 if too many are open."""
    if request.scope.get("is_head"):
        return Response(media_type="text/event-stream")
    state = request.app.state
    if state.streams >= MOST_STREAMS:
        raise Refusal(
            503, "Too many event streams are open.", remedy="Poll eval-status.", headers={"retry-after": "30"}
        )
    # Counted before anything is awaited, so that many at once cannot pass the limit together.
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

    def fits(self, offered: str | None) -> bool:
        if self._digest is None or offered is None:
            return False
        return hmac.compare_digest(self._digest, _digest(offered))

    def seal(self, text: str) -> str:
        """Sign a text so that only the key's owner can have done it."""
        if self._digest is None:
            raise _no_key()
        return hmac.new(self._digest, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _no_key() -> Refusal:
    return Refusal(403, "This service has no admin key.", remedy="The operator may set CLARA_ADMIN_API_KEY.")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def offered_key(request: Request, bearer: HTTPAuthorizationCredentials | None, header: str | None) -> str | None:
    """The key of this request; of two the bearer's, even if that is none."""
    if bearer is None and header is not None and "authorization" in request.headers:
        return ""
    return bearer.credentials if bearer else header


def is_admin(request: Request, bearer: Bearer, header: Header) -> bool:
    """Whether the administrator asks; wrong keys are limited in rate."""
    key: AdminKey = request.app.state.admin_key
    offered = offered_key(request, bearer, header)
    if key.is_set and offered is not None and not key.fits(offered):
        request.app.state.limits.wrong_key(request)
    return key.fits(offered)


def require_admin(request: Request, bearer: Bearer, header: Header) -> None:
    key: AdminKey = request.app.state.admin_key
    if not key.is_set:
        raise _no_key()
    if not key.fits(offered_key(request, bearer, header)):
        request.app.state.limits.wrong_key(request)
        raise Refusal(
            401,
            "The admin key is missing or wrong.",
            remedy="Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            headers={"WWW-Authenticate": 'Bearer realm="clara-eval"'},
        )
    request.app.state.limits.admin_request()


IsAdmin = Annotated[bool, Depends(is_admin)]
