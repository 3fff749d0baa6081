"""Half-open, slow and unreading connections: they end by themselves, make room for others, and leave descriptors."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.api_service import POSTED, REVIEWED, Service, running_service

from clara_eval.interfaces.api.connections import (
    BACKLOG,
    KEPT_FOR_THE_ENGINE,
    MOST_CONNECTIONS,
    ConnectionBounds,
    most_connections,
    raise_file_limit,
)

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def get(path: str) -> bytes:
    return f"GET /api/v1/challenges/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def say(service: Service, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    writer.write(words)
    await writer.drain()
    return reader, writer


async def answer(service: Service, words: bytes = WHOLE) -> bytes:
    """The first line of the answer; empty where the connection was closed."""
    reader, writer = await say(service, words)
    try:
        return await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes."""
    try:
        return await asyncio.wait_for(reader.read(-1), 10)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "words", [b"", HALF, b"POST /api/v1/challenges/evaluate HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["nothing", "half a head", "half a body"],
)  # fmt: skip
async def test_a_request_that_never_ends_is_closed(words: bytes, tmp_path: Path) -> None:
    """Whatever part of it is missing, the connection is over after its time, also on a connection used before."""
    async with running_service(tmp_path, bounds=ConnectionBounds(50, request_seconds=0.5)) as service:
        reader, writer = await say(service, words)
        await ends(reader)
        writer.close()
        if words:
            reader, writer = await say(service, WHOLE + words)
            assert (await ends(reader)).startswith(b"HTTP/1.1 200")
            writer.close()
        assert b"200" in await answer(service)


async def test_half_open_connections_make_room_for_whole_requests(tmp_path: Path) -> None:
    """Five times as many half-sent requests as there are places: everybody who asks properly is answered at once."""
    bounds = ConnectionBounds(20, request_seconds=60)
    async with running_service(tmp_path, bounds=bounds) as service:
        held = [await say(service, HALF) for _ in range(100)]
        for _ in range(10):
            assert b"200" in await answer(service)
        assert len(bounds.unfinished) <= 20
        for _, writer in held:
            writer.close()


async def test_who_does_not_read_is_let_go(tmp_path: Path) -> None:
    """An answer that nobody takes does not hold its place for ever: it is cut off, and others are served."""
    async with running_service(tmp_path, bounds=ConnectionBounds(20, unread_seconds=0.5)) as service:
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.connect(("127.0.0.1", int(service.url.rpartition(":")[2])))
            lazy.sendall(get(f"{POSTED}/eval-trace"))
            await asyncio.sleep(1.5)
            assert b"200" in await answer(service)
            lazy.setblocking(False)
            got = bytearray()
            with suppress(ConnectionError):
                while piece := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(lazy, 65536), 5):
                    got += piece
        assert got.startswith(b"HTTP/1.1 200")
        assert not got.endswith(b"0\r\n\r\n")


async def test_a_slow_answer_is_not_a_slow_request(tmp_path: Path) -> None:
    """A whole request may be answered for longer than a request may take: only what the client owes is timed."""
    async with running_service(tmp_path, bounds=ConnectionBounds(5, request_seconds=0.3)) as service:
        reader, writer = await say(service, get(f"{REVIEWED}/events"))
        await asyncio.sleep(1)
        assert not reader.at_eof()
        assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")
        writer.close()


def test_descriptors_are_kept_for_the_engine() -> None:
    """However few the process may have, connections never take them all; with many there is still a bound."""
    assert raise_file_limit() >= 256
    assert most_connections(1024) <= 1024 - KEPT_FOR_THE_ENGINE
    assert most_connections(10**6) == MOST_CONNECTIONS
    assert most_connections(256) == BACKLOG
