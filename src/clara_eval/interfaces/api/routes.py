"""The REST routes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AfterValidator
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse, Response

from clara_eval.actions.evidence import evaluator_record
from clara_eval.actions.objections import read_draft
from clara_eval.actions.published import TRACE_FORMAT
from clara_eval.actions.quote import has_model
from clara_eval.actions.review import Decree, review_sheet
from clara_eval.core.address import Address, to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.version import __version__
from clara_eval.documents import rest
from clara_eval.documents.results import AgentRecord, EvalStatus, Scores, State
from clara_eval.interfaces.api import context as shared
from clara_eval.interfaces.api.context import AgentOrder, Context, IsAdmin, Reader, Refusal, error_responses
from clara_eval.interfaces.api.limits import etag_matches, trace_response
from clara_eval.service.metrics import CONTENT_TYPE

router = APIRouter(prefix="/api/v1", tags=["challenges"])
challenge_router = APIRouter(prefix="/api/v1/challenges/{address}", tags=["challenges"])
operations = APIRouter(tags=["operations"])
_NOT_MODIFIED: dict[int | str, dict[str, object]] = {304: {"description": "Unchanged since the given ETag."}}
_STREAM = {"text/event-stream": {"example": 'event: status\ndata: {"status":"comparing"}\n\n'}}
_TRACE = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["format", "entries", "digest"],
            "properties": {
                "format": {"const": TRACE_FORMAT},
                "entries": {"type": "array", "items": {"type": "object"}},
                "digest": {"type": "string"},
            },
        },
        "example": {"format": TRACE_FORMAT, "entries": [], "digest": "0x" + "00" * 32},
    }
}
_METRICS = {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
_ADMIN = [Depends(shared.require_admin)]


def _errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    return error_responses(*statuses, 422, 429, 503)


@contextmanager
def _bad_input_as_conflict() -> Iterator[None]:
    """Turn BadInput into 409: the body is valid, but the state of the challenge forbids the request."""
    try:
        yield
    except BadInput as bad:
        raise Refusal(409, bad.message, remedy=bad.remedy) from bad


_ADDRESS = Path(
    pattern=rest.ADDRESS_PATTERN,
    description="The challenge's contract.",
    examples=[rest.EXAMPLE_ADDRESS],
    max_length=42,
)
AddressPath = Annotated[Address, _ADDRESS, AfterValidator(to_address)]
AgentPath = Annotated[int, Path(ge=0, lt=2**256, description="The agent's id in the identity registry.", examples=[7])]
Limit = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]


@router.post(
    "/challenges/evaluate",
    status_code=202,
    dependencies=_ADMIN,
    responses=_errors(400, 401, 403, 404, 409, 413),
    summary="Trigger the evaluation of a challenge",
)
async def evaluate(body: rest.EvaluateRequest, context: Context) -> rest.Accepted:
    address = to_address(body.challengeAddress)
    workflow = await context.engine.request(address)
    status_url = f"/api/v1/challenges/{address}/eval-status"
    return rest.Accepted(challengeAddress=address, workflowId=workflow, statusUrl=status_url)


@router.get("/challenges/evaluate", include_in_schema=False)
async def evaluate_takes_only_post() -> None:
    """Refuse GET here; without this route `evaluate` would be read as an address."""
    raise Refusal(405, "This address takes only POST.", remedy="Send POST.")


@router.get("/challenges", responses=_errors(), summary="List challenges")
async def list_challenges(
    reader: Reader,
    status: Annotated[State | None, Query(description="Only with this evaluation status.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> rest.ChallengeList:
    rows = await reader.listed(status)
    return rest.ChallengeList(total=len(rows), offset=offset, limit=limit, challenges=rows[offset : offset + limit])


@router.get("/agents", responses=_errors(), summary="List agents by what they did")
async def list_agents(
    request: Request,
    sort: Annotated[AgentOrder, Query(description="What comes first; `earned`: in the network's dollar.")] = "earned",
    limit: Limit = 50,
    offset: Offset = 0,
) -> rest.AgentList:
    rows = await shared.sorted_agents(request, sort)
    return rest.AgentList(total=len(rows), offset=offset, limit=limit, agents=rows[offset : offset + limit])


@router.get(
    "/agents/{agent_id}",
    responses=_errors(404),
    summary="An agent's record across challenges: entered, won, earned, average place",
)
async def agent(agent_id: AgentPath, reader: Reader) -> AgentRecord:
    return await reader.agent(agent_id)


@challenge_router.get("", responses=_errors(404), summary="One challenge, with its ranking once that is public")
async def challenge_detail(address: AddressPath, reader: Reader, admin: IsAdmin) -> rest.ChallengeDetail:
    found = await reader.detail(address, admin=admin)
    if found.leaderboard is None:
        found.evaluatorRecord = await evaluator_record(reader.store, reader.chain_id, found.evaluator)
    return found


@challenge_router.get(
    "/eval-status",
    responses={200: {"model": EvalStatus}, **_NOT_MODIFIED, **_errors(404)},
    summary="Status and progress of an evaluation",
)
async def eval_status(address: AddressPath, reader: Reader, request: Request) -> Response:
    body = (await reader.status(address)).model_dump_json().encode()
    headers = {"etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "cache-control": "no-cache"}
    if etag_matches(request.headers, headers["etag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@challenge_router.get(
    "/eval-trace",
    response_class=Response,
    responses={200: {"description": "The trace, streamed.", "content": _TRACE}, **_NOT_MODIFIED, **_errors(403, 404)},
    summary="The whole trace: submissions, facts, prompts, answers, ranking, winners",
)
async def eval_trace(address: AddressPath, reader: Reader, admin: IsAdmin, request: Request) -> Response:
    digest, pieces = await reader.trace(address, admin=admin)
    headers = {"etag": f'"{digest}"', "cache-control": "no-cache"}
    if etag_matches(request.headers, headers["etag"]):
        return Response(status_code=304, headers=headers)
    headers["content-disposition"] = f'attachment; filename="{address}.trace.json"'
    if request.scope.get("is_head"):
        return Response(headers=headers, media_type="application/json")
    return await trace_response(request, request.app.state.traces, digest, pieces, headers)


@challenge_router.get("/leaderboard", responses=_errors(403, 404), summary="The ranking, public once scores are posted")
async def leaderboard(address: AddressPath, reader: Reader, admin: IsAdmin) -> Scores:
    return await reader.leaderboard(address, admin=admin)


@challenge_router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={200: {"description": "Server-sent events.", "content": _STREAM}, **_errors(404)},
    summary="Every change of the evaluation's status, until it ends",
)
async def events(address: AddressPath, reader: Reader, request: Request) -> Response:
    await reader.status(address)  # raises for an unknown challenge before the stream begins

    async def stream() -> AsyncIterator[ServerSentEvent]:
        async for status in shared.status_changes(request, reader, address):
            yield ServerSentEvent(data=status.model_dump_json(), event="status")

    return shared.open_stream(request, stream())


@challenge_router.post(
    "/review",
    dependencies=_ADMIN,
    responses=_errors(400, 401, 403, 404, 409, 413),
    summary="Approve, reject or rule about an evaluation that waits for a person",
)
async def review(address: AddressPath, body: rest.ReviewRequest, context: Context) -> rest.ReviewRecord:
    with _bad_input_as_conflict():
        if body.decision != "rule":
            await context.engine.decide(address, body.decision, body.note, body.traceDigest, body.by)
        elif (asked := body.ruling) is None:
            remedy = "Say what is ruled."
            raise BadInput("The decision is to rule, and there is no ruling.", path="ruling", remedy=remedy)
        else:
            account = to_address(asked.account) if asked.account else None
            decree = Decree(asked.kind, account, asked.judge, asked.stage, body.note, body.by)
            await context.engine.rule(address, decree, body.traceDigest)
    return rest.ReviewRecord(challengeAddress=address, decision=body.decision, note=body.note, by=body.by)


@challenge_router.post(
    "/harness", responses=_errors(400, 404, 409, 413), summary="Reveal a hidden harness, signed by the poster"
)
async def reveal(address: AddressPath, body: rest.RevealRequest, context: Context) -> rest.RevealRecord:
    with _bad_input_as_conflict():
        revealed = await context.engine.reveal(address, body.document, body.signature)
    return rest.RevealRecord(challengeAddress=address, privateSetHash=revealed)


@challenge_router.get(
    "/draft",
    response_model=rest.DraftRecord,
    responses=_errors(404),
    summary="A result that is announced before it is posted",
)
async def draft(address: AddressPath, reader: Reader) -> object:
    return to_camel_json(await read_draft(reader.store, reader.chain_id, address))


@challenge_router.post(
    "/objections", responses=_errors(400, 404, 409, 413), summary="Object to an announced result, signed by a submitter"
)
async def object_(address: AddressPath, body: rest.ObjectionRequest, context: Context) -> rest.ObjectionRecord:
    with _bad_input_as_conflict():
        new = await context.engine.object(address, body.about, body.reason, body.signature)
    return rest.ObjectionRecord(challengeAddress=address, submitter=new.submitter, about=new.about, reason=new.reason)


@challenge_router.get(
    "/review",
    dependencies=_ADMIN,
    responses=_errors(400, 401, 403, 404),
    summary="Everything needed to decide about a result that waits for a person",
)
async def show_review(address: AddressPath, reader: Reader) -> rest.ReviewSheet:
    return await review_sheet(reader.store, reader.chain_id, address)


@operations.get(
    "/healthz",
    summary="Whether the service is alive, by its own heartbeat",
    responses={
        200: {"model": rest.Health},
        503: {"model": rest.Health, "description": "The heartbeat is stale."},
        **error_responses(429),
    },
)
async def healthz(context: Context, request: Request) -> JSONResponse:
    """Report whether the service is alive, and what it can do."""
    about = {"hasModel": has_model(context.settings.judges), "evaluator": request.app.state.evaluator}
    return JSONResponse({**context.health.report(__version__), **about}, 503 if context.health.stale_reason else 200)


@operations.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: _METRICS, **error_responses(429)},
)
async def metrics(context: Context) -> Response:
    return Response(context.metrics.render(), headers={"content-type": CONTENT_TYPE})
