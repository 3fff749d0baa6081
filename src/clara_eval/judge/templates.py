"""Prompt files, filled in one pass and named by their hash.

A name and its values come in, text goes out. A value is never looked at for further placeholders, so nothing that is
filled in can fill in anything. A placeholder without a value, or a value without a placeholder, is a bug and is loud.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from clara_eval.hashing import sha256_hex

NAMES = ("extract.system", "extract.user", "compare.system", "compare.user", "typing.system", "typing.user")
_HOLE = re.compile(r"\{\{([a-z_]+)\}\}")


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    text: str
    sha256: str

    def fill(self, **values: str) -> str:
        if set(_HOLE.findall(self.text)) != set(values):
            raise AssertionError(f"The prompt {self.name} and its values do not match.")
        return _HOLE.sub(lambda hole: values[hole.group(1)], self.text)


@cache
def template(name: str) -> Template:
    text = resources.files("clara_eval").joinpath("prompts", f"{name}.md").read_text("utf-8")
    return Template(name, text, sha256_hex(text.encode()))


def template_hash(*names: str) -> str:
    """One hash for a prompt that is built from several files."""
    return sha256_hex("".join(template(name).sha256 for name in names).encode())


def prompt_files() -> dict[str, dict[str, str]]:
    """Every prompt file with its text and hash, for the trace."""
    return {name: {"sha256": template(name).sha256, "text": template(name).text} for name in NAMES}
