"""Create an evaluator key in an encrypted keystore file."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from clara_eval.chain.wallet import new_keystore
from clara_eval.core.address import Address
from clara_eval.core.errors import ConfigError

SHORTEST_PASSWORD = 12
FEWEST_SIGNS = 6


def new_key(path: Path, password: SecretStr) -> Address:
    """Write a new key; its password is long and varied, because a keystore can be tried offline."""
    text = password.get_secret_value()
    if len(text) < SHORTEST_PASSWORD or len(set(text)) < FEWEST_SIGNS:
        raise ConfigError(
            f"The password of the keystore is weak: fewer than {SHORTEST_PASSWORD} characters, or fewer than "
            f"{FEWEST_SIGNS} different ones.",
            remedy="Choose several random words.",
        )
    return new_keystore(path, password)
