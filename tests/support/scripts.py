"""The programs in `scripts/`, as modules."""

from __future__ import annotations

import importlib
from types import ModuleType


def load_script(name: str) -> ModuleType:
    return importlib.import_module(f"scripts.{name}")
