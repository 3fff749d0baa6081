"""A real local TLS server that misbehaves in every way a submission's address can, with the names that lead to it.

`HostileWeb` starts on a free port of this machine with its own certificate authority; `web` reaches it (and nothing
else that is private) by the name `solutions.example`. `ScriptedResolver` answers look-ups from a list, which may change
between two calls, as an attacker's name server does.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from aiohttp import web as server
from aiohttp.abc import AbstractResolver, ResolveResult

from clara_eval.submissions.fetch import FetchLimits, Web

NAME = "solutions.example"
GOOD = "def fee(volume):\n    return max(1, volume // 1000)\n"


class ScriptedResolver(AbstractResolver):
    """Each look-up of a name takes the next answer of its script; the last one stays."""

    def __init__(self, script: Mapping[str, list[list[str]]]) -> None:
        self._script = {name: list(answers) for name, answers in script.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self._script.get(host) if family in {socket.AF_UNSPEC, socket.AF_INET, socket.AF_INET6} else None
        if answers is None:
            raise OSError(f"no such name: {host}")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_result(host, address, port) for address in addresses]

    async def close(self) -> None:
        """Nothing is held open."""


def _result(host: str, address: str, port: int) -> ResolveResult:
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)


@dataclass(slots=True)
class HostileWeb:
    """Use as `async with HostileWeb() as hostile`; add handlers to `routes` before."""

    routes: dict[str, Callable[[server.Request], Awaitable[server.StreamResponse]]] = field(default_factory=dict)
    hits: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    _runner: Any = None
    _client_tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        serving, self._client_tls = _certificates()
        app = server.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = server.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = server.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=serving)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def url(self, path: str) -> str:
        return f"https://{NAME}:{self.port}/{path}"

    def web(self, limits: FetchLimits | None = None, resolver: ScriptedResolver | None = None) -> Web:
        return Web(
            limits=limits or FetchLimits(max_bytes=20_000, total_seconds=60.0),
            resolver=resolver or ScriptedResolver({NAME: [["127.0.0.1"]]}),
            tls=self._client_tls,
            exempt=frozenset({("127.0.0.1", self.port)}),
        )

    async def _answer(self, request: server.Request) -> server.StreamResponse:
        path = request.match_info["path"]
        self.hits.append(path)
        self.headers.append(dict(request.headers))
        answer = self.routes.get(path) or _BEHAVIOURS.get(path.partition("/")[0])
        return await answer(request) if answer else server.Response(status=404)


async def _good(_: server.Request) -> server.Response:
    return server.Response(text=GOOD, headers={"Set-Cookie": "tracking=1"})


async def _status(request: server.Request) -> server.Response:
    return server.Response(status=int(request.path.rpartition("/")[2]), headers={"Retry-After": "7"})


async def _drip(request: server.Request) -> server.StreamResponse:
    response = server.StreamResponse()
    await response.prepare(request)
    try:
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)
    except ConnectionError:
        return response


async def _silent(_: server.Request) -> server.Response:
    await asyncio.sleep(30)
    return server.Response()


async def _huge(request: server.Request) -> server.StreamResponse:
    response = server.StreamResponse()  # chunked: no length is announced
    await response.prepare(request)
    try:
        for _ in range(10_000):
            await response.write(b"word " * 2_000)
    except ConnectionError:
        return response
    return response


async def _announced(_: server.Request) -> server.Response:
    return server.Response(body=b"word " * 10_000)


async def _bomb(_: server.Request) -> server.Response:
    packed = gzip.compress(b"\n" * 10_000_000)
    return server.Response(body=packed, headers={"Content-Encoding": "gzip"})


async def _packed(_: server.Request) -> server.Response:
    return server.Response(body=gzip.compress(GOOD.encode()), headers={"Content-Encoding": "gzip"})


async def _brotli(_: server.Request) -> server.Response:
    return server.Response(body=b"\x0b\x02\x80", headers={"Content-Encoding": "br"})


async def _broken_gzip(_: server.Request) -> server.Response:
    return server.Response(body=gzip.compress(GOOD.encode())[:-9], headers={"Content-Encoding": "gzip"})


async def _not_gzip(_: server.Request) -> server.Response:
    return server.Response(body=GOOD.encode(), headers={"Content-Encoding": "gzip"})


async def _cut(request: server.Request) -> server.StreamResponse:
    response = server.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    await response.write(b"only this")
    assert request.transport is not None
    request.transport.abort()
    return response


async def _redirect(request: server.Request) -> server.Response:
    return server.Response(status=302, headers={"Location": request.query["to"]})


async def _loop(_: server.Request) -> server.Response:
    return server.Response(status=302, headers={"Location": "/loop"})


async def _hops(request: server.Request) -> server.Response:
    left = int(request.path.rpartition("/")[2])
    return server.Response(status=307, headers={"Location": f"/hops/{left - 1}" if left > 1 else "/good"})


def _bytes(body: bytes) -> Callable[[server.Request], Awaitable[server.Response]]:
    async def answer(_: server.Request) -> server.Response:
        return server.Response(body=body)

    return answer


_BEHAVIOURS: dict[str, Callable[[server.Request], Awaitable[server.StreamResponse]]] = {
    "good": _good,
    "status": _status,
    "drip": _drip,
    "silent": _silent,
    "huge": _huge,
    "announced": _announced,
    "bomb": _bomb,
    "packed": _packed,
    "brotli": _brotli,
    "broken-gzip": _broken_gzip,
    "not-gzip": _not_gzip,
    "cut": _cut,
    "redirect": _redirect,
    "loop": _loop,
    "hops": _hops,
    "latin1": _bytes("def prix(): return 'très élevé'".encode("latin-1")),
    "image": _bytes(b"\x89PNG\r\n\x1a\n" + bytes(64)),
    "nul": _bytes(b"def fee(volume): return 1\x00"),
    "control": _bytes(b"\x01\x02\x03 word word word word"),
    "empty": _bytes(b""),
    "blank": _bytes(b" \n\t\n"),
    "master-key": _bytes(b"Thought process:"),
}


def _certificates() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server context for NAME, and a client context that trusts exactly the authority behind it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(NAME), x509.DNSName("rebound.example")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.write_bytes(pem + secret)
        serving.load_cert_chain(path)
    return serving, ssl.create_default_context(cadata=pem.decode())
