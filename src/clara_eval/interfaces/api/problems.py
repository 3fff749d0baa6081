"""Errors as RFC 9457 problem documents, or as a page if a browser asks for one.

Invariant: an unexpected error is a 500 that says nothing about the inside; the log has all of it.
"""

from __future__ import annotations

from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path

from clara_eval.core import errors
from clara_eval.interfaces.api.templating import page, shortened

MEDIA_TYPE = "application/problem+json"
_log = structlog.get_logger(__name__)
FOR_PROGRAMS = ("/api/", "/mcp", "/healthz", "/metrics", "/openapi.json")
"""Paths whose errors are always documents."""

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


_EXAMPLE: dict[str, JsonValue] = {
    "type": "urn:clara-eval:problem:404",
    "title": "Not found",
    "status": 404,
    "detail": "No challenge 0x0000000000000000000000000000000000000001 is known here.",
    "instance": "/api/v1/challenges/0x0000000000000000000000000000000000000001/eval-status",
    "remedy": "A new challenge appears within five minutes.",
}


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    type: str
    title: str
    status: int
    detail: str
    instance: str
    remedy: str | None = None
    errors: list[dict[str, object]] | None = Field(None, description="One item a wrong place, for validation problems.")


class Refusal(Exception):
    def __init__(self, status: int, detail: str, *, remedy: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.remedy, self.headers = status, detail, remedy, headers


def response(
    request: Request, status: int, detail: str, *, remedy: str = "", headers: dict[str, str] | None = None,
    errors: list[dict[str, object]] | None = None,
) -> Response:  # fmt: skip
    title = TITLES.get(status, "Refused")
    if wants_page(request):
        shown = {"code": status, "title": title, "detail": shortened(detail), "remedy": remedy}
        return page("problem.html", shown, status=status, headers=headers)
    kind, instance = f"urn:clara-eval:problem:{status}", request.scope["path"][:300]
    body: dict[str, object] = {"type": kind, "title": title, "status": status, "detail": detail, "instance": instance}
    body |= {"remedy": remedy} if remedy else {}
    body |= {"errors": errors} if errors is not None else {}
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def refusal_response(request: Request, bad: Refusal) -> Response:
    return response(request, bad.status, bad.detail, remedy=bad.remedy, headers=bad.headers)


def wants_page(request: Request) -> bool:
    """Whether a browser asks for a page, and not a program for a document."""
    path, accepted = request.scope["path"], request.headers.get("accept", "")
    if path.startswith(FOR_PROGRAMS) or ("json" in accepted and "text/html" not in accepted):
        return False
    return "text/html" in accepted or path == "/" or path.startswith(("/challenges/", "/agents/", "/operator"))


def documented(*statuses: int) -> dict[int | str, dict[str, object]]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status], "content": content} for status in statuses}


def _allowed(request: Request) -> str:
    """Every documented method of the path; the router itself names those of the first route only."""
    paths, here = request.app.openapi()["paths"], request.url.path
    fitting = [here] if here in paths else [path for path in paths if compile_path(path)[0].match(here)]
    methods = {method.upper() for path in fitting for method in paths[path]}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def install(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, bad: Refusal) -> Response:
        return refusal_response(request, bad)

    @app.exception_handler(errors.ClaraError)
    async def ours(request: Request, bad: errors.ClaraError) -> Response:
        status = next((status for kind, status in _STATUS.items() if isinstance(bad, kind)), 500)
        if status == 500:
            _log.error("request_failed", path=request.url.path, problem=str(bad))
            return response(request, 500, "The request failed.", remedy="The operator's log has the reason.")
        wait = {"retry-after": "30"} if status == 503 else None
        return response(request, status, bad.message, remedy=bad.remedy, headers=wait)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, bad: RequestValidationError) -> Response:
        wrong: list[dict[str, object]] = [
            {"path": ".".join(str(part) for part in error["loc"]), "message": str(error["msg"])}
            for error in jsonable_encoder(bad.errors(), custom_encoder={bytes: repr})
        ]
        first = wrong[0] if wrong else {"path": "", "message": "not valid"}
        if first["path"] == "body" and "json" not in request.headers.get("content-type", ""):
            remedy = "Send the header content-type: application/json."
            return response(request, 422, "The body is not marked as JSON.", remedy=remedy, errors=wrong)
        return response(request, 422, f"{first['path']}: {first['message']}.", errors=wrong)

    @app.exception_handler(HTTPException)
    async def routing(request: Request, bad: HTTPException) -> Response:
        headers = dict(bad.headers or {})
        if bad.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (allowed := _allowed(request)):
            headers["Allow"] = allowed
        return response(request, bad.status_code, str(bad.detail), headers=headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, bad: Exception) -> Response:
        _log.error("request_broke", path=request.url.path, exc_info=bad)
        return response(request, 500, "The request failed.", remedy="The operator's log has the reason.")
