"""Where a command's log goes: to standard error, so that the document on standard output stays one."""

from __future__ import annotations

import logging
import sys

import structlog


def to_stderr() -> None:
    """Unless somebody else, as the service or a host program, has said where logs go."""
    if structlog.is_configured():
        return
    lines = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            lines,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_args: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
