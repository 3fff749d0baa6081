"""Serve the pages of one judged folder on this machine: read only, without a service or a wallet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, RedirectResponse

from clara_eval.actions.folder import viewed_folder
from clara_eval.actions.published import ResultReader
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents.results import Scores
from clara_eval.interfaces.api import pages, problems
from clara_eval.interfaces.api.templating import STATIC, show_names
from clara_eval.interfaces.serve import api_running, listening_on


@dataclass(frozen=True, slots=True)
class ViewContext:
    settings: Settings
    reader: ResultReader


async def serve_folder(folder: Path, port: int, on_start: Callable[[str], None]) -> None:
    """Check the folder's trace and serve its pages until the task is cancelled."""
    async with viewed_folder(folder) as (reader, checked):
        address = checked.venue.given.name
        show_names(checked.venue.ids)
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        app.state.context = ViewContext(Settings.from_env({"CLARA_NETWORK": "local"}), reader)
        app.state.streams, app.state.stopping = 0, asyncio.Event()
        problems.install(app)

        @app.get("/")
        async def result() -> RedirectResponse:
            return RedirectResponse(f"/challenges/{address}")

        @app.get(f"/api/v1/challenges/{address}/eval-trace")
        async def trace() -> FileResponse:
            return FileResponse(folder / "trace.json", media_type="application/json")

        @app.get(f"/api/v1/challenges/{address}/leaderboard")
        async def leaderboard() -> Scores:
            return await reader.leaderboard(Address(address), admin=False)

        app.include_router(pages.router)
        app.mount("/static", pages.Assets(directory=STATIC), name="static")
        with listening_on("127.0.0.1", port) as listening:
            async with api_running(app, listening):
                on_start(f"http://127.0.0.1:{listening.getsockname()[1]}/")
                await asyncio.Event().wait()
