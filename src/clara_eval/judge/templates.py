"""Prompt files, filled in one pass and named by their hash; a filled-in value is never searched for placeholders."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources

from clara_eval.core.errors import ConfigError
from clara_eval.core.hashing import sha256_hex

NAMES = (
    "extract.system",
    "extract.user",
    "compare.system",
    "compare.user",
    "order.system",
    "order.user",
    "typing.system",
    "typing.user",
)
_HOLE = re.compile(r"\{\{([a-z_]+)\}\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    name: str
    text: str
    sha256: str
    pieces: tuple[str, ...]
    """Text, name, text, name, …, text."""

    def fill(self, **values: str) -> str:
        self._check(values)
        return "".join(values[piece] if number % 2 else piece for number, piece in enumerate(self.pieces))

    def pattern(self, **values: str) -> str:
        """Return a regular expression for this text, filled with the given expressions."""
        self._check(values)
        pieces = enumerate(self.pieces)
        return "".join(values[piece] if number % 2 else re.escape(piece) for number, piece in pieces)

    def _check(self, values: Collection[str]) -> None:
        holes = set(self.pieces[1::2])
        if holes != set(values):
            wrong = ", ".join(f"{{{{{name}}}}}" for name in sorted(holes ^ set(values)))
            raise ConfigError(
                f"The prompt file prompts/{self.name}.md does not fit its values: {wrong}.",
                remedy="It holds each of these exactly: "
                + ", ".join(f"{{{{{name}}}}}" for name in sorted(values))
                + ".",
            )


@cache
def template(name: str) -> PromptTemplate:
    text = resources.files("clara_eval").joinpath("judge", "prompts", f"{name}.md").read_text("utf-8")
    return PromptTemplate(name, text, sha256_hex(text.encode()), tuple(_HOLE.split(text)))


def template_hash(*names: str) -> str:
    """Hash several prompt files together."""
    return sha256_hex("".join(template(name).sha256 for name in names).encode())


def prompt_files() -> dict[str, dict[str, str]]:
    """Return every prompt file with its text and hash, for the trace."""
    return {name: {"sha256": template(name).sha256, "text": template(name).text} for name in NAMES}
