"""The operator's pages and session: reviews, stopped rounds, spending, health.

Invariant: a decision names the digest of the result that was on the page. The session cookie is signed with the admin
key, HttpOnly and SameSite=Strict; a new admin key ends every session. Every form has a token.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from dataclasses import replace
from typing import cast
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clara_eval.actions.published import ResultReader, spend_report
from clara_eval.actions.review import Decree, list_reviews, review_sheet
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import BadInput, ClaraError
from clara_eval.core.version import __version__
from clara_eval.core.web import read_host, read_origin
from clara_eval.documents.results import RuledStage, RulingKind
from clara_eval.interfaces.api.challenge_view import card_of, entry_view, game_view
from clara_eval.interfaces.api.context import PageAddress, Refusal, admin_key_of, context_of
from clara_eval.interfaces.api.templating import page

router = APIRouter(include_in_schema=False, prefix="/operator")
COOKIE = "clara_operator"
SESSION_SECONDS = 8 * 3600
_RETURN_PATH = re.compile(r"/operator(/reviews/0x[0-9a-fA-F]{40})?")  # the only targets of the redirect after sign-in
SHOWN_METRICS = ("evaluator_posts_left", "evaluator_balance_wei", "rpc_up", "head_lag_seconds", "month_spend_usd")
_DONE = {
    "approve": "Approved. The result is being posted.",
    "reject": "Rejected. Nothing is posted; the poster may still post.",
    "rule": "Ruling saved; re-running now. The new result waits for you again.",
    "retry": "Queued. The evaluation starts again.",
}


def _sign_in(request: Request, status: int = 200, problem: str = "", after: str = "") -> HTMLResponse:
    is_set, after = admin_key_of(request).is_set, after or request.url.path
    return page("sign_in.html", status=status, is_set=is_set, problem=problem, after=after)


@router.get("")
async def overview(request: Request, done: str = "") -> Response:
    token = form_token(request)
    if token is None:
        return _sign_in(request)
    context, now = context_of(request), time.time()
    rows = [card_of(row, now) for row in await context.reader.listed(admin=True)]
    known = {card.row.address: card.row for card in rows}
    reviews = await list_reviews(context.reader.store, context.reader.chain_id)
    deadlines = {address: row.scoringDeadline for address, row in known.items()}
    due = {one.address: one.posts_at or deadlines.get(one.address, 0) for one in reviews}
    return page(
        "operator.html",
        done=_DONE.get(done, ""),
        token=token,
        reviews=sorted(reviews, key=lambda one: (one.state != "waiting", due[one.address])),
        known=known,
        due=due,
        now=int(now),
        measured={name: context.metrics.registry.get_sample_value(f"clara_{name}") for name in SHOWN_METRICS},
        alerts=context.metrics.alerts.collect(),
        stopped=[card for card in rows if card.row.evaluation.status in {"deferred", "failed", "unscorable"}],
        running=[card for card in rows if card.is_live],
        spend=spend_report(await context.reader.store.spends()),
        settings=context.settings,
        health=context.health.report(__version__),
    )


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    key, fields = admin_key_of(request), await read_form(request)
    wanted = fields.get("after", "")
    after = wanted if _RETURN_PATH.fullmatch(wanted) else "/operator"
    if not key.matches(fields.get("key", "")):
        request.app.state.limits.take_wrong_key(request)
        return _sign_in(request, 401, "The admin key is wrong.", after)
    session = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(16)}"
    response = RedirectResponse(after, 303)
    response.set_cookie(
        COOKIE,
        f"{session}.{key.sign('session:' + session)}",
        max_age=SESSION_SECONDS,
        path="/operator",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    await read_operator_form(request)
    response = RedirectResponse("/operator", 303)
    response.delete_cookie(COOKIE, path="/operator")
    return response


@router.get("/reviews/{address}")
async def review(address: PageAddress, request: Request) -> Response:
    return await _review_page(address, request)


async def _review_page(address: Address, request: Request, status: int = 200, **more: object) -> Response:
    token = form_token(request)
    if token is None:
        return _sign_in(request)
    reader = context_of(request).reader
    sheet = await review_sheet(reader.store, reader.chain_id, address)
    accounts = list(dict.fromkeys(account for values in sheet.facts.values() for account in values))
    values = {"problem": "", "fields": {}, "confirm": "", **more}
    return page("review.html", values, status=status, sheet=sheet, accounts=accounts, token=token)


@router.post("/reviews/{address}")
async def decide(address: PageAddress, request: Request) -> Response:
    """Approve, reject or rule; show the form again, filled in, on an error or to ask for confirmation."""
    fields = await read_operator_form(request)
    note, engine = fields.get("note", "")[:500], context_of(request).engine
    decision, digest, by = fields.get("decision", ""), fields.get("digest") or None, fields.get("by", "").strip()
    try:
        if not by or not note.strip():
            raise BadInput("A decision needs your name and a reason: both become public.", path="by")
        if decision in {"approve", "reject"} and "confirmed" not in fields:
            return await _review_page(address, request, fields=fields, confirm=decision)
        if decision == "rule":
            await engine.rule(address, _read_decree(fields, note, by), digest)
        elif decision in {"approve", "reject"}:
            await engine.decide(address, "approve" if decision == "approve" else "reject", note, digest, by)
        else:
            raise Refusal(422, "The decision is neither approve, reject nor rule.")
    except ClaraError as bad:
        return await _review_page(address, request, 422, problem=str(bad), fields=fields)
    return RedirectResponse(f"/operator?done={decision}", 303)


def _read_decree(fields: dict[str, str], note: str, by: str) -> Decree:
    kind = fields.get("kind", "")
    if kind not in {"exclude", "original", "judge"}:
        raise BadInput("A ruling excludes an entry, names an original or names a judge.", path="kind", value=kind)
    if kind == "judge":
        stage: RuledStage = "reading" if fields.get("stage") == "reading" else "comparing"
        return Decree("judge", None, fields.get("judge", "")[:300], stage, note, by)
    return Decree(cast("RulingKind", kind), to_address(fields.get("account", "")), note=note, by=by)


@router.get("/reviews/{address}/games/{first}/{second}")
async def reviewed_game(address: PageAddress, first: PageAddress, second: PageAddress, request: Request) -> Response:
    if form_token(request) is None:
        return _sign_in(request)
    values = await game_view(_operator_reader(request), address, first, second, admin=True)
    return page("game.html", values, heading="h1", base=f"/operator/reviews/{address}")


@router.get("/reviews/{address}/{submitter}")
async def reviewed_entry(address: PageAddress, submitter: PageAddress, request: Request, against: str = "") -> Response:
    if form_token(request) is None:
        return _sign_in(request)
    values = await entry_view(_operator_reader(request), address, submitter, against, admin=True)
    return page("entry.html", values, base=f"/operator/reviews/{address}")


def _operator_reader(request: Request) -> ResultReader:
    """Return a reader for the operator, who may see traces that are never public."""
    return replace(context_of(request).reader, traces_public="after_post")


@router.post("/retry/{address}")
async def retry(address: PageAddress, request: Request) -> Response:
    await read_operator_form(request)
    await context_of(request).engine.request(address)
    return RedirectResponse("/operator?done=retry", 303)


def form_token(request: Request) -> str | None:
    """Return the form token of this session; None without a session."""
    key = admin_key_of(request)
    session, _, signature = request.cookies.get(COOKIE, "").rpartition(".")
    until, _, _ = session.partition(".")
    if not key.is_set or not until.isdigit() or len(until) > 12:
        return None
    is_signed = hmac.compare_digest(signature.encode("utf-8", "replace"), key.sign("session:" + session).encode())
    return key.sign("form:" + session) if is_signed and int(until) > time.time() else None


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form from our own pages; raise Refusal 403 for another site's."""
    # Prefer Sec-Fetch-Site: our pages send no referrer, so the Origin header may be `null`.
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_ours = site in {"same-origin", "none"}
    if site is None:
        page, host = read_origin(origin or ""), read_host(request.headers.get("host", ""))
        is_ours = origin is None or (page is not None and host is not None and page.is_of(host))
    if not is_ours:
        raise Refusal(403, "The form comes from another site.", remedy="Open this page here and try again.")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qs(body, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Refusal(400, "The form has too many fields.") from None
    return {name: values[-1] for name, values in fields.items()}


async def read_operator_form(request: Request) -> dict[str, str]:
    """Return the fields of an operator's form; raise Refusal without a session or a valid token."""
    token = form_token(request)
    if token is None:
        raise Refusal(401, "The session has ended.", remedy="Sign in again under /operator.")
    fields = await read_form(request)
    if not hmac.compare_digest(fields.get("token", "").encode(), token.encode()):
        raise Refusal(403, "The form has no valid token.", remedy="Load the page again and repeat it there.")
    request.app.state.limits.take_admin_request()
    return fields
