"""Commands `serve`, `mcp`, `judge` and `view`; heavy imports happen when a command runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli import load
from clara_eval.interfaces.cli.output import HarnessOption, JsonFlag, Judges, Problem, text_or_file

if TYPE_CHECKING:
    from clara_eval.config.settings import Settings
    from clara_eval.service.engine import Mode


def serve(
    *,
    worker_only: Annotated[
        bool, Option("--worker-only", help="Scheduler and workers; of the API only health and metrics.")
    ] = False,
    api_only: Annotated[bool, Option("--api-only", help="API and pages, no evaluations.")] = False,
    demo: Annotated[
        bool, Option("--demo", help="With its own local chain: a finished round, one in review, one that runs.")
    ] = False,
    host: Annotated[str | None, Option(help="Instead of CLARA_HOST.")] = None,
    port: Annotated[int | None, Option(help="Instead of CLARA_PORT; 0 lets the system choose.")] = None,
) -> None:
    """Run the service until it is stopped."""
    if worker_only and api_only:
        raise ConfigError("--worker-only and --api-only exclude each other.", remedy="Give one, or neither for both.")
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port {port} is not a port.", remedy="Use 1 to 65535, or 0 for any free one.")
    if demo:
        _say("Clara Eval, the living demo. It takes about ten seconds to come up; nothing leaves this machine.")
    from clara_eval.config.settings import Settings  # noqa: PLC0415

    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    mode: Mode = "worker-only" if worker_only else "api-only" if api_only else "all"
    raise Exit(asyncio.run(_serve(Settings.from_env().model_copy(update=changes), mode, demo=demo)))


def _say(sentence: str) -> None:
    load("screen:console")().print(sentence, soft_wrap=True)


async def _serve(settings: Settings, mode: Mode, *, demo: bool) -> int:
    from clara_eval.interfaces.serve import run_service  # noqa: PLC0415

    if not demo:
        return await run_service(settings, mode=mode)
    from clara_eval.service.due import EngineOptions  # noqa: PLC0415

    living_world = load("clara_eval.devnet.demo.living:living_world")  # by name: interfaces do not import the devnet
    quick = EngineOptions(tick_cron="*/5 * * * * *", tick_seconds=5, poll_seconds=0.2)
    async with living_world(settings, _say) as local:
        return await run_service(local, mode=mode, options=quick, on_start=lambda url: _banner(local, url))


def _banner(settings: Settings, url: str) -> None:
    lines = (
        ("", ""),
        ("Page", f"{url}/"),
        ("Operator", f"{url}/operator"),
        ("Admin key", settings.admin_api_key.get_secret_value() if settings.admin_api_key else ""),
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
        _say(f"[bold]{name:<14}[/bold]{value}" if name or value else "")


def mcp() -> None:
    """Serve the challenge tools to an MCP client over stdio."""
    from clara_eval.config.settings import Settings  # noqa: PLC0415
    from clara_eval.interfaces.mcp.server import run_stdio  # noqa: PLC0415 - an extra

    asyncio.run(run_stdio(Settings.from_env()))


def judge(
    source: Annotated[
        str, Argument(metavar="PATH", help="A folder, a JSON Lines or CSV file, or - for standard input.")
    ],
    *,
    config: Annotated[Path, Option(metavar="FILE", help="The eval config, a JSON file.")],
    out: Annotated[Path, Option(metavar="DIR", help="Where results and paid answers are kept.")] = Path("judged"),
    harness: HarnessOption = None,
    problem: Problem = "",
    judges: Judges = "",
    winners: Annotated[int | None, Option(min=1, help="How many win; by default 3.")] = None,
    max_usd: Annotated[
        float | None, Option("--max-usd", min=0, help="Spend at most this; by default CLARA_BUDGET_PER_CHALLENGE_USD.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Say what it would cost; ask nothing.")] = False,
    json: JsonFlag = False,
) -> None:
    """Judge entries without a chain; a second call continues the first and pays for nothing twice."""
    asked = {"judges": judges, "winners": winners, "max_usd": max_usd, "problem": text_or_file(problem)}
    load("evaluate:run_judge")(source, config, out, harness, dry_run=dry_run, json=json, **asked)


def view(
    folder: Annotated[Path, Argument(metavar="DIR", help="The --out folder of `judge`.")],
    port: Annotated[int, Option(min=0, max=65535, help="0 lets the system choose.")] = 0,
) -> None:
    """Show the result of `judge` in a browser until Ctrl-C; checks its trace first, and writes nothing."""
    serve_folder, show = load("clara_eval.interfaces.serve:serve_folder"), load("screen:print_labelled")
    asyncio.run(serve_folder(folder, port, lambda url: show("Page", f"{url}  (Ctrl-C ends it)")))
