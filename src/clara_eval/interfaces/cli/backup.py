"""`backup`: copy the database while the service runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clara_eval.actions.backup import back_up
from clara_eval.config.settings import Settings
from clara_eval.interfaces.cli.output import JsonFlag, answer
from clara_eval.interfaces.cli.screen import print_labelled


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the copy.")], *, json: JsonFlag = False
) -> None:
    """Copy the SQLite database into FILE, also while the service runs."""
    size = back_up(Settings.from_env().database_url, file)
    answer({"file": str(file), "bytes": size}, json, lambda: print_labelled("Wrote", f"{size:,} bytes to {file}"))
