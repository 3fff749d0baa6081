"""The command line door: `clara-eval …`. Each module holds one group of commands; this file registers them.

Heavy libraries are imported inside the commands, so that `--help` answers at once. Errors of ours end with one clear
sentence and exit code 2.
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from clara_eval.cli import (
    challenge,
    config,
    demo,
    devnet,
    evaluate,
    keys,
    mcp,
    rank,
    review,
    serve,
    spend,
    trace,
)
from clara_eval.cli.output import fail, tolerate_terminals
from clara_eval.errors import ClaraError

app = typer.Typer(
    name="clara-eval",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from clara_eval import __version__
        from clara_eval.pipeline.record import RULES

        typer.echo(f"clara-eval {__version__}, rules {RULES}")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Judge on-chain challenges: compare every submission, rank, post the winners, leave a trace to check."""


for command in (
    demo.demo,
    evaluate.check,
    evaluate.evaluate,
    evaluate.status,
    trace.trace,
    trace.verify,
    rank.rank,
    serve.serve,
    spend.spend,
    mcp.mcp,
):
    app.command()(command)
for name, group in (
    ("devnet", devnet.app),
    ("config", config.app),
    ("challenge", challenge.app),
    ("review", review.app),
    ("keys", keys.app),
):
    app.add_typer(group, name=name)


def main() -> None:
    """Run a command; our errors become one sentence, and a bug says that it is one."""
    tolerate_terminals()
    try:
        app()
    except ClaraError as bad:
        fail(str(bad))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has enough; leave no noise behind.
        sys.stderr.close()
        sys.exit(0)
    except Exception as bug:
        if sys.flags.dev_mode:
            raise
        if isinstance(bug, OSError) and bug.errno in {errno.ENOSPC, errno.EDQUOT}:
            fail("There is no space left to write to. Free some, or write elsewhere.")
        fail(
            f"unexpected {type(bug).__name__}: {bug}\nThis is a bug. `python -X dev -m clara_eval …` shows where.",
            code=70,
        )
