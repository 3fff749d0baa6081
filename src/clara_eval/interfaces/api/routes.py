"""The REST routes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import JSONResponse, Response

from clara_eval.actions.evidence import evaluator_record
from clara_eval.actions.objections import read_draft
from clara_eval.actions.published import TRACE_FORMAT
from clara_eval.actions.quote import has_model
from clara_eval.actions.review import Decree, review_sheet
from clara_eval.core.address import to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput
from clara_eval.core.version import __version__
from clara_eval.documents import rest
from clara_eval.documents.results import AgentRecord, EvalStatus, Scores, State
from clara_eval.interfaces.api.admin import IsAdmin, require_admin
from clara_eval.interfaces.api.context import (
    AgentOrder,
    Context,
    Reader,
    agents_by,
    context_of,
    counted_stream,
    status_changes,
)
from clara_eval.interfaces.api.problems import Refusal, documented
from clara_eval.interfaces.api.readers import matches, trace_response

router = APIRouter(prefix="/api/v1", tags=["challenges"])

_ALWAYS = (422, 429, 503)
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


@contextmanager
def _well_formed() -> Iterator[None]:
    """Answer 409, not 422: the body is as documented, and the state of the challenge forbids it."""
    try:
        yield
    except BadInput as bad:
        raise Refusal(409, str(bad), remedy=bad.remedy) from bad


AddressPath = Annotated[
    str,
    Path(
        pattern=rest.ADDRESS_PATTERN,
        description="The challenge's contract.",
        examples=[rest.EXAMPLE_ADDRESS],
        max_length=42,
    ),
]
AgentPath = Annotated[int, Path(ge=0, lt=2**256, description="The agent's id in the identity registry.", examples=[7])]


@router.post(
    "/challenges/evaluate",
    status_code=202,
    dependencies=[Depends(require_admin)],
    responses=documented(400, 401, 403, 404, 409, 413, *_ALWAYS),
    summary="Trigger the evaluation of a challenge",
)
async def evaluate(body: rest.EvaluateRequest, context: Context) -> rest.Accepted:
    address = to_address(body.challengeAddress)
    workflow = await context.engine.request(address)
    status_url = f"/api/v1/challenges/{address}/eval-status"
    return rest.Accepted(challengeAddress=address, workflowId=workflow, statusUrl=status_url)


@router.get("/challenges/evaluate", include_in_schema=False)
async def evaluate_takes_only_post() -> None:
    """Without this route the word would be read as an address."""
    raise Refusal(405, "This address takes only POST.", remedy="Send POST.", headers={"allow": "POST"})


@router.get("/challenges", responses=documented(*_ALWAYS), summary="List challenges")
async def list_challenges(
    reader: Reader,
    status: Annotated[State | None, Query(description="Only with this evaluation status.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> rest.ChallengeList:
    rows = await reader.listed(status)
    return rest.ChallengeList(total=len(rows), offset=offset, limit=limit, challenges=rows[offset : offset + limit])


@router.get(
    "/challenges/{address}",
    responses=documented(404, *_ALWAYS),
    summary="One challenge, with its ranking once that is public",
)
async def challenge_detail(address: AddressPath, reader: Reader, admin: IsAdmin) -> rest.ChallengeDetail:
    found = await reader.detail(to_address(address), admin=admin)
    if found.leaderboard is None:
        found.evaluatorRecord = await evaluator_record(reader.store, reader.chain_id, found.evaluator)
    return found


@router.get(
    "/challenges/{address}/eval-status",
    responses={200: {"model": EvalStatus}, **_NOT_MODIFIED, **documented(404, *_ALWAYS)},
    summary="Status and progress of an evaluation",
)
async def eval_status(address: AddressPath, reader: Reader, request: Request) -> Response:
    body = (await reader.status(to_address(address))).model_dump_json().encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if matches(request.headers, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


@router.get(
    "/challenges/{address}/eval-trace",
    response_class=Response,
    responses={
        200: {"description": "The trace, streamed.", "content": _TRACE},
        **_NOT_MODIFIED,
        **documented(403, 404, *_ALWAYS),
    },
    summary="The whole trace: submissions, facts, prompts, answers, ranking, winners",
)
async def eval_trace(address: AddressPath, reader: Reader, admin: IsAdmin, request: Request) -> Response:
    known = to_address(address)
    digest, pieces = await reader.trace(known, admin=admin)
    etag = f'"{digest}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if matches(request.headers, etag):
        return Response(status_code=304, headers=headers)
    headers["content-disposition"] = f'attachment; filename="{known}.trace.json"'
    if request.scope.get("is_head"):
        return Response(headers=headers, media_type="application/json")
    return await trace_response(request, request.app.state.traces, digest, pieces, headers)


@router.get(
    "/challenges/{address}/leaderboard",
    responses=documented(403, 404, *_ALWAYS),
    summary="The ranking, public once scores are posted",
)
async def leaderboard(address: AddressPath, reader: Reader, admin: IsAdmin) -> Scores:
    return await reader.leaderboard(to_address(address), admin=admin)


@router.get("/agents", responses=documented(*_ALWAYS), summary="List agents by what they did")
async def list_agents(
    request: Request,
    sort: Annotated[AgentOrder, Query(description="What comes first; `earned`: in the network's dollar.")] = "earned",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> rest.AgentList:
    rows = await agents_by(request, sort)
    return rest.AgentList(total=len(rows), offset=offset, limit=limit, agents=rows[offset : offset + limit])


@router.get(
    "/agents/{agent_id}",
    responses=documented(404, *_ALWAYS),
    summary="An agent's record across challenges: entered, won, earned, average place",
)
async def agent(agent_id: AgentPath, reader: Reader) -> AgentRecord:
    return await reader.agent(agent_id)


@router.get(
    "/challenges/{address}/events",
    response_class=EventSourceResponse,
    responses={200: {"description": "Server-sent events.", "content": _STREAM}, **documented(404, *_ALWAYS)},
    summary="Every change of the evaluation's status, until it ends",
)
async def events(address: AddressPath, reader: Reader, request: Request) -> Response:
    known = to_address(address)
    await reader.status(known)  # an unknown challenge is refused before the stream begins

    async def events() -> AsyncIterator[ServerSentEvent]:
        async for status in status_changes(request, reader, known):
            yield ServerSentEvent(data=status.model_dump_json(), event="status")

    return counted_stream(request, events())


@router.post(
    "/challenges/{address}/review",
    dependencies=[Depends(require_admin)],
    responses=documented(400, 401, 403, 404, 409, 413, *_ALWAYS),
    summary="Approve, reject or rule about an evaluation that waits for a person",
)
async def review(address: AddressPath, body: rest.ReviewRequest, context: Context) -> rest.ReviewRecord:
    known = to_address(address)
    with _well_formed():
        if body.decision == "rule":
            asked = body.ruling
            if asked is None:
                raise BadInput(
                    "The decision is to rule, and there is no ruling.", path="ruling", remedy="Say what is ruled."
                )
            account = to_address(asked.account) if asked.account else None
            decree = Decree(asked.kind, account, asked.judge, asked.stage, body.note, body.by)
            await context.engine.rule(known, decree, body.traceDigest)
        else:
            await context.engine.decide(known, body.decision, body.note, body.traceDigest, body.by)
    return rest.ReviewRecord(challengeAddress=known, decision=body.decision, note=body.note, by=body.by)


@router.post(
    "/challenges/{address}/harness",
    responses=documented(400, 404, 409, 413, *_ALWAYS),
    summary="Reveal a hidden harness, signed by the poster",
)
async def reveal(address: AddressPath, body: rest.RevealRequest, context: Context) -> rest.RevealRecord:
    known = to_address(address)
    with _well_formed():
        revealed = await context.engine.reveal(known, body.document, body.signature)
    return rest.RevealRecord(challengeAddress=known, privateSetHash=revealed)


@router.get(
    "/challenges/{address}/draft",
    response_model=rest.DraftRecord,
    responses=documented(404, *_ALWAYS),
    summary="A result that is announced before it is posted",
)
async def draft(address: AddressPath, reader: Reader) -> object:
    return to_camel_json(await read_draft(reader.store, reader.chain_id, to_address(address)))


@router.post(
    "/challenges/{address}/objections",
    responses=documented(400, 404, 409, 413, *_ALWAYS),
    summary="Object to an announced result, signed by a submitter",
)
async def object_(address: AddressPath, body: rest.ObjectionRequest, context: Context) -> rest.ObjectionRecord:
    known = to_address(address)
    with _well_formed():
        kept = await context.engine.object(known, body.about, body.reason, body.signature)
    return rest.ObjectionRecord(challengeAddress=known, submitter=kept.submitter, about=kept.about, reason=kept.reason)


@router.get(
    "/challenges/{address}/review",
    dependencies=[Depends(require_admin)],
    responses=documented(400, 401, 403, 404, *_ALWAYS),
    summary="Everything needed to decide about a result that waits for a person",
)
async def show_review(address: AddressPath, reader: Reader) -> rest.ReviewSheet:
    return await review_sheet(reader.store, reader.chain_id, to_address(address))


async def healthz(request: Request) -> JSONResponse:
    """Report whether the loop still beats, and what this service can do."""
    context = context_of(request)
    about = {"hasModel": has_model(context.settings.judges), "evaluator": request.app.state.evaluator}
    return JSONResponse({**context.pulse.report(__version__), **about}, 503 if context.pulse.stale_reason else 200)
