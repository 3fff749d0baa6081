"""`serve`: scheduler, workers, API and status page in one process, or split over several."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from clara_eval.engine.engine import Mode
from clara_eval.engine.options import EngineOptions
from clara_eval.errors import ConfigError
from clara_eval.service import demo_settings, run_service
from clara_eval.settings import Settings


def serve(
    *,
    worker_only: Annotated[
        bool, typer.Option("--worker-only", help="Scheduler and workers; of the API only health and metrics.")
    ] = False,
    api_only: Annotated[bool, typer.Option("--api-only", help="API and status page, no evaluations.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="With its own local chain, a finished round and a running one.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Instead of CLARA_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of CLARA_PORT; 0 lets the system choose.")] = None,
) -> None:
    """Run the service until it is told to stop."""
    if worker_only and api_only:
        raise ConfigError("--worker-only and --api-only exclude each other.", remedy="Give one, or neither for both.")
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port {port} is not a port.", remedy="Use 1 to 65535, or 0 for any free one.")
    settings = Settings.from_env()
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    mode: Mode = "worker-only" if worker_only else "api-only" if api_only else "all"
    code = asyncio.run(_serve(settings.model_copy(update=changes), mode, demo=demo))
    raise typer.Exit(code)


async def _serve(settings: Settings, mode: Mode, *, demo: bool) -> int:

    if not demo:
        return await run_service(settings, mode=mode)
    quick = EngineOptions(tick_cron="*/5 * * * * *", tick_seconds=5, poll_seconds=0.2)
    async with demo_settings(settings) as local:
        return await run_service(local, mode=mode, options=quick)
