"""Half-open connections and endless headers: they end by themselves, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.support.api_service import REVIEWED, Service, running_service

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def say(service: Service, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(service.url.rpartition(":")[2]))
    writer.write(words)
    await writer.drain()
    return reader, writer


async def answer(service: Service, words: bytes = WHOLE) -> bytes:
    """The first line of the answer; empty if the connection was closed."""
    reader, writer = await say(service, words)
    try:
        return await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """What arrives until the other side closes."""
    try:
        return await asyncio.wait_for(reader.read(-1), 10)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "words", [b"", HALF, b"POST /api/v1/challenges/evaluate HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["nothing", "half a head", "half a body"],
)  # fmt: skip
async def test_a_request_that_never_ends_is_closed(words: bytes, tmp_path: Path) -> None:
    """A connection with an unfinished request is closed after its time, also one that was used before."""
    async with running_service(tmp_path, request_seconds=0.5) as service:
        reader, writer = await say(service, words)
        await ends(reader)
        writer.close()
        if words:
            reader, writer = await say(service, WHOLE + words)
            assert (await ends(reader)).startswith(b"HTTP/1.1 200")
            writer.close()
        assert b"200" in await answer(service)


async def test_whole_requests_are_answered_beside_half_open_ones(tmp_path: Path) -> None:
    """Hundreds of clients that send nothing, or half a request, keep no other from an answer."""
    async with running_service(tmp_path, request_seconds=60) as service:
        held = [await say(service, words) for words in (HALF, b"") for _ in range(200)]
        for _ in range(10):
            assert b"200" in await answer(service)
        for _, writer in held:
            writer.close()


async def test_a_megabyte_of_headers_is_refused(tmp_path: Path) -> None:
    """The head of a request is bounded, whether it ends or not."""
    async with running_service(tmp_path) as service:
        for rest in (b"\r\n\r\n", b""):
            assert await answer(service, HALF + b"a" * 1_000_000 + rest) in {b"", b"HTTP/1.1 400 Bad Request\r\n"}
        assert b"200" in await answer(service)


async def test_a_slow_answer_is_not_a_slow_request(tmp_path: Path) -> None:
    """A whole request may be answered for longer than a request may take: only what the client owes is timed."""
    async with running_service(tmp_path, request_seconds=0.3) as service:
        words = f"GET /api/v1/challenges/{REVIEWED}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        reader, writer = await say(service, words)
        await asyncio.sleep(1)
        assert not reader.at_eof()
        assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_kept_connection_is_answered_without_waiting_for_receipts(tmp_path: Path) -> None:
    """Head and body of an answer leave at once: connections inherit TCP_NODELAY, without which a body waits 40 ms."""
    async with running_service(tmp_path) as service:
        assert service.listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
