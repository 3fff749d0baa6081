"""Run the service until a signal or a lost lease, or serve the pages of one judged folder."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from clara_eval.actions.folder import viewed_folder
from clara_eval.actions.operator import check_resources
from clara_eval.actions.published import ResultReader
from clara_eval.app import SendTimeouts, open_app
from clara_eval.config.settings import Settings, listed
from clara_eval.core.address import Address
from clara_eval.core.errors import ClaraError, ConfigError
from clara_eval.core.version import __version__
from clara_eval.documents.results import Scores
from clara_eval.interfaces.api import pages
from clara_eval.interfaces.api.app import create_app
from clara_eval.interfaces.api.context import ApiContext, add_error_handlers
from clara_eval.interfaces.api.templating import STATIC, show_names
from clara_eval.service.due import EngineOptions
from clara_eval.service.engine import Engine, Mode
from clara_eval.service.logs import configure_logs
from clara_eval.service.metrics import Alerts, Metrics, Webhook, watch_models

_log = structlog.get_logger(__name__)
REQUEST_SECONDS = 20.0  # to receive a whole request, head and body
_MAX_DESCRIPTORS = 65_536  # more than the connections that one address can open


async def run_service(
    settings: Settings,
    *,
    mode: Mode = "all",
    options: EngineOptions | None = None,
    pace: SendTimeouts | None = None,
    on_start: Callable[[str], None] | None = None,
) -> int:
    """Serve until a signal or a lost lease; return the exit code. `on_start` gets the URL once it answers."""
    values = [*(getattr(settings, name) for name in Settings.model_fields), *settings.keys_by_endpoint.values()]
    configure_logs(secrets=[one.get_secret_value() for one in values if isinstance(one, SecretStr)])
    gc.freeze()  # loaded modules stay, so collections need not scan them
    stop = asyncio.Event()
    with bound_socket(settings.host, settings.port) as listening, _stop_on_signals(stop):
        async with serving(settings, listening, mode=mode, options=options, pace=pace) as engine:
            if on_start is not None:
                on_start(f"http://{settings.host}:{listening.getsockname()[1]}")
            waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(engine.lost.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            _log.info("service_stopping", lost=engine.lost.is_set())
            return 1 if engine.lost.is_set() else 0


@asynccontextmanager
async def serving(
    settings: Settings,
    listening: socket.socket,
    *,
    mode: Mode,
    options: EngineOptions | None = None,
    pace: SendTimeouts | None = None,
) -> AsyncIterator[Engine]:
    """Run engine and API until the context exits."""
    metrics = Metrics(__version__)
    url, secret = settings.webhook_url, settings.webhook_secret
    alerts = Alerts(metrics, Webhook(url, secret.get_secret_value() if secret else None) if url else None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(alerts.close)
        app = await stack.enter_async_context(open_app(settings, pace=pace))
        if mode != "api-only":
            _ = app.evaluator
        _ = settings.factory  # raises at once for wrong settings, which no retry can repair
        stack.push_async_callback(watch_models(app, metrics))
        try:
            _log.info("resources_enough", detail=await check_resources(app))
        except ClaraError as bad:  # a machine with less is logged, not refused
            _log.warning("resources_short", detail=str(bad))
        engine = Engine(app, metrics, alerts, mode=mode, options=options)
        evaluator = app.sender.address if app.sender.can_sign or settings.evaluator_address else None
        reader = ResultReader(app.store, app.chain_id, settings.traces_public, evaluator)
        context = ApiContext(settings, reader, metrics, engine.health, engine.requests)
        api = create_app(context, only_operations=mode == "worker-only")
        # The API answers before the engine runs, so that its start can be watched.
        await stack.enter_async_context(api_running(api, listening, proxies=listed(settings.trusted_proxies)))
        await stack.enter_async_context(engine.running())
        host, port = listening.getsockname()[:2]
        _log.info("service_started", mode=mode, host=host, port=port, network=settings.network_name,
                  dry_run=not app.sender.can_sign)  # fmt: skip
        yield engine


@contextmanager
def bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as bad:
            message = f"CLARA_HOST={host} CLARA_PORT={port} cannot be served: {bad.strerror}."
            raise ConfigError(message, remedy="Choose another port, or stop what uses it.") from None
        yield sock


@contextmanager
def _stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the service."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def api_running(
    api: FastAPI, listening: socket.socket, *, proxies: Sequence[str] = (), request_seconds: float = REQUEST_SECONDS
) -> AsyncIterator[None]:
    """Serve the API on a bound socket; trust the forwarded client address of these proxies only."""
    # Raise the limit of descriptors, so that connections leave enough for the engine.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a body waits 40 ms for a head's receipt
    config = uvicorn.Config(
        api,
        http="h11",  # limits the size of a request's head; httptools accepts a megabyte
        h11_max_incomplete_event_size=65_536,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=10,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
    )
    server = _Server(config)
    serving_task = asyncio.create_task(server.serve([listening]))
    closing = asyncio.create_task(_close_unfinished(server, request_seconds))
    try:
        while not server.started:
            if serving_task.done():
                await serving_task
                raise ConfigError("The API could not be started.", remedy="The log says why.")
            await asyncio.sleep(0.02)
        yield
    finally:
        closing.cancel()
        api.state.stopping.set()  # ends open event streams, so that a shutdown does not wait for them
        server.should_exit = True
        await serving_task


async def _close_unfinished(server: uvicorn.Server, seconds: float) -> None:
    """Close connections whose request is not complete in time: uvicorn has no timeout for them."""
    waiting: dict[H11Protocol, tuple[object, float]] = {}
    while True:
        await asyncio.sleep(min(1.0, seconds / 4))
        now = asyncio.get_running_loop().time()
        cycles = {one: one.cycle for one in server.server_state.connections if isinstance(one, H11Protocol)}
        waiting = {
            one: waiting[one] if one in waiting and waiting[one][0] is cycle else (cycle, now)
            for one, cycle in cycles.items()
            if cycle is None or cycle.response_complete or cycle.more_body  # waits for a request or for its rest
        }
        for one, (_, since) in waiting.items():
            if now - since > seconds:
                one.transport.abort()


async def serve_folder(folder: Path, port: int, on_start: Callable[[str], None]) -> None:
    """Verify the folder's trace and serve its pages until the task is cancelled."""
    async with viewed_folder(folder) as (reader, checked):
        address = checked.venue.given.name
        show_names(checked.venue.ids)
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        app.state.context = SimpleNamespace(settings=Settings.from_env({"CLARA_NETWORK": "local"}), reader=reader)
        app.state.streams, app.state.stopping = 0, asyncio.Event()
        add_error_handlers(app)
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])  # against DNS rebinding

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
        with bound_socket("127.0.0.1", port) as listening:
            async with api_running(app, listening):
                on_start(f"http://127.0.0.1:{listening.getsockname()[1]}/")
                await asyncio.Event().wait()
