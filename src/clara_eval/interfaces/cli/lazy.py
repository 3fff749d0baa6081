"""A group of commands that imports a command's module only when that command is called or its own help is shown.

Comes in: a table of commands, `"config init": Entry("config:init", "…")`. Goes out: a group for typer. An entry without
a target is a group of its own, made of the entries below its name. The list of commands is printed from the table, so
that `--help` loads nothing of the product.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command


def load(target: str) -> Any:
    """Import `module:name`: a module of this folder, or a full name."""
    module, _, name = target.partition(":")
    return getattr(import_module(module if "." in module else f"clara_eval.interfaces.cli.{module}"), name)


class Entry(NamedTuple):
    """One command: `module:name` (a module of this folder, or a full name), and its line in the list of commands."""

    target: str
    line: str


class LazyGroup(TyperGroup):
    """The commands one word below `path`; the program itself is the group with the empty path."""

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
            return group(self.table, words, line)
        found = load(target)
        if "structlog" in sys.modules:  # a command that logs nothing does not wait for it to be loaded
            import_module("clara_eval.interfaces.cli.command_logs").to_stderr()
        return get_command(found if isinstance(found, typer.Typer) else _single(found, cmd_name))


def group(table: Mapping[str, Entry], path: str, text: str) -> LazyGroup:
    """The group of that name."""
    made = LazyGroup(name=path.rpartition(" ")[2], help=text, no_args_is_help=True, rich_markup_mode=None)
    made.table, made.path = table, path
    return made


def _single(function: Any, name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name)(function)
    return app
