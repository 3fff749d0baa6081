"""Log one event per line to standard error, without secrets.

Invariant: known secrets, credentials and queries of URLs, and values under secret names are never logged.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterable
from typing import IO

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import ExceptionRenderer, JSONRenderer, StackInfoRenderer, TimeStamper, add_log_level
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor

from clara_eval.core.address import short

HIDDEN = "(hidden)"
_SECRET_NAMES = {
    *("api_key", "apikey", "authorization", "cookie", "key", "keystore", "mnemonic", "password"),
    *("private_key", "raw", "secret", "signature", "x_api_key"),
}
_NOISY = ("aiohttp.access", "dbos", "httpx2", "mcp", "sse_starlette", "uvicorn", "web3")
_SHORTEST_SECRET = 6  # Characters; replacing shorter ones would garble ordinary text
_MAX_REPEATS = 20  # Records per minute from one line of a library
_QUIET_SECONDS = 300  # A terminal shows a tick without problems this often
_CONSOLE = structlog.dev.ConsoleRenderer(timestamp_key="timestamp", pad_event_to=24)
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<rest>[^\s\"']*)", re.IGNORECASE)
_HOST = re.compile(r"(?:(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+|localhost|\[[0-9a-fA-F:]+\])(?::\d+)?")
_LONG_HEX = re.compile(r"0x[0-9a-fA-F]{40,}")
_NOT_ON_TERMINAL = frozenset(("worker", "workflow"))
_API_KEY = re.compile(r"(?<![0-9a-fA-F])(?:sk-[A-Za-z0-9_-]{16,}|Bearer\s+\S+)")


def _strip_credentials(url: re.Match[str]) -> str:
    """Keep scheme and host of a URL; a password with @ or / leaves several candidates for the host."""
    hosts = [re.split(r"[/?#]", part, maxsplit=1)[0] for part in url["rest"].split("@")]
    plain = hosts[-1] if len(hosts) < 3 else HIDDEN
    return url["scheme"] + next((host for host in reversed(hosts) if _HOST.fullmatch(host)), plain)


class Redaction:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first: a secret that contains another is hidden completely.
        self._secrets = sorted({one for one in secrets if len(one) >= _SHORTEST_SECRET}, key=len, reverse=True)

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        return {name: self._redact(name, value) for name, value in event.items()}

    def _redact(self, name: str, value: object) -> object:
        if name.lower().replace("-", "_") in _SECRET_NAMES:
            return HIDDEN
        if isinstance(value, dict):
            return {str(key): self._redact(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._redact(name, inner) for inner in value]
        return value if value is None or isinstance(value, bool | int | float) else self.text(str(value))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        text = _API_KEY.sub(HIDDEN, text)
        return _URL.sub(_strip_credentials, text)


class RepeatFilter(logging.Filter):
    """Limit the records from one line of a library per minute; the next one counts what was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("clara_eval") or isinstance(record.msg, dict):
            return True
        line, now = (record.pathname, record.lineno), time.monotonic()
        since, count = self._counts.get(line, (now, 0))
        if now - since >= 60:
            if count > _MAX_REPEATS:
                record.msg = f"{record.msg} [and {count - _MAX_REPEATS} more times before]"
            since, count = now, 0
        self._counts[line] = (since, count + 1)
        return count < _MAX_REPEATS


def configure_logs(*, level: str = "INFO", secrets: Iterable[str] = (), stream: IO[str] | None = None) -> None:
    """Format and redact our events and the records of libraries in one chain of processors."""
    out = stream or sys.stderr
    renderer: Processor = _render_for_terminal if out.isatty() else JSONRenderer(sort_keys=True)
    shared: list[Processor] = [
        *([QuietTicks()] if out.isatty() else []),
        merge_contextvars,
        add_log_level,
        TimeStamper(fmt="iso", utc=True),
        StackInfoRenderer(),
        # Local variables may contain secrets that the redaction does not know.
        ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
        Redaction(secrets),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level)),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel("WARNING")


class QuietTicks:
    """On a terminal, drop ticks without problems within `_QUIET_SECONDS`."""

    _shown_at = float("-inf")

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        if event.get("event") == "tick_ended" and not event.get("problems"):
            if time.monotonic() - self._shown_at < _QUIET_SECONDS:
                raise structlog.DropEvent
            self._shown_at = time.monotonic()
        return event


def _render_for_terminal(logger: object, method: str, event: EventDict) -> str:
    """Render an event for a terminal: readable names, the time of day, short addresses."""
    shown = {
        name: _LONG_HEX.sub(lambda found: short(found.group()), value) if isinstance(value, str) else value
        for name, value in event.items()
        if name not in _NOT_ON_TERMINAL and value != {}
    }
    if shown.get("about") == shown.get("challenge"):
        shown.pop("about", None)
    if isinstance(moment := event.get("timestamp"), str):
        shown["timestamp"] = moment[11:19]
    if str(event.get("event")).replace("_", "").isalnum():
        shown["event"] = str(event["event"]).replace("_", " ").capitalize()
    return _CONSOLE(logger, method, shown)
