"""Starter configs for posters: each one is valid, free of warnings, and explains itself in its descriptions.

They are the files in `starters/`. JSON has no comments, so what a poster should know stands in `description`.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

NAMES = ("code", "text", "amm")


def template_text(name: str) -> str:
    """The starter config as the text of a file."""
    return resources.files(__package__).joinpath("starters", f"{name}.json").read_text("utf-8")


TEMPLATES: dict[str, dict[str, Any]] = {name: json.loads(template_text(name)) for name in NAMES}
