"""A group of commands that imports a command's module only when it is called or its own help is shown."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Entry(NamedTuple):
    """A command: `module:name` (in this folder, or a full name; none for a group), and its line in the help."""

    target: str
    line: str


class LazyGroup(TyperGroup):
    """The commands one word below `path`; the program itself has the empty path."""

    table: Mapping[str, Entry] = {}
    path = ""

    def _below(self) -> dict[str, str]:
        found = (words.rpartition(" ") for words in self.table)
        return {name: self.table[f"{path} {name}".strip()].line for path, _, name in found if path == self.path}

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(self._below())

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self._below().items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(self._below())  # type: ignore[assignment] # names for typer's "Did you mean"
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        words = f"{self.path} {cmd_name}".strip()
        if words not in self.table:
            return None
        target, line = self.table[words]
        if not target:
            return _group(self.table, words, line)
        found = load(target)
        if "structlog" in sys.modules:  # a command that logs nothing does not wait for it to be loaded
            log_to_stderr()
        return get_command(found if isinstance(found, typer.Typer) else _single(found, cmd_name))


def load(target: str) -> Any:
    """Import `module:name`."""
    module, _, name = target.partition(":")
    return getattr(import_module(module if "." in module else f"clara_eval.interfaces.cli.{module}"), name)


def _group(table: Mapping[str, Entry], path: str, text: str) -> LazyGroup:
    made = LazyGroup(name=path.rpartition(" ")[2], help=text, no_args_is_help=True, rich_markup_mode=None)
    made.table, made.path = table, path
    return made


def _single(function: Any, name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name)(function)
    return app


def log_to_stderr() -> None:
    """Keep logs off standard output, unless a service or host program has configured them."""
    import structlog  # noqa: PLC0415 - only where it is loaded already

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
