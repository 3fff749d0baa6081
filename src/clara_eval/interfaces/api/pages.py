"""HTML pages for people. They work without JavaScript; scripts fetch fragments from the same URLs."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from os import PathLike, stat_result
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sse_starlette import ServerSentEvent
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from clara_eval.actions.claim import claim
from clara_eval.actions.evidence import challenges_of, submitted_work
from clara_eval.actions.objections import ObjectionInput, ObjectionResult, object_or_show
from clara_eval.actions.perform import perform
from clara_eval.actions.post import Posting, post
from clara_eval.actions.quote import has_model
from clara_eval.config.eval_config.catalogue import template_text
from clara_eval.core.errors import NotFound
from clara_eval.documents.actions import ActResult
from clara_eval.documents.results import FINAL_STATES
from clara_eval.interfaces.api import challenge_view as view
from clara_eval.interfaces.api import context
from clara_eval.interfaces.api.challenge_view import Card, card_of, paginate
from clara_eval.interfaces.api.context import AgentOrder, PageAddress, Reader, ServiceSettings
from clara_eval.interfaces.api.templating import GROUPS, STATIC, page, rendered

router = APIRouter(include_in_schema=False)
plan_router = APIRouter(prefix="/api/v1/actions", include_in_schema=False)
"""Unsigned transactions for the scripts of the pages; programs use the tools under `/mcp`."""
COLUMNS = ("rank", "address", "agentId", "score", "elo", "low", "high", "pTop", "wins", "losses", "ties", "prizeAmount",
           "status", "code")  # fmt: skip


VERIFIER = STATIC / "verifier" if (STATIC / "verifier").is_dir() else Path(__file__).parents[4] / "verifier"
"""Among the static files of an installed package, or in the source tree."""
_NODE_IMPORT = re.compile(r'from "(?:node:[a-z]+|js-sha3)"')
_FRAME_CSP = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors *"
_VERIFY_CSP = "default-src 'none'; script-src 'self'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*"
"""Unlike pages, the verifier may connect to the node and gateway that its visitor chooses."""


class Assets(StaticFiles):
    """Static files with long caching: their URLs change with their content."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        if Path(full_path).name.startswith("verify-"):  # they load each other by URLs without a version
            response.headers["cache-control"] = "no-cache"
            response.headers["content-security-policy"] = _VERIFY_CSP
        return response


class ListQuery(BaseModel):
    status: str = Field("", max_length=20)
    skill: str = Field("", max_length=60)
    q: str = Field("", max_length=200)
    sort: str = Field("", max_length=20)
    page: int = Field(1, ge=1, le=100_000)

    def link(self, **changes: object) -> str:
        asked = {**self.model_dump(), **changes}
        kept = {name: value for name, value in asked.items() if value and (name, value) != ("page", 1)}
        return "/?" + urlencode(kept) if kept else "/"


def _by_urgency(card: Card) -> tuple[object, ...]:
    """Sort running evaluations first, then open challenges by deadline, then the latest."""
    is_open, deadline = card.phase.label == "Open", card.row.deadline
    return (not card.is_live, not is_open, deadline if is_open else -deadline)


SORTS: dict[str, Callable[[Card], tuple[object, ...]]] = {
    "prize": lambda card: (-int(card.row.prizePool) / 10**card.row.token.decimals,),
    "entries": lambda card: (-card.row.submissionCount,),
    "newest": lambda card: (-card.row.deadline,),
}


def _matches_query(card: Card, wanted: ListQuery, entered: Collection[str]) -> bool:
    row = card.row
    if wanted.status in GROUPS and card.phase.group != wanted.status:
        return False
    if wanted.skill and wanted.skill.lower() not in (skill.lower() for skill in row.skills):
        return False
    if row.address in entered:
        return True
    text = f"{row.title} {row.problemStatement} {row.address} {row.poster}".lower()
    return all(word in text for word in wanted.q.lower().split())


