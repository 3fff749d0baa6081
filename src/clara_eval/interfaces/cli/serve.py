"""`serve`: scheduler, workers, API and pages in one process, or split over several; `--demo` with a world of its own.

What is heavy is loaded inside: the demo says what it is doing before that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli.commands import DEMO_SERVICE
from clara_eval.interfaces.cli.lazy import load
from clara_eval.interfaces.cli.screen import console

if TYPE_CHECKING:
    from clara_eval.config.settings import Settings
    from clara_eval.service.engine import Mode


def serve(
    *,
    worker_only: Annotated[
        bool, typer.Option("--worker-only", help="Scheduler and workers; of the API only health and metrics.")
    ] = False,
    api_only: Annotated[bool, typer.Option("--api-only", help="API and pages, no evaluations.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="With its own local chain: a finished round, one in review, one that runs.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Instead of CLARA_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of CLARA_PORT; 0 lets the system choose.")] = None,
) -> None:
    """Run the service until it is told to stop."""
    if worker_only and api_only:
        raise ConfigError("--worker-only and --api-only exclude each other.", remedy="Give one, or neither for both.")
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port {port} is not a port.", remedy="Use 1 to 65535, or 0 for any free one.")
    if demo:
        # Before anything heavy is loaded: whoever waits wants to know for what.
        _say("Clara Eval, the living demo. It takes about ten seconds to come up; nothing leaves this machine.")
    from clara_eval.config.settings import Settings  # noqa: PLC0415

    settings = Settings.from_env()
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    mode: Mode = "worker-only" if worker_only else "api-only" if api_only else "all"
    code = asyncio.run(_serve(settings.model_copy(update=changes), mode, demo=demo))
    raise typer.Exit(code)


def _say(sentence: str) -> None:
    console().print(sentence, soft_wrap=True)


async def _serve(settings: Settings, mode: Mode, *, demo: bool) -> int:
    from clara_eval.interfaces.serve import run_service  # noqa: PLC0415

    if not demo:
        return await run_service(settings, mode=mode)
    result: int = await load(DEMO_SERVICE)(settings, mode, _say)
    return result
