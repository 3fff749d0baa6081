"""The administrator's session in a browser: a cookie signed with the admin key, and a token in every form.

Invariant: no script reads the cookie, no request of another site carries it, another key ends every session.
"""

from __future__ import annotations

import hmac
import secrets
import time
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from clara_eval.core.web_origin import read_host, read_origin
from clara_eval.interfaces.api.admin import AdminKey
from clara_eval.interfaces.api.problems import Refusal

COOKIE = "clara_operator"
SECONDS = 8 * 3600
_MOST_FIELDS = 20


def begin(response: Response, key: AdminKey, request: Request) -> Response:
    begun = f"{int(time.time()) + SECONDS}.{secrets.token_hex(16)}"
    response.set_cookie(
        COOKIE,
        f"{begun}.{key.seal('session:' + begun)}",
        max_age=SECONDS,
        path="/operator",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def end(response: Response) -> Response:
    response.delete_cookie(COOKIE, path="/operator")
    return response


def session_of(request: Request) -> str | None:
    """The session of this request, if it is valid."""
    key: AdminKey = request.app.state.admin_key
    begun, _, seal = request.cookies.get(COOKIE, "").rpartition(".")
    until, _, _ = begun.partition(".")
    if not key.is_set or not until.isdigit() or len(until) > 12:
        return None
    is_sealed = hmac.compare_digest(seal.encode("utf-8", "replace"), key.seal("session:" + begun).encode())
    return begun if is_sealed and int(until) > time.time() else None


def form_token(request: Request, session: str) -> str:
    key: AdminKey = request.app.state.admin_key
    return key.seal("form:" + session)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form from our own pages; Refusal 403 for another site's."""
    if not _is_ours(request):
        raise Refusal(403, "The form comes from another site.", remedy="Open this page here and try again.")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qs(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refusal(400, "The form has too many fields.") from None
    return {name: values[-1] for name, values in fields.items()}


def _is_ours(request: Request) -> bool:
    """Browsers name the site of a form; our pages send no referrer, so the origin may be `null`."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in {"same-origin", "none"}
    if origin is None:
        return True
    page, host = read_origin(origin), read_host(request.headers.get("host", ""))
    return page is not None and host is not None and page.is_of(host)


async def operator_form(request: Request) -> dict[str, str]:
    """The fields of an administrator's form; Refusal if the session or its token is missing."""
    session = session_of(request)
    if session is None:
        raise Refusal(401, "The session has ended.", remedy="Sign in again under /operator.")
    fields = await form_of(request)
    if not hmac.compare_digest(fields.get("token", "").encode(), form_token(request, session).encode()):
        raise Refusal(403, "The form has no valid token.", remedy="Load the page again and repeat it there.")
    request.app.state.limits.admin_request()
    return fields
