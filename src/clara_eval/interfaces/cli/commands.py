"""Every command in the order of its help; its module is imported when it is called or its own help is shown."""

from __future__ import annotations

import logging
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


class Entry(NamedTuple):
    """A command: `module:name` (in this folder, or a full name; none for a group), its line in the help, an example."""

    target: str
    line: str
    example: str = ""


ADDRESS = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"  # the address in examples
GROUPS = {
    "Try": ("demo", "judge", "view", "devnet"),
    "Post and compete": ("config", "harness", "challenge"),
    "Results": ("status", "leaderboard", "score", "trace", "verify"),
    "Operate": ("check", "settings", "serve", "evaluate", "review", "spend", "backup", "keys", "mcp"),
    "Lab": ("rank", "calibrate", "redteam"),
}
"""What the help of the program lists; the other names are valid."""
COMMANDS = {
    words: Entry(*row)
    for words, row in tomllib.loads((files(__package__) / "commands.toml").read_text(encoding="utf-8")).items()
}


class LazyGroup(TyperGroup):
    """The commands one word below `path`; the program itself has the empty path."""

    path = ""

    def _below(self) -> dict[str, str]:
        found = (words.rpartition(" ") for words in COMMANDS)
        return {name: COMMANDS[f"{path} {name}".strip()].line for path, _, name in found if path == self.path}

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(self._below())

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        lines = self._below()
        for title, names in ({"Commands": tuple(lines)} if self.path else GROUPS).items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", lines[name]) for name in names])

    def get_params(self, ctx: Any) -> Any:
        """Flags with False, not None, as their default: to convert None, typer loads pydantic before any command."""
        for param in (found := super().get_params(ctx)):
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return found

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.TyperException as wrong:
            wrong.message = wrong.message.replace("Value error, ", "")  # of pydantic, before a sentence
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            if not args[1:]:
                typer.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        self.commands = dict.fromkeys(self._below())  # type: ignore[assignment] # names for typer's "Did you mean"
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ARG002 - typer's signature
        words = f"{self.path} {cmd_name}".strip()
        if words not in COMMANDS:
            return None
        target, line, example = COMMANDS[words]
        if not target:
            group = LazyGroup(name=cmd_name, help=line, no_args_is_help=True, rich_markup_mode=None)
            group.path = words
            return group
        found = load(target)
        if "structlog" in sys.modules:  # a command that logs nothing does not wait for it to be loaded
            log_to_stderr()
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(found)
            found = single
        command = get_command(found)
        shown = words.removesuffix(cmd_name) + example.replace("ADDRESS", ADDRESS)
        command.epilog = f"\b\nExample:\n  clara-eval {shown}"
        return command


def load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module if "." in module else f"clara_eval.interfaces.cli.{module}"), name)


def log_to_stderr() -> None:
    """Keep logs off standard output, unless a service or host program has configured them."""
    import structlog  # noqa: PLC0415 - only where it is loaded already

    if structlog.is_configured():
        return
    lines = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    times = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, times, lines],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_args: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
