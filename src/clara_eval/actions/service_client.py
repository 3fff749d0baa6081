"""Call the REST API of a running service, and sign what it takes from a person."""

from __future__ import annotations

import json
from http import HTTPStatus

import aiohttp
from pydantic import SecretStr

from clara_eval.core.accounts import Account, encode_defunct
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, ClaraError, NotFound, NotYet, Temporary
from clara_eval.core.web import TooLong, read_at_most

MAX_ANSWER_BYTES = 4 * 2**20  # more than the draft of ten thousand submitters has


def sign_text(key: SecretStr, text: str) -> str:
    """Sign as a wallet does (EIP-191)."""
    return "0x" + bytes(Account.sign_message(encode_defunct(text=text), key.get_secret_value()).signature).hex()


def refusal(what: str, status: int, text: str) -> ClaraError:
    """The service's own reason, as an error of the same kind; its answer may be anything."""
    try:
        problem = json.loads(text)
        detail, remedy = str(problem["detail"])[:1000], str(problem.get("remedy") or "")[:300]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return BadInput(f"The service refuses the {what} ({status}).", remedy="Check CLARA_API_URL.")
    message = f"The service refuses the {what}: {detail}"
    if status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
        return (NotYet if status == HTTPStatus.CONFLICT else NotFound)(message, remedy=remedy)
    return BadInput(message, remedy=remedy)


async def ask_service(api_url: str, address: Address, path: str, body: dict[str, str] | None = None) -> tuple[int, str]:
    """Return status and text of a GET, or of a POST if there is a body."""
    url = f"{api_url.rstrip('/')}/api/v1/challenges/{address}/{path}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.request("GET" if body is None else "POST", url, json=body, allow_redirects=False) as answer,
        ):
            return answer.status, (await read_at_most(answer, MAX_ANSWER_BYTES)).decode("utf-8", "replace")
    except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
        raise Temporary(f"The service at {api_url} does not answer ({type(bad).__name__}).") from bad


async def send_to_service(api_url: str, address: Address, path: str, body: dict[str, str], what: str) -> None:
    status, text = await ask_service(api_url, address, path, body)
    if status != HTTPStatus.OK:
        raise refusal(what, status, text)
