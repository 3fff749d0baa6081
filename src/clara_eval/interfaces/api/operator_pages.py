"""The operator's pages: reviews, stopped rounds, spending, health.

Invariant: a decision names the digest of the result that was on the page.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import cast

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clara_eval.actions.review import Decree, list_reviews, review_sheet
from clara_eval.core.address import to_address
from clara_eval.core.errors import BadInput, ClaraError
from clara_eval.core.version import __version__
from clara_eval.documents.review import RuledStage, RulingKind
from clara_eval.interfaces.api.admin import AdminKey
from clara_eval.interfaces.api.challenge_list import card_of
from clara_eval.interfaces.api.context import context_of
from clara_eval.interfaces.api.pages import known_address
from clara_eval.interfaces.api.problems import Refusal
from clara_eval.interfaces.api.sessions import begin, end, form_of, form_token, operator_form, session_of
from clara_eval.interfaces.api.templating import page
from clara_eval.interfaces.api.wording import rejection, shortened

router = APIRouter(include_in_schema=False, prefix="/operator")
STOPPED = ("deferred", "failed", "unscorable")
_MOST_NOTE = 500
SIGNED_IN = "operator, signed in on the page"
"""Who decided, if the form has no name."""
_DONE = {
    "approve": "Approved. The result is being posted.",
    "reject": "Rejected. Nothing is posted; the poster may still post.",
    "rule": "Ruled. The round is evaluated again, and its result waits for you again.",
    "retry": "Queued. The evaluation starts again.",
}


def _sign_in(request: Request, status: int = 200, problem: str = "") -> HTMLResponse:
    key: AdminKey = request.app.state.admin_key
    return page("sign_in.html", status=status, is_set=key.is_set, problem=problem)


@router.get("")
async def overview(request: Request, done: str = "") -> Response:
    session = session_of(request)
    if session is None:
        return _sign_in(request)
    context, now = context_of(request), time.time()
    rows = [card_of(row, now) for row in await context.reader.listed()]
    return page(
        "operator.html",
        done=_DONE.get(done, ""),
        token=form_token(request, session),
        reviews=await list_reviews(context.reader.store, context.reader.chain_id),
        titles={card.row.address: card.row.title for card in rows},
        stopped=[card for card in rows if card.row.evaluation.status in STOPPED],
        running=[card for card in rows if card.is_live],
        spend=await context.reader.spending(),
        settings=context.settings,
        health=context.pulse.report(__version__),
        shortened=shortened,
    )


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    key: AdminKey = request.app.state.admin_key
    offered = (await form_of(request)).get("key", "")
    if not key.fits(offered):
        request.app.state.limits.wrong_key(request)
        return _sign_in(request, 401, "The admin key is wrong.")
    return begin(RedirectResponse("/operator", 303), key, request)


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    await operator_form(request)
    return end(RedirectResponse("/operator", 303))


@router.get("/reviews/{address}")
async def review(address: str, request: Request) -> Response:
    return await _review_page(address, request)


async def _review_page(address: str, request: Request, status: int = 200, **more: object) -> Response:
    session = session_of(request)
    if session is None:
        return _sign_in(request)
    reader = context_of(request).reader
    sheet = await review_sheet(reader.store, reader.chain_id, known_address(address))
    accounts = list(dict.fromkeys(account for values in sheet.facts.values() for account in values))
    return page(
        "review.html",
        {"problem": "", "note": "", **more},
        status=status,
        sheet=sheet,
        accounts=accounts,
        token=form_token(request, session),
        shortened=shortened,
        rejection=rejection,
    )


@router.post("/reviews/{address}")
async def decide(address: str, request: Request) -> Response:
    """Approve, reject or rule; a refused decision shows the page again with the reason and the note."""
    fields = await operator_form(request)
    known, note, engine = known_address(address), fields.get("note", "")[:_MOST_NOTE], context_of(request).engine
    decision, digest = fields.get("decision", ""), fields.get("digest") or None
    by = fields.get("by", "").strip() or SIGNED_IN
    try:
        if decision == "rule":
            await engine.rule(known, replace(_decree(fields, note), by=by), digest)
        elif decision in {"approve", "reject"}:
            await engine.decide(known, "approve" if decision == "approve" else "reject", note, digest, by)
        else:
            raise Refusal(422, "The decision is neither approve, reject nor rule.")
    except ClaraError as bad:
        return await _review_page(address, request, 422, problem=str(bad), note=note)
    return RedirectResponse(f"/operator?done={decision}", 303)


def _decree(fields: dict[str, str], note: str) -> Decree:
    kind = fields.get("kind", "")
    if kind not in {"exclude", "original", "judge"}:
        raise BadInput("A ruling excludes an entry, names an original or names a judge.", path="kind", value=kind)
    if kind == "judge":
        stage = "reading" if fields.get("stage") == "reading" else "comparing"
        return Decree("judge", None, fields.get("judge", "")[:300], cast("RuledStage", stage), note)
    return Decree(cast("RulingKind", kind), to_address(fields.get("account", "")), note=note)


@router.post("/retry/{address}")
async def retry(address: str, request: Request) -> Response:
    """Queue an evaluation that was deferred or stopped."""
    await operator_form(request)
    await context_of(request).engine.request(known_address(address))
    return RedirectResponse("/operator?done=retry", 303)