@router.get("/favicon.ico")
async def favicon() -> Response:
    return FileResponse(STATIC / "favicon.svg", media_type="image/svg+xml")


@router.get("/")
async def index(reader: Reader, settings: ServiceSettings, wanted: Annotated[ListQuery, Query()]) -> HTMLResponse:
    cards = [card_of(row, time.time()) for row in await reader.listed()]
    entered = await challenges_of(reader, wanted.q.strip().lower())
    matching = [card for card in cards if _matches_query(card, wanted, entered)]
    shown, number, pages = paginate(sorted(matching, key=SORTS.get(wanted.sort, _by_urgency)), wanted.page, 24)
    skills = Counter(skill.lower() for card in cards for skill in set(card.row.skills))
    counts = Counter(card.phase.group for card in cards)
    found = {
        "cards": shown, "known": len(cards), "page": number, "pages": pages,
        "groups": {name: (heading, counts[name]) for name, heading in GROUPS.items()},
        "skills": sorted(skill for skill, _ in skills.most_common(12)),
    }  # fmt: skip
    return page("index.html", found=found, wanted=wanted, network=settings.network_name)


@router.get("/docs")
async def api_docs(request: Request) -> HTMLResponse:
    return page("docs.html", document=request.app.openapi(), base=str(request.base_url).rstrip("/"))


@router.get("/post")
async def post_page(settings: ServiceSettings) -> HTMLResponse:
    config = template_text("code" if has_model(settings.judges) else "measured")
    factory, chain = settings.challenge_factory or settings.network.factory, settings.network.chain_id
    return page("post.html", chain=chain, network=settings.network_name, factory=factory, config=config)


@router.get("/verify")
async def verifier_page() -> HTMLResponse:
    return page("browser_verify.html")


@router.get("/verifier/{name}.mjs")
async def verifier(name: str) -> Response:
    """Serve the JavaScript verifier, with its Node imports replaced by a browser module."""
    if name not in {"verify", "model", "archive"}:
        raise NotFound(f"The verifier has no file {name[:40]!r}.")
    source = (VERIFIER / f"{name}.mjs").read_text(encoding="utf-8")
    text = _NODE_IMPORT.sub('from "/static/verify-platform.mjs"', source)
    return Response(text, media_type="text/javascript", headers={"cache-control": "no-cache"})


@router.get("/challenges/{address}/card")
async def card(address: PageAddress, reader: Reader) -> HTMLResponse:
    return page("_card.html", card=card_of(await reader.detail(address, admin=False), time.time()))


