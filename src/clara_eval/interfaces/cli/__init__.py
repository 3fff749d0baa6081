"""The command line. A command's module is imported when the command runs or shows its help."""

from __future__ import annotations

import errno
import gc
import logging
import os
import sys
import tomllib
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from clara_eval.core.errors import ClaraError, RanOut, as_ours
from clara_eval.core.extras import missing_part
from clara_eval.core.version import RULES, __version__
from clara_eval.interfaces.cli.output import EXIT_CODES, fail, replace_unprintable


class Entry(NamedTuple):
    """A command or group of commands, as in `commands.toml`."""

    target: str  # `module:name`, in this folder or with a full module name; empty for a group
    line: str
    example: str = ""


ADDRESS = "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"  # the address in examples
GROUPS = {
    "Try": ("demo", "judge", "view", "devnet"),
    "Post and compete": ("config", "harness", "challenge"),
    "Results": ("status", "leaderboard", "score", "trace", "verify"),
    "Operate": ("check", "settings", "serve", "evaluate", "review", "spend", "backup", "publication", "keys", "mcp"),
    "Lab": ("rank", "calibrate", "redteam"),
}  # The commands in the program's help; commands that are not listed work too.
COMMANDS = {
    words: Entry(*row)
    for words, row in tomllib.loads((files(__package__) / "commands.toml").read_text(encoding="utf-8")).items()
}


class LazyGroup(TyperGroup):
    """The commands one word below `path`, which is empty for the program itself."""

    path = ""

    def _subcommands(self) -> dict[str, str]:
        found = (words.rpartition(" ") for words in COMMANDS)
        return {name: COMMANDS[f"{path} {name}".strip()].line for path, _, name in found if path == self.path}

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(self._subcommands())

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        lines = self._subcommands()
        for title, names in ({"Commands": tuple(lines)} if self.path else GROUPS).items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", lines[name]) for name in names])

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters with False as the default of flags: for None typer would load pydantic."""
        for param in (found := super().get_params(ctx)):
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return found

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TyperException as wrong:
            wrong.message = wrong.message.replace("Value error, ", "")  # pydantic's prefix
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["help"]:
            if not args[1:]:
                typer.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        self.commands = dict.fromkeys(self._subcommands())  # type: ignore[assignment] # names for typer's "Did you mean"
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
        if "structlog" in sys.modules:  # only commands that log have loaded it
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
    import structlog  # noqa: PLC0415 - only called when it is already loaded

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


app = typer.Typer(
    name="clara-eval",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clara-eval {__version__}, rules {RULES}")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Judge on-chain challenges: compare every submission, rank, post the winners, leave a trace to check."""


def main() -> None:
    """Run a command; a ClaraError ends with one sentence, any other exception is reported as a bug."""
    gc.set_threshold(20_000, 10, 10)  # by default, collecting takes a tenth of the time of a round
    replace_unprintable()
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=not as_json)
        sys.exit(code if isinstance(code, int) else 0)
    except TyperException as wrong:  # only with --json; otherwise typer shows it with the usage
        fail(wrong.format_message(), code=wrong.exit_code, as_json=as_json)
    except typer.Abort:
        fail("Nothing was done: no answer was given.", code=1, as_json=as_json)
    except ClaraError as bad:
        fail(bad, as_json=as_json)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer and rich end with 1, which means "refused"
            _end_quietly()
        raise
    except Exception as bug:
        if sys.flags.dev_mode:
            raise
        _report_failure(bug, as_json=as_json)


def _end_quietly() -> NoReturn:
    """Exit with 0 when the reader of the pipe has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _report_failure(bug: Exception, *, as_json: bool) -> NoReturn:
    """Fail with a message that separates a missing extra or exhausted resource from a bug."""
    part = missing_part(bug) if isinstance(bug, ModuleNotFoundError) else None
    if part is not None:
        fail(part, as_json=as_json)
    if isinstance(bug, OSError) and bug.errno in {errno.ENOSPC, errno.EDQUOT}:
        fail("There is no space left to write to. Free some, or write elsewhere.")
    known = as_ours(bug)
    if isinstance(known, RanOut):
        fail(known, as_json=as_json)
    if isinstance(bug, FileNotFoundError) and "temporary directory" in str(bug):  # from `tempfile`, which names no file
        fail("No folder for temporary files can be written to. Name one that can with TMPDIR.", code=2, as_json=as_json)
    text = f"unexpected {type(bug).__name__}: {bug}\nThis is a bug. `python -X dev -m clara_eval …` shows where."
    fail(text, code=70, as_json=as_json)
