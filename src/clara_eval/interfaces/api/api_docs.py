"""The page `/docs`: every endpoint of the API, read from its own OpenAPI document, with no script from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from clara_eval.interfaces.api.templating import page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    summary: str
    needs_key: bool
    parameters: tuple[tuple[str, str, str], ...]
    """Name, where it stands, what it means."""
    answers: tuple[tuple[str, str], ...]


def operations(document: dict[str, Any]) -> list[Operation]:
    """The operations of an OpenAPI document, in its order."""
    return [
        Operation(
            method=method.upper(),
            path=path,
            summary=told["summary"],
            needs_key=bool(told.get("security")) and {} not in told["security"],
            parameters=tuple(
                (one["name"], one["in"], one.get("description", "")) for one in told.get("parameters", ())
            ),
            answers=tuple((status, answer["description"]) for status, answer in told["responses"].items()),
        )
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]


@router.api_route("/docs", methods=["GET", "HEAD"])
async def api_docs(request: Request) -> HTMLResponse:
    base = str(request.base_url).rstrip("/")
    return page("docs.html", operations=operations(request.app.openapi()), base=base)
