"""Words of each language, its libraries and its syntax tree, from `vocabulary.toml`."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOCABULARY: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("vocabulary.toml").read_text("utf-8"))
NODES = {name: words(text) for name, text in VOCABULARY["nodes"].items()}
"""Node types of all grammars together, by what they are."""
STRINGS = NODES["strings"]
LIBRARY = {name: words(text) for name, text in VOCABULARY["library"].items()}
"""What stays when a programmer's own names are replaced, by language."""
LIBRARY |= dict.fromkeys(("typescript", "tsx"), LIBRARY["javascript"])
