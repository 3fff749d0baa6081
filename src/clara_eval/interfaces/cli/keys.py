"""`keys new`: a fresh evaluator key in an encrypted keystore file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from clara_eval.chain.wallet import new_keystore
from clara_eval.config.settings import Settings
from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli.options import JsonFlag
from clara_eval.interfaces.cli.output import emit_json
from clara_eval.interfaces.cli.screen import console, safe

SHORTEST_PASSWORD = 12
FEWEST_SIGNS = 6


def new(
    path: Annotated[Path, typer.Argument(help="The keystore file to write.")] = Path("evaluator.json"),
    *,
    json: JsonFlag = False,
) -> None:
    """Create a key, encrypted with the password of CLARA_EVALUATOR_PASSWORD or asked for on a terminal."""
    password = Settings.from_env().evaluator_password
    if password is None:
        password = SecretStr(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    _check_strength(password.get_secret_value())
    address = new_keystore(path, password)
    if json:
        emit_json({"address": address, "keystore": str(path)})
    else:
        place = safe(str(path), 4096)
        words = f"{address} is in {place}; set CLARA_EVALUATOR_KEYSTORE={place} and its password."
        console(stderr=False).print(words, soft_wrap=True)


def _check_strength(password: str) -> None:
    """A keystore can be tried offline, as often as one likes: its password has to be long and not one sign repeated."""
    if len(password) < SHORTEST_PASSWORD or len(set(password)) < FEWEST_SIGNS:
        raise ConfigError(
            f"The password of the keystore is weak: fewer than {SHORTEST_PASSWORD} characters, or fewer than "
            f"{FEWEST_SIGNS} different ones.",
            remedy="Choose several random words.",
        )
