"""The command line door: `clara-eval …`. Each module holds one group of commands; this file registers them.

Heavy libraries are imported inside the commands, so that `--help` answers at once. Errors of ours end with one clear
sentence and exit code 2.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import typer

from clara_eval.cli.output import fail
from clara_eval.errors import ClaraError

app = typer.Typer(
    name="clara-eval",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Judge on-chain challenges: compare every submission, rank, post the winners, leave a trace to check.",
)


def _register() -> None:
    commands = {
        "demo": "demo",
        "evaluate": "evaluate",
        "check": "evaluate",
        "status": "evaluate",
        "trace": "trace",
        "verify": "trace",
        "rank": "rank",
        "serve": "serve",
        "mcp": "mcp",
        "spend": "spend",
        "redteam": "redteam",
    }
    for name, module in commands.items():
        found = _module(module)
        if found is not None:
            app.command(name)(getattr(found, name))
    for name in ("devnet", "config", "challenge", "review", "keys"):
        found = _module(name)
        if found is not None:
            app.add_typer(found.app, name=name)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"clara_eval.cli.{name}")
    except ModuleNotFoundError as missing:
        if missing.name == f"clara_eval.cli.{name}":
            return None
        raise


_register()


def main() -> None:
    """Run a command; our errors become one sentence, and a bug says that it is one."""
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
        fail(
            f"unexpected {type(bug).__name__}: {bug}\nThis is a bug. `python -X dev -m clara_eval …` shows where.",
            code=70,
        )
