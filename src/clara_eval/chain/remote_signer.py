"""A key behind web3signer's HTTP API, by URL and address.

Invariant: what it gives back is the signature of exactly the configured address over this transaction; anything else is
refused before it is recorded. An outage is Temporary, a signer that refuses or lies is a ConfigError.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from clara_eval.chain.signatures import address_of, signed_with
from clara_eval.chain.transaction import SignedBytes, TransactionToSign, signing_payload
from clara_eval.core.address import Address
from clara_eval.core.errors import ConfigError, Temporary
from clara_eval.core.http_body import TooLong, read_at_most

_SECONDS = aiohttp.ClientTimeout(total=20, sock_connect=5)
_MOST_ANSWER = 1_000_000


class RemoteSigner:
    """One key of one web3signer. Its public key is looked up once."""

    __slots__ = ("_identifier", "_url", "address", "what")

    def __init__(self, url: str, address: Address) -> None:
        self.what = f"remote signer {_place(url)}"
        """Where the key is, without a user or password that the URL may hold."""
        self._url = url.rstrip("/")
        self.address = address
        self._identifier: str | None = None

    def __repr__(self) -> str:
        return f"RemoteSigner({self.what}, {self.address})"

    async def sign(self, tx: TransactionToSign) -> SignedBytes:
        payload = signing_payload(tx)
        path = f"/api/v1/eth1/sign/{await self._key()}"
        text = (await self._ask("POST", path, {"data": "0x" + payload.hex()})).strip().strip('"')
        return signed_with(self.what, self.address, tx, *_read_signature(self.what, text))

    async def check(self) -> None:
        """Raise if the signer does not answer or does not hold the key."""
        self._identifier = None
        await self._key()

    async def _key(self) -> str:
        """Look up the public key of our address, by which the API names a key."""
        if self._identifier is None:
            try:
                listed = json.loads(await self._ask("GET", "/api/v1/eth1/publicKeys"))
            except (ValueError, RecursionError):
                listed = None
            if not isinstance(listed, list):
                raise Temporary(f"The {self.what} gave no list of keys.", remedy="Check CLARA_SIGNER_URL.")
            found = [str(key) for key in listed if address_of(str(key)) == self.address]
            if not found:
                raise ConfigError(
                    f"The {self.what} holds no key of {self.address}.",
                    remedy="Load the key there, or correct CLARA_EVALUATOR_ADDRESS.",
                )
            self._identifier = found[0]
        return self._identifier

    async def _ask(self, method: str, path: str, body: Any = None) -> str:
        try:
            async with (
                aiohttp.ClientSession(timeout=_SECONDS) as session,
                session.request(method, self._url + path, json=body, allow_redirects=False) as response,
            ):
                text = (await read_at_most(response, _MOST_ANSWER)).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError, TooLong) as bad:
            raise Temporary(
                f"The {self.what} does not answer ({type(bad).__name__}).", remedy="It is asked again by itself."
            ) from None
        if response.status == 200:
            return text
        if response.status == 404:
            self._identifier = None
            raise ConfigError(f"The {self.what} does not know the key of {self.address}.", remedy="Load it there.")
        if 300 <= response.status < 400:
            raise ConfigError(
                f"The {self.what} sends us elsewhere (HTTP {response.status}), and no key is asked for there.",
                remedy="Write the signer's own address into CLARA_SIGNER_URL.",
            )
        if response.status in (400, 401, 403, 412):
            raise ConfigError(
                f"The {self.what} refuses to sign (HTTP {response.status}).",
                remedy="Its own log says why. It is asked again by itself.",
            )
        raise Temporary(f"The {self.what} answers HTTP {response.status}.", remedy="It is asked again by itself.")


def _place(url: str) -> str:
    """Return host and port; an error does not quote the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not url.startswith(("http://", "https://")) or "?" in url or "#" in url:
        raise ConfigError(
            "CLARA_SIGNER_URL is not http(s)://host:port.",
            remedy="Write a web3signer's address without ? and #; a / or @ in a password is written %2F or %40.",
        )
    shown = f"[{host}]" if ":" in host else host
    return shown + (f":{port}" if port else "")


def _read_signature(what: str, text: str) -> tuple[int, int]:
    """Read r and s; the parity is found by trying, so that no convention about v has to be trusted."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raw = b""
    if len(raw) != 65:
        raise Temporary(f"The {what} gave something that is not a signature.", remedy="It is asked again by itself.")
    return int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big")
