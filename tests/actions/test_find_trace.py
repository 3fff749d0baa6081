"""A trace is found where it is said to be, and a gateway cannot put another in its place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.evidence import ANSWERS, answers, peak
from tests.support.ipfs import base32, base58, car, gateway, raw_cid, unixfs, v0_cid

from clara_eval.actions.verify import find_committed, find_trace
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.errors import ClaraError, NotFound, Temporary
from clara_eval.evaluation.trace import START, Evidence, TraceWriter, read_entries, render
from clara_eval.store.sqlite import SqliteStore
from clara_eval.store.trace_archive import drafted, save_trace

ADDRESS = "0x" + "ab" * 20


def trace() -> str:
    """Larger than any submission may be."""
    writer = TraceWriter()
    lines = [writer.line("header", {"rules": 1}), writer.line("long", "x" * 400_000)]
    return "".join(render(lines, writer.digest))


@asynccontextmanager
async def served(**routes: object) -> AsyncIterator[str]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(f"/{path}", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def settings(place: Path, **values: str) -> Settings:
    return Settings.from_env({"CLARA_DATABASE_URL": f"sqlite:///{place / 'store.db'}", **values})


async def test_a_trace_on_ipfs_is_taken_only_with_its_cid(tmp_path: Path) -> None:
    """Blocks, or bytes that a raw CID is the hash of, are read whatever their size; what is not proved is not taken."""
    content = trace().encode()
    forged = content.replace(b"x", b"y", 1)
    cid, named = raw_cid(content), base32(raw_cid(content))
    linked = base58(v0_cid(unixfs(2, content)))
    for name, answer, problem in (
        (named, gateway(archive=car((cid, content))), None),
        (named, gateway(plain=content), None),
        (named, gateway(archive=car((cid, forged))), ClaraError),
        (named, gateway(plain=forged), ClaraError),
        (linked, gateway(plain=content), Temporary),
    ):
        async with served(**{f"ipfs/{name}": answer}) as url:
            here = settings(tmp_path, CLARA_IPFS_GATEWAY=url)
            uri = f"ipfs://{name}"
            if problem is None:
                assert [entry.key for entry in read_entries(await find_trace(uri, here))] == ["header", "long"]
            else:
                with pytest.raises(problem):
                    await find_trace(uri, here)
    with pytest.raises(NotFound, match="cannot be read"):
        await find_trace("ipfs://nothing", settings(tmp_path))


async def test_a_large_trace_is_found_in_a_fraction_of_its_size(tmp_path: Path) -> None:
    """From a file, a pipe, the store and a service: whoever verifies holds a part of a trace at a time, never its text."""
    here = settings(tmp_path)
    store, path = await SqliteStore.open(tmp_path / "store.db"), tmp_path / "trace.json"
    with drafted(answers(ANSWERS)) as draft:
        await save_trace(store, here.network.chain_id, ADDRESS, draft.pieces(), draft.digest)
        path.write_text("".join(draft.pieces()), encoding="utf-8", newline="\n")
    await store.close()
    os.mkfifo(pipe := tmp_path / "pipe")
    found: dict[str, tuple[str, int]] = {}

    async def serve(_request: web.Request) -> web.FileResponse:
        return web.FileResponse(path)

    async def look(name: str, source: str, here: Settings) -> None:
        with peak() as most, await find_trace(source, here) as lines:
            digest = Evidence(lines).digest
        found[name] = digest, most[0]

    await look("file", str(path), here)
    await look("store", ADDRESS, here)
    writer = await asyncio.create_subprocess_exec("cp", str(path), str(pipe))
    await look("pipe", str(pipe), here)
    assert await writer.wait() == 0
    async with served(**{f"api/v1/challenges/{ADDRESS}/eval-trace": serve}) as url:
        await look("service", ADDRESS, settings(tmp_path / "elsewhere", CLARA_API_URL=url))
    assert {digest for digest, _ in found.values()} == {draft.digest}
    size = path.stat().st_size
    assert size > 10_000_000
    assert max(most for _, most in found.values()) < size / 3, (found, size)


async def test_a_trace_without_entries_is_no_trace_of_anybody(tmp_path: Path) -> None:
    """A service that serves an empty chain is told like one that serves another trace."""

    async def empty(_request: web.Request) -> web.Response:
        return web.Response(text="".join(render([], START)))

    async with served(**{f"api/v1/challenges/{ADDRESS}/eval-trace": empty}) as url:
        with pytest.raises(NotFound, match="It has no entries"):
            await find_committed(to_address(ADDRESS), settings(tmp_path, CLARA_API_URL=url), "0x" + "1" * 64)


async def test_a_trace_that_is_not_here_is_asked_of_the_service(tmp_path: Path) -> None:
    """Without a store that has it, the service of CLARA_API_URL is asked; where nobody has it, both are named."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=trace())

    async with served(**{f"api/v1/challenges/{ADDRESS}/eval-trace": answer}) as url:
        found = await find_trace(ADDRESS, settings(tmp_path, CLARA_API_URL=url))
        assert [entry.key for entry in read_entries(found)] == ["header", "long"]
        with pytest.raises(NotFound, match="nor at"):
            await find_trace(ADDRESS.replace("ab", "cd"), settings(tmp_path, CLARA_API_URL=url))
    with pytest.raises(NotFound, match="CLARA_API_URL"):
        await find_trace(ADDRESS, settings(tmp_path))
