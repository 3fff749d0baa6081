"""The pages for people, readable without a script; a script on them asks the same addresses for fragments."""

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
from clara_eval.interfaces.api.challenge_view import Card, card_of, paged
from clara_eval.interfaces.api.context import AgentOrder, Configured, Known, Reader
from clara_eval.interfaces.api.templating import GROUPS, STATIC, page, rendered

router = APIRouter(include_in_schema=False)
plans = APIRouter(prefix="/api/v1/actions", include_in_schema=False)
"""What a visitor's wallet signs, for the pages' own scripts; programs have the tools under `/mcp`."""
COLUMNS = ("rank", "address", "agentId", "score", "elo", "low", "high", "pTop", "wins", "losses", "ties", "prizeAmount",
           "status", "code")  # fmt: skip


VERIFIER = STATIC / "verifier" if (STATIC / "verifier").is_dir() else Path(__file__).parents[4] / "verifier"
"""Beside the static files in an installed package, else in the source tree."""
_FROM_NODE = re.compile(r'from "(?:node:[a-z]+|js-sha3)"')
_FRAME_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors *"
_WORKER = "default-src 'none'; script-src 'self'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*"
"""The verifier asks the node and the gateway that its visitor chooses; no page may."""


class Assets(StaticFiles):
    """Static files; their addresses change with their content, so browsers may keep them."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        if Path(full_path).name.startswith("verify-"):  # loaded by each other, without a version in the address
            response.headers["cache-control"] = "no-cache"
            response.headers["content-security-policy"] = _WORKER
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
    """Being judged first, then the open ones by what closes next, then the latest."""
    is_open, deadline = card.phase.label == "Open", card.row.deadline
    return (not card.is_live, not is_open, deadline if is_open else -deadline)


SORTS: dict[str, Callable[[Card], tuple[object, ...]]] = {
    "prize": lambda card: (-int(card.row.prizePool) / 10**card.row.token.decimals,),
    "entries": lambda card: (-card.row.submissionCount,),
    "newest": lambda card: (-card.row.deadline,),
}


def _passes(card: Card, wanted: ListQuery, entered: Collection[str]) -> bool:
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
async def index(reader: Reader, settings: Configured, wanted: Annotated[ListQuery, Query()]) -> HTMLResponse:
    """One page of the challenges that pass, in the order that is asked for."""
    cards = [card_of(row, time.time()) for row in await reader.listed()]
    entered = await challenges_of(reader, wanted.q.strip().lower())
    passing = [card for card in cards if _passes(card, wanted, entered)]
    shown, number, pages = paged(sorted(passing, key=SORTS.get(wanted.sort, _by_urgency)), wanted.page, 24)
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
async def post_page(settings: Configured) -> HTMLResponse:
    config = template_text("code" if has_model(settings.judges) else "measured")
    factory, chain = settings.challenge_factory or settings.network.factory, settings.network.chain_id
    return page("post.html", chain=chain, network=settings.network_name, factory=factory, config=config)


@router.get("/verify")
async def verifier_page() -> HTMLResponse:
    return page("browser_verify.html")


@router.get("/verifier/{name}.mjs")
async def verifier(name: str) -> Response:
    """The second verifier as it is, but for the names of what it takes from Node."""
    if name not in {"verify", "model", "archive"}:
        raise NotFound(f"The verifier has no file {name[:40]!r}.")
    text = _FROM_NODE.sub('from "/static/verify-platform.mjs"', (VERIFIER / f"{name}.mjs").read_text(encoding="utf-8"))
    return Response(text, media_type="text/javascript", headers={"cache-control": "no-cache"})


@router.get("/challenges/{address}/card")
async def card(address: Known, reader: Reader) -> HTMLResponse:
    return page("_card.html", card=card_of(await reader.detail(address, admin=False), time.time()))


@router.get("/challenges/{address}")
async def challenge(
    address: Known,
    request: Request,
    settings: Configured,
    number: Annotated[int, Query(alias="page", ge=1)] = 1,
    find: Annotated[str, Query(max_length=42)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    values = await view.challenge_view(context.reader_of(request), address, number, settings, find, sort)
    return page("challenge.html", values, url=str(request.base_url))


@router.get("/challenges/{address}/embed")
async def embed(address: Known, request: Request, settings: Configured) -> Response:
    """The board for a frame of any site: no script, no form, nothing to click away."""
    values = await view.challenge_view(context.reader_of(request), address, 1, settings)
    return page("embed.html", values, url=str(request.base_url), headers={"content-security-policy": _FRAME_POLICY})


@router.get("/challenges/{address}/live")
async def live(address: Known, request: Request, reader: Reader, settings: Configured) -> Response:
    """Progress, timeline and money as fragments of the page, at each change, until the evaluation ends."""
    await reader.status(address)

    async def events() -> AsyncIterator[ServerSentEvent]:
        async for status in context.status_changes(request, reader, address):
            values = await view.challenge_view(reader, address, 1, settings)
            yield ServerSentEvent(data=rendered("_progress.html", **values, is_update=True), event="progress")
            if status.status in FINAL_STATES:
                yield ServerSentEvent(data=json.dumps({"status": status.status}), event="ended")

    return context.counted_stream(request, events())


@router.get("/challenges/{address}/verify")
async def verify(address: Known) -> Response:
    return RedirectResponse(f"/verify?trace=/api/v1/challenges/{address}/eval-trace")


@router.get("/agents")
async def agents(
    request: Request, sort: AgentOrder = "earned", number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1
) -> HTMLResponse:
    rows = await context.agents_by(request, sort)
    shown, number, pages = paged(rows, number, view.PAGE_ROWS)
    return page("agents.html", rows=shown, total=len(rows), sort=sort, number=number, pages=pages)


@router.get("/agents/{number}")
async def agent(number: str, reader: Reader, settings: Configured) -> Response:
    if not (number.isascii() and number.isdigit() and len(number) <= 78):
        raise NotFound(f"{number[:80]!r} is not an agent's id.", remedy="An id is a number, as the registry gives it.")
    record = await reader.agent(int(number))
    entries = record.challenges[:200]
    return page("agent.html", record=record, entries=entries, explorer=settings.network.explorer)


@router.get("/challenges/{address}/games/{first}/{second}")
async def game(address: Known, first: Known, second: Known, request: Request) -> Response:
    """Both verdicts about two entries: a page, or the content of a drawer."""
    values = await view.game_view(context.reader_of(request), address, first, second)
    is_part = request.headers.get("hx-request") == "true"
    name, heading = ("_game.html", "h2") if is_part else ("game.html", "h1")
    return page(name, values, heading=heading, base=f"/challenges/{address}")


@router.get("/challenges/{address}/leaderboard.csv")
async def board(address: Known, reader: Reader) -> Response:
    scores = await reader.leaderboard(address, admin=False)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in scores.rankings)
    headers = {"content-disposition": f'attachment; filename="{address}.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


@router.get("/feed.xml")
async def feed(request: Request, reader: Reader) -> Response:
    rows = sorted(await reader.listed(), key=lambda row: row.evaluation.updatedAt or 0, reverse=True)
    cards = [card_of(row, time.time()) for row in rows[:50]]
    text = rendered("feed.xml", cards=cards, url=str(request.base_url), now=int(time.time()))
    return Response(text, media_type="application/atom+xml")


@router.get("/challenges/{address}/{submitter}/submission.txt")
async def submission(address: Known, submitter: Known, reader: Reader) -> Response:
    """A submission as it was received; never a page of this site."""
    _, scores = await view.posted_scores(reader, address, admin=False)
    work = (await submitted_work(reader, address, scores, [submitter])).get(submitter)
    if work is None or work.text is None:
        raise NotFound(f"No text of {submitter} is public here.", remedy="The page of the entry says why.")
    return PlainTextResponse(work.text, headers={"content-disposition": f'attachment; filename="{submitter}.txt"'})


@router.get("/challenges/{address}/{submitter}")
async def entry(
    address: Known, submitter: Known, reader: Reader, against: Annotated[str, Query(max_length=42)] = ""
) -> Response:
    values = await view.entry_view(reader, address, submitter, against)
    return page("entry.html", values, base=f"/challenges/{address}")


@plans.get("/claim/{address}")
async def plan_claim(address: str, sender: str, request: Request) -> ActResult:
    return await perform(request.app.state.caller, claim(address, sender), confirmed="unasked")


@plans.get("/object/{address}")
async def plan_objection(address: str, about: str, reason: str, request: Request) -> ObjectionResult:
    return await object_or_show(request.app.state.caller, ObjectionInput(address, about, reason), confirmed="unasked")


@plans.post("/post")
async def plan_post(posting: Posting, sender: str, request: Request) -> ActResult:
    return await perform(request.app.state.caller, post(posting, sender), confirmed="unasked")
