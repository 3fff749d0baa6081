"""`serve`: the service, or with `--demo` a world of its own; `mcp`: the tools over stdio. Heavy parts load late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli.commands import load
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
    from clara_eval.service.options import EngineOptions  # noqa: PLC0415

    living_world = load("clara_eval.devnet.demo.living:living_world")  # a tool: known by name, like its command
    quick = EngineOptions(tick_cron="*/5 * * * * *", tick_seconds=5, poll_seconds=0.2)
    async with living_world(settings, _say) as local:
        return await run_service(local, mode=mode, options=quick, on_start=lambda url: _banner(local, url))


def _banner(settings: Settings, url: str) -> None:
    """Print where everything is, and what to try next."""
    key = settings.admin_api_key.get_secret_value() if settings.admin_api_key else ""
    lines = (
        ("", ""),
        ("Page", f"{url}/"),
        ("Operator", f"{url}/operator"),
        ("Admin key", key),
        ("Agents (MCP)", f"{url}/mcp"),
        ("Chain", settings.rpc_url),
        ("", ""),
        ("Try next", f"open {url}/ and watch the running round; a new one follows it"),
        ("", "sign in under Operator with the admin key and decide about the round that waits"),
        ("", f"curl {url}/api/v1/challenges"),
        ("Stop", "Ctrl-C; everything is thrown away"),
        ("", ""),
    )
    for name, value in lines:
        console().print(f"[bold]{name:<14}[/bold]{value}" if name or value else "", soft_wrap=True)


def mcp() -> None:
    """Serve the challenge tools to an MCP client over stdio."""
    from clara_eval.config.settings import Settings  # noqa: PLC0415
    from clara_eval.interfaces.mcp import run_stdio  # noqa: PLC0415 - an extra

    asyncio.run(run_stdio(Settings.from_env()))
