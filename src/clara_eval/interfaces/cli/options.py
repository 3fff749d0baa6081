"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
YesToCost = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")]
AddressArgument = Annotated[str, typer.Argument(help="The challenge's address.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="The eval config, a JSON file.")]
FromOption = Annotated[str, typer.Option("--from", help="Your address, when no wallet key is set.")]
Judges = Annotated[str, typer.Option(help="Judges instead of CLARA_JUDGES, a comma list.")]