@router.get("/challenges/{address}")
async def challenge(
    address: PageAddress,
    request: Request,
    settings: ServiceSettings,
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
    find: Annotated[str, Query(max_length=42)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    values = await view.challenge_view(context.reader_of(request), address, number, settings, find, sort)
    return page("challenge.html", values, url=str(request.base_url))


@router.get("/challenges/{address}/embed")
async def embed(address: PageAddress, request: Request, settings: ServiceSettings) -> Response:
    """Show the leaderboard for a frame on any site, without scripts and forms; links open a new tab."""
    values = await view.challenge_view(context.reader_of(request), address, 1, settings)
    return page("embed.html", values, url=str(request.base_url), headers={"content-security-policy": _FRAME_CSP})


@router.get("/challenges/{address}/live")
async def live(address: PageAddress, request: Request, reader: Reader, settings: ServiceSettings) -> Response:
    """Stream progress, timeline and costs as page fragments at each change, until the evaluation ends."""
    await reader.status(address)

    async def events() -> AsyncIterator[ServerSentEvent]:
        async for status in context.status_changes(request, reader, address):
            values = await view.challenge_view(reader, address, 1, settings)
            yield ServerSentEvent(data=rendered("_progress.html", **values, is_update=True), event="progress")
            if status.status in FINAL_STATES:
                yield ServerSentEvent(data=json.dumps({"status": status.status}), event="ended")

    return context.open_stream(request, events())


@router.get("/challenges/{address}/verify")
async def verify(address: PageAddress) -> Response:
    return RedirectResponse(f"/verify?trace=/api/v1/challenges/{address}/eval-trace")


@router.get("/agents")
async def agents(
    request: Request, sort: AgentOrder = "earned", number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1
) -> HTMLResponse:
    rows = await context.sorted_agents(request, sort)
    shown, number, pages = paginate(rows, number, view.PAGE_ROWS)
    return page("agents.html", rows=shown, total=len(rows), sort=sort, number=number, pages=pages)


@router.get("/agents/{number}")
async def agent(number: str, reader: Reader, settings: ServiceSettings) -> Response:
    if not (number.isascii() and number.isdigit() and len(number) <= 78):
        raise NotFound(f"{number[:80]!r} is not an agent's id.", remedy="An id is a number, as the registry gives it.")
    record = await reader.agent(int(number))
    return page("agent.html", record=record, entries=record.challenges[:200], explorer=settings.network.explorer)


@router.get("/challenges/{address}/games/{first}/{second}")
async def game(address: PageAddress, first: PageAddress, second: PageAddress, request: Request) -> Response:
    """Show the verdicts about two entries, as a page or as the content of a drawer."""
    values = await view.game_view(context.reader_of(request), address, first, second)
    name, heading = ("_game.html", "h2") if request.headers.get("hx-request") == "true" else ("game.html", "h1")
    return page(name, values, heading=heading, base=f"/challenges/{address}")


@router.get("/challenges/{address}/leaderboard.csv")
async def leaderboard_csv(address: PageAddress, reader: Reader) -> Response:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in (await reader.leaderboard(address, admin=False)).rankings)
    headers = {"content-disposition": f'attachment; filename="{address}.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


@router.get("/feed.xml")
async def feed(request: Request, reader: Reader) -> Response:
    rows = sorted(await reader.listed(), key=lambda row: row.evaluation.updatedAt or 0, reverse=True)
    cards = [card_of(row, time.time()) for row in rows[:50]]
    text = rendered("feed.xml", cards=cards, url=str(request.base_url), now=int(time.time()))
    return Response(text, media_type="application/atom+xml")


@router.get("/challenges/{address}/{submitter}/submission.txt")
async def submission(address: PageAddress, submitter: PageAddress, reader: Reader) -> Response:
    """Download a submission as it was received; never shown as a page of this site."""
    _, scores = await view.posted_scores(reader, address, admin=False)
    work = (await submitted_work(reader, address, scores, [submitter])).get(submitter)
    if work is None or work.text is None:
        raise NotFound(f"No text of {submitter} is public here.", remedy="The page of the entry says why.")
    return PlainTextResponse(work.text, headers={"content-disposition": f'attachment; filename="{submitter}.txt"'})


@router.get("/challenges/{address}/{submitter}")
async def entry(
    address: PageAddress, submitter: PageAddress, reader: Reader, against: Annotated[str, Query(max_length=42)] = ""
) -> Response:
    values = await view.entry_view(reader, address, submitter, against)
    return page("entry.html", values, base=f"/challenges/{address}")


@plan_router.get("/claim/{address}")
async def plan_claim(address: str, sender: str, request: Request) -> ActResult:
    return await perform(request.app.state.caller, claim(address, sender), confirmed="unasked")


@plan_router.get("/object/{address}")
async def plan_objection(address: str, about: str, reason: str, request: Request) -> ObjectionResult:
    return await object_or_show(request.app.state.caller, ObjectionInput(address, about, reason), confirmed="unasked")


@plan_router.post("/post")
async def plan_post(posting: Posting, sender: str, request: Request) -> ActResult:
    return await perform(request.app.state.caller, post(posting, sender), confirmed="unasked")
