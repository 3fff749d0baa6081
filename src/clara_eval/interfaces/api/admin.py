"""The administrator's key, kept as a hash and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from clara_eval.interfaces.api.problems import Refusal

_bearer = HTTPBearer(auto_error=False, scheme_name="AdminBearer", description="The admin key as a bearer token.")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="AdminKey", description="The admin key.")

Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
Header = Annotated[str | None, Depends(_header)]


class AdminKey:
    def __init__(self, key: SecretStr | None) -> None:
        self._digest = _digest(key.get_secret_value()) if key is not None else None

    @property
    def is_set(self) -> bool:
        return self._digest is not None

    def fits(self, offered: str | None) -> bool:
        if self._digest is None or offered is None:
            return False
        return hmac.compare_digest(self._digest, _digest(offered))

    def seal(self, text: str) -> str:
        """Sign a text so that only the key's owner can have done it."""
        if self._digest is None:
            raise _no_key()
        return hmac.new(self._digest, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _no_key() -> Refusal:
    return Refusal(403, "This service has no admin key.", remedy="The operator may set CLARA_ADMIN_API_KEY.")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def offered_key(request: Request, bearer: HTTPAuthorizationCredentials | None, header: str | None) -> str | None:
    """The key of this request; of two the bearer's, even if that is none."""
    if bearer is None and header is not None and "authorization" in request.headers:
        return ""
    return bearer.credentials if bearer else header


def is_admin(request: Request, bearer: Bearer, header: Header) -> bool:
    """Whether the administrator asks; wrong keys are limited in rate."""
    key: AdminKey = request.app.state.admin_key
    offered = offered_key(request, bearer, header)
    if key.is_set and offered is not None and not key.fits(offered):
        request.app.state.limits.wrong_key(request)
    return key.fits(offered)


def require_admin(request: Request, bearer: Bearer, header: Header) -> None:
    key: AdminKey = request.app.state.admin_key
    if not key.is_set:
        raise _no_key()
    if not key.fits(offered_key(request, bearer, header)):
        request.app.state.limits.wrong_key(request)
        raise Refusal(
            401,
            "The admin key is missing or wrong.",
            remedy="Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            headers={"WWW-Authenticate": 'Bearer realm="clara-eval"'},
        )
    request.app.state.limits.admin_request()


IsAdmin = Annotated[bool, Depends(is_admin)]
