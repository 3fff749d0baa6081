"""`keys new`: a fresh evaluator key in an encrypted keystore file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from clara_eval.chain.wallet import new_keystore
from clara_eval.cli.options import JsonFlag
from clara_eval.cli.output import emit_json
from clara_eval.cli.screen import console, safe
from clara_eval.settings import Settings


def new(
    path: Annotated[Path, typer.Argument(help="The keystore file to write.")] = Path("evaluator.json"),
    *,
    json: JsonFlag = False,
) -> None:
    """Create a key, encrypted with the password of CLARA_EVALUATOR_PASSWORD or asked for on a terminal."""
    password = Settings.from_env().evaluator_password
    if password is None:
        password = SecretStr(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    address = new_keystore(path, password)
    if json:
        emit_json({"address": address, "keystore": str(path)})
    else:
        place = safe(str(path), 4096)
        words = f"{address} is in {place}; set CLARA_EVALUATOR_KEYSTORE={place} and its password."
        console(stderr=False).print(words, soft_wrap=True)
