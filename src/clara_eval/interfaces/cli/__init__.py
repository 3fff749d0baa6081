"""The command line: `commands` lists every command, and each is imported when it is called."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from clara_eval.core.errors import ClaraError, RanOut, as_ours
from clara_eval.core.extras import missing_part
from clara_eval.core.version import RULES, __version__
from clara_eval.interfaces.cli.commands import LazyGroup
from clara_eval.interfaces.cli.output import EXIT_CODES, fail, tolerate_terminals

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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Judge on-chain challenges: compare every submission, rank, post the winners, leave a trace to check."""


def main() -> None:
    """Run a command; our errors end with one sentence, and a bug says that it is one."""
    tolerate_terminals()
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=not as_json)
        sys.exit(code if isinstance(code, int) else 0)
    except TyperException as wrong:  # only with --json: else typer itself shows it, with the usage
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
        _explain(bug, as_json=as_json)


def _end_quietly() -> NoReturn:
    """End with 0: the reader of a pipe has read enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _explain(bug: Exception, *, as_json: bool) -> NoReturn:
    """Tell a missing part, and a machine that has no more of something, from a bug."""
    part = missing_part(bug) if isinstance(bug, ModuleNotFoundError) else None
    if part is not None:
        fail(part, as_json=as_json)
    if isinstance(bug, OSError) and bug.errno in {errno.ENOSPC, errno.EDQUOT}:
        fail("There is no space left to write to. Free some, or write elsewhere.")
    known = as_ours(bug)
    if isinstance(known, RanOut):
        fail(known, as_json=as_json)
    if isinstance(bug, FileNotFoundError) and "temporary directory" in str(bug):  # of `tempfile`, which names no file
        fail("No folder for temporary files can be written to. Name one that can with TMPDIR.", code=2, as_json=as_json)
    told = f"unexpected {type(bug).__name__}: {bug}\nThis is a bug. `python -X dev -m clara_eval …` shows where."
    fail(told, code=70, as_json=as_json)
