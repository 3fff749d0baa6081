"""The status page, rendered on the server: a list of challenges and one page for each.

Everything strangers wrote goes through Jinja's autoescape; no script is needed to read the page. The page of a running
evaluation asks the browser to load it again every few seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from clara_eval import __version__
from clara_eval.api.problems import Refusal
from clara_eval.api.reading import PLOTS, Reading
from clara_eval.challenge.model import to_address
from clara_eval.errors import BadInput
from clara_eval.money.fees import dollars
from clara_eval.pipeline.status import FINAL_STATES

router = APIRouter(include_in_schema=False)
_ROWS = 200


def _moment(seconds: int | None) -> str:
    """A time for people; the contract takes deadlines that no calendar has."""
    if not seconds:
        return "–"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"


def _amount(units: str | None, token: dict[str, Any]) -> str:
    return "–" if units is None else f"{dollars(int(units), token['decimals'])} {token['symbol']}"


def _fact(value: object) -> str:
    """A typed fact for people."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("clara_eval.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(moment=_moment, amount=_amount, fact=_fact)
    environment.globals.update(version=__version__)
    return environment


_pages = _environment()


def mount_static(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")


def _reading(request: Request) -> Reading:
    context = request.app.state.context
    return Reading(context.store, context.chain_id, context.settings.traces_public)


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_pages.get_template(name).render(**values), status)


@router.get("/")
async def index(request: Request) -> HTMLResponse:
    rows = await _reading(request).listed(None)
    network = request.app.state.context.settings.network_name
    return _page("index.html", rows=rows[:_ROWS], total=len(rows), network=network)


@router.get("/challenges/{address}")
async def challenge(address: str, request: Request) -> HTMLResponse:
    reading = _reading(request)
    try:
        found = await reading.detail(to_address(address), admin=False)
    except (BadInput, Refusal) as bad:
        status = bad.status if isinstance(bad, Refusal) else 404
        return _page("missing.html", status, message=str(bad))
    refresh = found["evaluation"]["status"] not in FINAL_STATES
    known, scores = to_address(found["address"]), found["leaderboard"]
    plots = {name: PLOTS[name] for name in await reading.plot_names(known, scores)}
    facts = await reading.facts(known, scores)
    columns = sorted({name for one in facts.values() for name in one})
    shown = [row.address for row in (scores.rankings if scores else []) if row.address in facts][:_ROWS]
    return _page(
        "challenge.html",
        found=found,
        refresh=refresh,
        plots=plots,
        facts=[(account, [facts[account].get(name) for name in columns]) for account in shown],
        columns=columns,
        explorer=request.app.state.context.settings.network.explorer,
        has_trace=found["traceDigest"] is not None and reading.traces_public != "never",
    )


@router.get("/challenges/{address}/{name}.svg")
async def plot(address: str, name: str, request: Request) -> Response:
    """A picture of a posted ranking. Alone in a window it may style itself and do nothing else."""
    try:
        svg = await _reading(request).plot(to_address(address), name)
    except (BadInput, Refusal) as bad:
        status = bad.status if isinstance(bad, Refusal) else 404
        return _page("missing.html", status, message=str(bad))
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
    headers = {"content-security-policy": policy, "cache-control": "public, max-age=300"}
    return Response(svg, media_type="image/svg+xml", headers=headers)
